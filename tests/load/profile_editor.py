"""Count which code of this project the requests of the editor enter.

`python -m tests.load.profile_editor [--list]` loads the demo of nine clusters into a database of its own,
begins a draft, and prints for its review and its confirmation how many modules and functions were entered,
how often a manifest was parsed, and how many scheduling cycles ran.
"""

import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tuple(f"{ROOT / name}{os.sep}" for name in ("fleetui", "clusters", "placements"))
_WITHOUT_A_NAME = {"<module>", "<lambda>", "<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"}


class Profile:
    """The calls of this project's functions, and how often each was entered."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.callers: Counter[tuple[str, str]] = Counter()

    @property
    def modules(self) -> set[str]:
        """The modules that were entered, as paths."""
        return {str(Path(code.co_filename).relative_to(ROOT)) for code in self.calls}

    @property
    def functions(self) -> set[str]:
        """Functions and methods; lambdas, comprehensions and generator expressions are part of theirs."""
        return {
            f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_qualname}"
            for code in self.calls
            if code.co_name not in _WITHOUT_A_NAME
        }

    def count(self, function: str, *, caller: str = "") -> int:
        """Return how often the functions of this name were entered; `caller` is a module."""
        return sum(
            number
            for (name, module), number in self.callers.items()
            if name == function and caller in ("", module)
        )


@contextmanager
def profiled() -> Iterator[Profile]:
    """Count the calls made inside the block by a profile hook; nothing is replaced."""
    profile, known = Profile(), dict[str, bool]()

    def hook(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code.co_filename not in known:
            known[code.co_filename] = code.co_filename.startswith(PACKAGES)
        if known[code.co_filename]:
            profile.calls[code] += 1
            outer = frame.f_back
            profile.callers[code.co_qualname, Path(outer.f_code.co_filename).stem if outer else ""] += 1

    previous = sys.getprofile()
    sys.setprofile(hook)
    try:
        yield profile
    finally:
        sys.setprofile(previous)


def main() -> None:
    """Print the counts for the demo of nine clusters."""
    folder = tempfile.TemporaryDirectory()
    os.environ |= {"FLEETUI_VAR_DIR": folder.name, "DATABASE_URL": f"sqlite:///{folder.name}/profile.sqlite3"}
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")
    import django  # noqa: PLC0415 - the settings have to be named first

    django.setup()
    from django.core.management import call_command  # noqa: PLC0415

    call_command("migrate", verbosity=0)
    call_command("collectstatic", interactive=False, verbosity=0)
    review, confirmation = profile_review_and_confirmation()
    for title, profile in (("review", review), ("confirmation", confirmation)):
        print(
            f"{title}: {len(profile.modules)} modules, {len(profile.functions)} functions, "
            f"{profile.count('parse_placement')} parsed, {profile.count('schedule')} scheduled"
        )
        if "--list" in sys.argv:
            print(*(f"  {name}" for name in sorted(profile.functions)), sep="\n")


def profile_review_and_confirmation() -> tuple[Profile, Profile]:
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
        r"numberOfClusters: (\d+)", lambda n: f"numberOfClusters: {int(n[1]) - 1}", dump_yaml(web.document)
    )
    client.post("/placements/web/edit/", {"mode": "yaml", "manifest": text})
    address = f"/drafts/{Draft.objects.get().pk}/review/"
    client.get(address)  # imports and caches: the second request is what a person waits for
    with profiled() as review:
        page = client.get(address).content.decode()
    given = dict(re.findall(r'name="([^"]*)" value="([^"]*)"', page.partition('class="bar"')[2]))
    with profiled() as confirmation:
        answer = client.post(address, given)
    assert answer.status_code == 302, answer.content.decode()
    return review, confirmation


if __name__ == "__main__":
    main()
