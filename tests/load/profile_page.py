"""Print how much code of this project one page of the demo of nine enters.

    python -m tests.load.profile_page [--list] [ADDRESS]

Without an address it requests the page of the latest decision that selected clusters.
"""

import argparse
from collections import Counter
from typing import Any

from tests.load.entered_code import EnteredCode, record_entered_code
from tests.load.own_console import own_console


def main() -> None:
    """Load the demo into a database of its own, request the page twice, and print the second request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("address", nargs="?", default="", metavar="ADDRESS")
    parser.add_argument("--list", action="store_true", help="print every function")
    options = parser.parse_args()

    with own_console():
        address, response, entered = profile_page(options.address)
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


def profile_page(address: str) -> tuple[str, Any, EnteredCode]:
    """Return the address, the second answer and what it entered."""
    from django.contrib.auth.models import User  # noqa: PLC0415 -- only after the folder is set
    from django.core.management import call_command  # noqa: PLC0415 -- as above
    from django.test import Client  # noqa: PLC0415 -- as above
    from django.utils import timezone  # noqa: PLC0415 -- as above

    from placements.models import Decision  # noqa: PLC0415 -- as above
    from placements.services.demo.load import load_demo  # noqa: PLC0415 -- as above
    from tests.caches import forget_cached_records  # noqa: PLC0415 -- as above

    call_command("collectstatic", interactive=False, verbosity=0)
    load_demo(9, by=None, now=timezone.now())
    client = Client(HTTP_HOST="localhost")
    client.force_login(User.objects.create_superuser("profile"))
    latest = (
        Decision.objects.filter(picked_count__gt=0)
        .select_related("record")
        .latest("pk")
    )
    address = address or f"/decisions/{latest.record.decision_id}/"
    client.get(address)  # compiles templates
    forget_cached_records()
    with record_entered_code() as entered:
        return address, client.get(address), entered


if __name__ == "__main__":
    main()
