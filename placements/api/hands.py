"""People's hands on a rollout: pause, stop, retry, roll back, and their opposites."""

from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.bodies import words_of
from placements.api.describing import described
from placements.api.endpoint import Endpoint, caller
from placements.api.lists import is_confirmed
from placements.api.lookups import placement_named
from placements.api.preconditions import answered, expected_revision, tag_of
from placements.api.shapes.disruptions import FreshShape
from placements.api.shapes.queries import ConfirmQuery
from placements.api.shapes.rollouts import HandShape, RetryShape, RollBackShape
from placements.operations.rescheduling import reschedule
from placements.operations.rollouts import hands
from placements.operations.rollouts.runs import running_rollout
from placements.queries.fresh import fresh_schedule


def _answer(request: Request, name: str, *, status: int = 200) -> Response:
    row = placement_named(name)
    run = running_rollout(row)
    document = HandShape(row, context={"run": run.number if run else None}).data
    return answered(request, document, tag_of(row.revision), status=status)


class Pause(Endpoint):
    """Start nothing more."""

    @described("pause_placement", {200: HandShape}, is_edit=True, has_tag=True)
    def post(self, request: Request, name: str) -> Response:
        """Pause a placement: nothing starts, what is under way is seen to its end."""
        hands.pause(name, **caller(request), expected=expected_revision(request))
        return _answer(request, name)


class Resume(Endpoint):
    """Go on after a pause."""

    @described("resume_placement", {200: HandShape}, is_edit=True, has_tag=True)
    def post(self, request: Request, name: str) -> Response:
        """Resume a placement."""
        hands.resume(name, **caller(request), expected=expected_revision(request))
        return _answer(request, name)


class Stop(Endpoint):
    """End the run for good."""

    @described("stop_placement", {200: HandShape}, is_edit=True, has_tag=True, problems=(409,))
    def post(self, request: Request, name: str) -> Response:
        """Stop the run; nothing starts until somebody begins a new one."""
        hands.stop(name, **caller(request), expected=expected_revision(request))
        return _answer(request, name)


class Start(Endpoint):
    """Begin anew after a stop."""

    @described("start_placement", {200: HandShape}, is_edit=True, has_tag=True, problems=(409,))
    def post(self, request: Request, name: str) -> Response:
        """Let a stopped placement begin a new run."""
        hands.begin_anew(name, **caller(request), expected=expected_revision(request))
        return _answer(request, name)


class Release(Endpoint):
    """End the hold of a rollback."""

    @described("release_placement", {200: HandShape}, is_edit=True, has_tag=True, problems=(409,))
    def post(self, request: Request, name: str) -> Response:
        """Let a placement follow the hub again after a rollback."""
        hands.release(name, **caller(request), expected=expected_revision(request))
        return _answer(request, name)


class Retry(Endpoint):
    """Try again what failed."""

    @described("retry_placement", {200: HandShape}, body=RetryShape, has_tag=True, problems=(409,))
    def post(self, request: Request, name: str) -> Response:
        """Try what failed on one cluster again at once."""
        cluster = words_of(request, RetryShape)["cluster"]
        hands.retry(name, cluster, **caller(request))
        return _answer(request, name)


class RollBack(Endpoint):
    """Go back to older resources."""

    @described(
        "roll_back_placement",
        {200: HandShape},
        body=RollBackShape,
        is_edit=True,
        has_tag=True,
        problems=(409,),
    )
    def post(self, request: Request, name: str) -> Response:
        """Carry out the resources of an older snapshot, and hold the placement there until it is released."""
        number = words_of(request, RollBackShape)["resourceSnapshot"]
        hands.roll_back(name, number, **caller(request), expected=expected_revision(request))
        return _answer(request, name)


class Reschedule(Endpoint):
    """Decide from scratch."""

    @described("get_fresh_schedule", {200: FreshShape})
    def get(self, request: Request, name: str) -> Response:  # noqa: ARG002 -- the framework's
        """Say what a fresh schedule would change: every cluster is a candidate, the present ones win ties."""
        return Response(FreshShape(fresh_schedule(placement_named(name))).data)

    @described(
        "reschedule_placement",
        {202: HandShape},
        query=ConfirmQuery,
        is_edit=True,
        has_tag=True,
        problems=(409,),
    )
    def post(self, request: Request, name: str) -> Response:
        """Decide the placement from scratch under the same policy; the rollout carries out what changes.

        Where no cluster would be picked it is refused (409) until `confirm` says so.
        """
        confirmed, expected = is_confirmed(request), expected_revision(request)
        reschedule(name, **caller(request), expected=expected, confirmed=confirmed)
        return _answer(request, name, status=202)
