"""manage.py verify_decisions: replay the stored decisions and compare the results."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError

from fleetui.management.hub_command import HubCommand
from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.services.verification import every_record, verify


class Command(HubCommand):
    help = "Replay every stored decision from its inputs; exit status 1 if a result differs."

    def handle(self, **_options: Any) -> None:
        report = verify(every_record(), now=datetime.now(UTC))
        for row in report.faulty:
            row.refresh_from_db(fields=["fault"])
            self.stdout.write(f"{row.decision_id}: {row.fault}")
        self.stdout.write(
            f"{report.count - len(report.faulty)} of {report.count} decisions verified"
        )
        if report.faulty:
            raise CommandError(
                f"{len(report.faulty)} decisions of engine {ENGINE_VERSION} give a different result"
            )
