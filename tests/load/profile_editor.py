"""Count which code of this project the requests of the editor enter.

`python -m tests.load.profile_editor [--list]` loads the demo of nine clusters into a database of its own,
begins a draft, and prints for its review and its confirmation how many modules and functions were entered,
how often a manifest was parsed, and how many scheduling cycles ran.
"""

import re
import sys
from datetime import UTC, datetime

from tests.load.entered_code import EnteredCode, record_entered_code
from tests.load.own_console import own_console


def main() -> None:
    """Print the counts for the demo of nine clusters."""
    with own_console():
        from django.core.management import call_command  # noqa: PLC0415 -- only after the folder is set

        call_command("collectstatic", interactive=False, verbosity=0)
        review, confirmation = profile_review_and_confirmation()
    for title, profile in (("review", review), ("confirmation", confirmation)):
        print(
            f"{title}: {len(profile.modules)} modules, {len(profile.functions)} functions, "
            f"{profile.count('parse_placement')} parsed, {profile.count('schedule')} scheduled"
        )
        if "--list" in sys.argv:
            print(*(f"  {name}" for name in profile.functions), sep="\n")


def profile_review_and_confirmation() -> tuple[EnteredCode, EnteredCode]:
    """Begin a draft of a demo placement with one cluster more, review and confirm it."""
    from django.contrib.auth.models import User  # noqa: PLC0415
    from django.test import Client  # noqa: PLC0415

    from fleetui.apimachinery.yaml import dump_yaml  # noqa: PLC0415
    from placements.models import Draft, Placement  # noqa: PLC0415
    from placements.services.demo.load import load_demo  # noqa: PLC0415

    load_demo(9, by=None, now=datetime.now(UTC))
    client = Client(HTTP_HOST="localhost")
    client.force_login(User.objects.create_superuser("profile"))
    web = Placement.objects.get(name="web")
    text = re.sub(
        r"numberOfClusters: (\d+)",
        lambda n: f"numberOfClusters: {int(n[1]) - 1}",
        dump_yaml(web.document),
    )
    client.post("/placements/web/edit/", {"mode": "yaml", "manifest": text})
    address = f"/drafts/{Draft.objects.get().pk}/review/"
    client.get(
        address
    )  # imports and caches: the second request is what a person waits for
    with record_entered_code() as review:
        page = client.get(address).content.decode()
    given = dict(
        re.findall(r'name="([^"]*)" value="([^"]*)"', page.partition('class="bar"')[2])
    )
    with record_entered_code() as confirmation:
        answer = client.post(address, given)
    assert answer.status_code == 302, answer.content.decode()
    return review, confirmation


if __name__ == "__main__":
    main()
