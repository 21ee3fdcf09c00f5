"""manage.py hubs [NAME]: states, streams and ages of the live hubs, and what is done to one of them."""

import json
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.hub_queries import live_hub, live_hubs
from clusters.hub_state import HubState
from fleetui.apimachinery.words import counted
from fleetui.errors import BAD_INPUT, REFUSED, UNCONFIRMED
from fleetui.hub_scope import in_hub
from fleetui.management.hub_command import HubCommand
from placements.hubs.connections.operations import change_hub, delete_rows, remove_hub
from placements.hubs.projection.operations import reproject, unresolved_objects
from placements.hubs.queries import HubSummary, streams_of, summaries_of


class Command(HubCommand):
    help = (
        "List the live hubs with state and age, or the streams of one; status 1 if a hub is not live. "
        "Or pause, resume, reproject or remove one; nothing is changed on the hub."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", nargs="?", default="")
        parser.add_argument(
            "-o", "--output", choices=["table", "json"], default="table"
        )
        add = parser.add_mutually_exclusive_group().add_argument
        add(
            "--pause",
            action="store_true",
            help="stop all traffic to the hub; its mirror stays",
        )
        add("--resume", action="store_true", help="watch a paused hub again")
        add(
            "--reproject",
            action="store_true",
            help="make its clusters and placements again from its mirror",
        )
        add(
            "--disconnect",
            action="store_true",
            help="remove the hub with its credentials and its mirror",
        )
        parser.add_argument("--yes", action="store_true", help="confirm the removal")

    def handle(self, *, name: str, output: str, **options: Any) -> None:
        """Write the table or JSON; exit status 1 if any hub is not live."""
        verbs = ("pause", "resume", "reproject", "disconnect")
        verb = next((one for one in verbs if options[one]), "")
        if verb and not name:
            raise CommandError("NAME is missing", returncode=BAD_INPUT)
        if verb in ("pause", "resume"):  # the watcher notices within five seconds
            change_hub(
                name, {"paused": verb == "pause"}, by=None, now=datetime.now(UTC)
            )
            self.stdout.write(f"Hub {name} {verb}d")
        elif verb == "reproject":
            self.reproject(name)
        elif verb == "disconnect":
            self.disconnect(name, confirmed=options["yes"])
        else:
            self.show(name, output)

    def reproject(self, name: str) -> None:
        with in_hub(live_hub(name).pk):
            now = datetime.now(UTC)
            count = reproject(now=now)
            unresolved = unresolved_objects(now=now).count()
        self.stdout.write(f"{counted(count, 'object')} of hub {name} projected")
        if unresolved:
            are, them = ("is", "it") if unresolved == 1 else ("are", "them")
            words = counted(unresolved, "object")
            self.stdout.write(
                f"{words} {are} unresolved; the page of the hub lists {them}"
            )

    def disconnect(self, name: str, *, confirmed: bool) -> None:
        """Remove credentials immediately, the mirror as soon as no watcher has it."""
        if not confirmed:
            raise CommandError(
                f"Repeat the command with --yes to remove {name}",
                returncode=UNCONFIRMED,
            )
        hub = remove_hub(name, by=None, now=datetime.now(UTC))
        rest = (
            " The rest of its mirror is deleted in the background."
            if delete_rows(hub.pk)
            else ""
        )
        self.stdout.write(f"Hub {name} removed.{rest}")

    def show(self, name: str, output: str) -> None:
        now = datetime.now(UTC)
        summaries = summaries_of(
            [live_hub(name)] if name else live_hubs().order_by("name"), now=now
        )
        rows = [
            self._document(summary, now, with_streams=bool(name))
            for summary in summaries
        ]
        if output == "json":
            self.stdout.write(json.dumps(rows, indent=2, default=str))
        else:
            for row in rows:
                state = ": ".join(filter(None, (row["state"], row["reason"])))
                age = "never"
                if row["ageSeconds"] is not None:
                    age = f"{row['ageSeconds']:.0f}s ago"
                counts = f"{row['clusters']} clusters, {row['placements']} placements"
                self.stdout.write(f"{row['name']}  {state}  {age}  {counts}")
                for stream in row.get("streams", ()):
                    place = (stream["resource"], stream["namespace"])
                    what = " in ".join(filter(None, place))
                    facts = f"{stream['state']}  {stream['objects']} objects"
                    self.stdout.write(f"  {what}  {facts}  {stream['error']}".rstrip())
        others = [
            summary.hub.name for summary in summaries if summary.state != HubState.LIVE
        ]
        if others:
            raise CommandError(f"Not live: {', '.join(others)}", returncode=REFUSED)

    def _document(
        self,
        one: HubSummary,
        now: datetime,
        *,
        with_streams: bool,
    ) -> dict[str, Any]:
        row: dict[str, Any] = {
            "name": one.hub.name,
            "kind": one.hub.kind,
            "mode": one.hub.mode,
            "state": one.state,
            "reason": one.reason,
            "ageSeconds": one.age_seconds(now),
            "clusters": one.clusters,
            "placements": one.placements,
        }
        if with_streams:
            row["streams"] = [
                {
                    "resource": stream.resource,
                    "namespace": stream.namespace,
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
