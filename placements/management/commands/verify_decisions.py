"""manage.py verify_decisions: replay the stored decisions and compare the results."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError

from fleetui.management.hub_command import HubCommand
from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.services.verification import every_record, verify


class Command(HubCommand):
    """Verify every record of this engine."""

    help = "Replay every stored decision from its inputs; exit status 1 if a result differs."

    def handle(self, **_options: Any) -> None:
        found = verify(every_record(), now=datetime.now(UTC))
        for row in found.faulty:
            row.refresh_from_db(fields=["fault"])
            self.stdout.write(f"{row.decision_id}: {row.fault}")
        self.stdout.write(f"{found.count - len(found.faulty)} of {found.count} decisions verified")
        if found.faulty:
            raise CommandError(
                f"{len(found.faulty)} decisions of engine {ENGINE_VERSION} give a different result"
            )
