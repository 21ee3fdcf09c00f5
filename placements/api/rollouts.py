"""Runs of rolling updates: the list, one of them, its clusters, what was started in it."""

from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.describing import described, page_shape
from placements.api.endpoint import Endpoint
from placements.api.lists import asked, listed, page_asked, rows_as
from placements.api.shapes.queries import PageQuery
from placements.api.shapes.rollouts import (
    ClusterUpdateRow,
    RolloutQuery,
    RolloutRow,
    RolloutShape,
    RunClusterQuery,
    RunClusterShape,
)
from placements.explain.run_wording import answer_sentences, short_answer_facts
from placements.queries.run_clusters import clusters_in, names_in
from placements.queries.runs import run_named, runs_matching, said_of, updates_of

MANY_CLUSTERS = 200


class Rollouts(Endpoint):
    """Runs of all placements."""

    @described("list_rollouts", {200: page_shape(RolloutRow)}, query=RolloutQuery)
    def get(self, request: Request) -> Response:
        """List runs, those of placements that are gone among them, the newest first."""
        wanted = asked(request, RolloutQuery)
        rows = runs_matching(placement=wanted["placement"], state=wanted.get("state", ""))
        page = page_asked(rows, wanted, order="-id", unique="id")
        return listed(request, rows_as(RolloutRow, page.rows), page.after)


class Rollout(Endpoint):
    """One run of a placement, by its number."""

    @described("get_rollout", {200: RolloutShape})
    def get(self, request: Request, name: str, number: int) -> Response:  # noqa: ARG002 -- the framework's
        """Give a run: its waves, what may happen next and why not more, its clusters."""
        run = run_named(name, number)
        said, names = said_of(run), names_in(run)
        rows = clusters_in(run, names, said) if len(names) <= MANY_CLUSTERS else None
        document = {
            **RolloutRow(run).data,
            "waves": run.waves,
            "answer": short_answer_facts(said.answer) if said.answer else None,
            "sentences": answer_sentences(said.answer) if said.answer else None,
            "clusters": RunClusterShape(rows, many=True).data if rows is not None else None,
        }
        return Response(document)


class RolloutClusters(Endpoint):
    """The clusters of a run."""

    @described("list_rollout_clusters", {200: page_shape(RunClusterShape)}, query=RunClusterQuery)
    def get(self, request: Request, name: str, number: int) -> Response:
        """List the clusters of a run by their waves, then those that joined later by name."""
        wanted = asked(request, RunClusterQuery)
        run = run_named(name, number)
        names, last = names_in(run), wanted["after"] + wanted["limit"]
        rows = clusters_in(run, names[wanted["after"] : last], said_of(run))
        items = RunClusterShape(rows, many=True).data
        return listed(request, items, last if last < len(names) else None)


class RolloutUpdates(Endpoint):
    """What was started in a run."""

    @described("list_rollout_updates", {200: page_shape(ClusterUpdateRow)}, query=PageQuery)
    def get(self, request: Request, name: str, number: int) -> Response:
        """List the starts of a run with what became of each, the newest first."""
        wanted = asked(request, PageQuery)
        page = page_asked(updates_of(run_named(name, number)), wanted, order="-id", unique="id")
        return listed(request, rows_as(ClusterUpdateRow, page.rows), page.after)
