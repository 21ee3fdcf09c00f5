"""Print how much code of this project one page of the demo of nine enters.

    python -m tests.load.profile_page [--list] [ADDRESS]

Without an address it requests the page of the latest decision that selected clusters.
"""

import argparse
import os
from collections import Counter

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")
django.setup()

from django.contrib.auth.models import User  # noqa: E402 -- models need the setup above
from django.test import Client  # noqa: E402
from django.test.utils import override_settings, setup_databases, setup_test_environment  # noqa: E402
from django.utils import timezone  # noqa: E402

from placements.models import Decision  # noqa: E402
from placements.services.decisions.records import forget_cached_records  # noqa: E402
from placements.services.demo.load import load_demo  # noqa: E402
from tests.load.entered_code import record_entered_code  # noqa: E402

STORAGES = {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}


def main() -> None:
    """Load the demo into a database of its own, request the page twice, and print the second request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("address", nargs="?", default="", metavar="ADDRESS")
    parser.add_argument("--list", action="store_true", help="print every function")
    options = parser.parse_args()

    setup_test_environment()
    setup_databases(verbosity=0, interactive=False)
    load_demo(9, by=None, now=timezone.now())
    client = Client()
    client.force_login(User.objects.create_superuser("profile"))
    latest = Decision.objects.filter(picked_count__gt=0).select_related("record").latest("pk")
    address = options.address or f"/decisions/{latest.record.decision_id}/"

    client.get(address)  # compiles templates
    forget_cached_records()
    with record_entered_code() as entered:
        response = client.get(address)

    functions = Counter(name.partition(":")[0] for name in entered.functions)
    for module in entered.modules:
        print(f"{functions[module]:4} {module}")
    if options.list:
        print(*(f"     {name}" for name in entered.functions), sep="\n")
    print(f"{address}: status {response.status_code}, {len(response.content):,} bytes")
    print(
        f"{len(entered.modules)} modules, {len(entered.functions)} functions"
        f" ({len(entered.calls)} with lambdas and comprehensions), {entered.switches} switches,"
        f" {entered.count('unpack')} unpacked"
    )


if __name__ == "__main__":
    with override_settings(STORAGES=STORAGES):
        main()
