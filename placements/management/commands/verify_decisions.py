"""manage.py verify_decisions: decide what is stored again, and tell what came out otherwise."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError

from fleetui.management.hub_command import HubCommand
from placements.operations.verifying import every_record, verify
from placements.scheduling.version import ENGINE_VERSION


class Command(HubCommand):
    """Verify every record of this engine."""

    help = "Decide every stored decision again from its stored inputs; exit 1 if one comes out otherwise."

    def handle(self, **_options: Any) -> None:
        """Print how many gave the same, and each that did not."""
        found = verify(every_record(), now=datetime.now(UTC))
        for row in found.faulty:
            row.refresh_from_db(fields=["fault"])
            self.stdout.write(f"{row.decision_id}: {row.fault}")
        self.stdout.write(f"{found.count - len(found.faulty)} of {found.count} decisions replay as stored")
        if found.faulty:
            raise CommandError(f"{len(found.faulty)} decided by engine {ENGINE_VERSION} do not replay")
