"""What looks over everything, or back: overview, search, the history of a placement, two moments of it."""

from dataclasses import asdict
from typing import Any

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.describing import described, page_shape
from placements.api.endpoint import Endpoint
from placements.api.lists import asked, listed
from placements.api.lookups import placement_named
from placements.api.shapes.looking_back import (
    EntryShape,
    FoundShape,
    MomentsShape,
    OverviewShape,
    SearchQuery,
)
from placements.api.shapes.queries import NoQuery, PageQuery
from placements.explain.decision_diffs import DecisionDiff
from placements.models import Decision, PolicySnapshot, ResourceSnapshot
from placements.queries import overview, rollout_needs
from placements.queries.comparing import Comparison, Side, UnknownSideError, UnlikeSidesError, compare
from placements.queries.history import Entry, history_of
from placements.queries.runs import running_count
from placements.queries.searching import find
from placements.scheduling.faults import Fault, Faults


class Overview(Endpoint):
    """The fleet in numbers."""

    @described("get_overview", {200: OverviewShape})
    def get(self, request: Request) -> Response:
        """Count what there is and what needs somebody."""
        asked(request, NoQuery)
        counts, waiting = overview.counts(), rollout_needs.waiting_count()
        return Response(
            {
                "clusters": counts.clusters,
                "placements": counts.placements,
                "notFulfilled": counts.unfulfilled,
                "selectorsAtFault": counts.invalid,
                "beingDecided": counts.pending,
                "notEligible": counts.not_eligible,
                "leaving": counts.leaving,
                "runsRunning": running_count() - waiting,
                "runsWaiting": waiting,
            }
        )


class Search(Endpoint):
    """Everything that has a name."""

    @described("search", {200: FoundShape}, query=SearchQuery)
    def get(self, request: Request) -> Response:
        """Find clusters, placements, decisions, runs and resources."""
        found = find(asked(request, SearchQuery)["q"])
        runs = [{"placement": one.placement_name, "number": one.number} for one in found.runs]
        resources = [
            {"group": one.group, "kind": one.kind, "namespace": one.namespace, "name": one.name}
            for one in found.resources
        ]
        return Response(
            {
                "clusters": found.clusters,
                "placements": found.placements,
                "decisions": [one.record.decision_id for one in found.decisions],
                "runs": runs,
                "resources": resources,
            }
        )


class History(Endpoint):
    """The past of a placement."""

    @described("get_history", {200: page_shape(EntryShape)}, query=PageQuery)
    def get(self, request: Request, name: str) -> Response:
        """List policies, resources and decisions of a placement, the newest first."""
        wanted = asked(request, PageQuery)
        page = history_of(placement_named(name), size=wanted["limit"], after=wanted.get("after"))
        return listed(request, map(_entry, page.entries), page.after)


def _entry(entry: Entry) -> dict[str, Any]:
    row = entry.row
    by = row.created_by if isinstance(row, PolicySnapshot | ResourceSnapshot) else row.asked_by
    return {
        "key": entry.key,
        "kind": str(entry.kind),
        "number": row.number,
        "at": row.created_at,
        "by": by,
        "because": row.because if isinstance(row, Decision) else "",
    }


class Compare(Endpoint):
    """Two moments of a placement."""

    @described("compare", {200: MomentsShape}, problems=(422,))
    def get(self, request: Request, name: str, before: str, after: str) -> Response:
        """Compare two snapshots or decisions: `p0..p1`, `s0..s1`, or ids of decisions."""
        asked(request, NoQuery)
        try:
            found = compare(placement_named(name), before, after)
        except UnknownSideError as error:
            raise Http404(str(error)) from error
        except UnlikeSidesError as error:
            raise Faults([Fault("after", "unlike", str(error), "two of a kind")]) from error
        return Response(_comparison(found))


def _comparison(found: Comparison) -> dict[str, Any]:
    return {
        "before": _side(found.before),
        "after": _side(found.after),
        "manifests": None
        if found.resources is not None
        else {"before": found.before.manifest, "after": found.after.manifest},
        "decision": _decided(found.decision) if found.decision else None,
        "resources": None
        if found.resources is None
        else [{"did": one.did, "name": one.name} for one in found.resources],
        "sameResources": found.same_resources,
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "key": side.key,
        "title": side.title,
        "at": side.at,
        "by": side.by,
        "sentence": side.sentence,
        "decision": side.decision.record.decision_id if side.decision else "",
    }


def _decided(diff: DecisionDiff) -> dict[str, Any]:
    groups = [(one.key, row) for one in diff.groups for row in (*one.groups, one.no_label) if row]
    return {
        "joins": diff.joins,
        "leaves": diff.leaves,
        "stays": diff.stays,
        "otherReasons": list(map(asdict, diff.shifts)),
        "groups": [{"key": key, **asdict(row), "group": row.group or None} for key, row in groups],
    }
