"""manage.py hubs [NAME] [-o json]: states, streams and ages of the live hubs."""

import json
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.hub_queries import live_hub, live_hubs
from clusters.hub_state import HubState
from fleetui.errors import REFUSED
from fleetui.management.hub_command import HubCommand
from placements.hubs.queries import HubSummary, streams_of, summaries_of


class Command(HubCommand):
    """List the live hubs, or show the streams of one."""

    help = "List the live hubs with state and age, or the streams of one; status 1 if a hub is not live."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", nargs="?", default="")
        parser.add_argument("-o", "--output", choices=["table", "json"], default="table")

    def handle(self, *, name: str, output: str, **_options: Any) -> None:
        """Write the table or JSON; exit status 1 if any hub is not live."""
        now = datetime.now(UTC)
        summaries = summaries_of([live_hub(name)] if name else live_hubs().order_by("name"), now=now)
        rows = [self._document(one, now, with_streams=bool(name)) for one in summaries]
        if output == "json":
            self.stdout.write(json.dumps(rows, indent=2, default=str))
        else:
            for row in rows:
                reason = f": {row['reason']}" if row["reason"] else ""
                age = "never" if row["ageSeconds"] is None else f"{row['ageSeconds']:.0f}s ago"
                counts = f"{row['clusters']} clusters, {row['placements']} placements"
                self.stdout.write(f"{row['name']}  {row['state']}{reason}  {age}  {counts}")
                for stream in row.get("streams", ()):
                    chosen = [stream["fieldSelector"], stream["namespace"] and f"in {stream['namespace']}"]
                    what = " ".join(filter(None, [stream["resource"], *chosen]))
                    error = f"  {stream['error']}" if stream["error"] else ""
                    self.stdout.write(f"  {what}  {stream['state']}  {stream['objects']} objects{error}")
        if any(one.state != HubState.LIVE for one in summaries):
            raise CommandError(
                "Not live: " + ", ".join(one.hub.name for one in summaries if one.state != "live"),
                returncode=REFUSED,
            )

    def _document(self, one: HubSummary, now: datetime, *, with_streams: bool) -> dict[str, Any]:
        age = one.age(now)
        row: dict[str, Any] = {
            "name": one.hub.name,
            "kind": one.hub.kind,
            "mode": one.hub.mode,
            "state": one.state,
            "reason": one.reason,
            "ageSeconds": None if age is None else round(age.total_seconds(), 1),
            "clusters": one.clusters,
            "placements": one.placements,
        }
        if with_streams:
            row["streams"] = [
                {
                    "resource": stream.resource,
                    "namespace": stream.namespace,
                    "fieldSelector": stream.field_selector,
                    "state": stream.state,
                    "objects": stream.object_count,
                    "heardAt": stream.heard_at,
                    "relists": stream.relists,
                    "skipped": stream.skipped,
                    "error": stream.error,
                }
                for stream in streams_of(one.hub)
            ]
        return row
