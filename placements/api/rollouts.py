"""Rollouts, and the actions on the rollout of a placement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from fleetui.permissions import Role
from placements.api.base import (
    BaseViewSet,
    MayApprove,
    MayReadOrOperate,
    actor,
    get_placement,
    page_response,
    query_params,
)
from placements.api.disruption_serializers import RescheduleImpactSerializer
from placements.api.filters import ConfirmQuery, NumberedPageQuery, PageQuery, RolloutQuery
from placements.api.parsers import parse_body
from placements.api.preconditions import etag, etag_response, expected_revision
from placements.api.rollouts_serializers import (
    ClusterUpdateSerializer,
    RetrySerializer,
    RollBackSerializer,
    RolloutClusterSerializer,
    RolloutControlsSerializer,
    RolloutRowSerializer,
    RolloutSerializer,
)
from placements.api.schema import documented, page_serializer
from placements.explain.rollouts import result_sentences, short_result_document
from placements.services.disruption.restore import fresh_schedule
from placements.services.rescheduling import reschedule
from placements.services.rollouts.actions import ACTIONS, RolloutAction, RolloutKind
from placements.services.rollouts.controller import running_rollout
from placements.services.rollouts.queries import (
    clusters_in,
    names_in,
    report_of,
    run_named,
    runs_matching,
    updates_of,
)

MANY_CLUSTERS = 200


class RolloutViewSet(BaseViewSet):
    """Rollouts of all placements."""

    lookup_path = "<named:name>/<number:number>"

    @documented("list_rollouts", {200: page_serializer(RolloutRowSerializer)}, query=RolloutQuery)
    def list(self, request: Request) -> Response:
        """List rollouts, including those of deleted placements, the newest first."""
        params = query_params(request, RolloutQuery)
        rows = runs_matching(placement=params["placement"], state=params.get("state", ""))
        return self.list_response(rows, RolloutRowSerializer, params, order="-id", unique="id")

    @documented("get_rollout", {200: RolloutSerializer})
    def retrieve(self, request: Request, name: str, number: int) -> Response:
        """Get a rollout with its waves, its last sync result and its clusters."""
        run = run_named(name, number)
        report, names = report_of(run), names_in(run)
        rows = clusters_in(run, names, report) if len(names) <= MANY_CLUSTERS else None
        document = {
            **RolloutRowSerializer(run).data,
            "waves": run.waves,
            "answer": short_result_document(report.result) if report.result else None,
            "sentences": result_sentences(report.result) if report.result else None,
            "clusters": None if rows is None else RolloutClusterSerializer(rows, many=True).data,
        }
        return Response(document)

    @documented(
        "list_rollout_clusters", {200: page_serializer(RolloutClusterSerializer)}, query=NumberedPageQuery
    )
    @action(detail=True, url_name="rollout-clusters")
    def clusters(self, request: Request, name: str, number: int) -> Response:
        """List the clusters of a rollout by wave, then those that joined later by name."""
        params = query_params(request, NumberedPageQuery)
        run = run_named(name, number)
        names, last = names_in(run), params["after"] + params["limit"]
        rows = clusters_in(run, names[params["after"] : last], report_of(run))
        items = RolloutClusterSerializer(rows, many=True).data
        return page_response(request, items, last if last < len(names) else None)

    @documented("list_rollout_updates", {200: page_serializer(ClusterUpdateSerializer)}, query=PageQuery)
    @action(detail=True, url_name="rollout-updates")
    def updates(self, request: Request, name: str, number: int) -> Response:
        """List the updates of a rollout with their outcomes, the newest first."""
        rows = updates_of(run_named(name, number))
        return self.list_response(rows, ClusterUpdateSerializer, order="-id", unique="id")


@dataclass(frozen=True, slots=True)
class ActionOperation:
    """An action of users as an operation of the API; `body` has the argument of the action, if it has one.

    `path` is the last part of the address where it is not the name of the action.
    """

    action: RolloutAction
    operation_id: str
    description: str
    body: type[Serializer[Any]] | None = None
    path: str = ""
    is_edit: bool = True
    can_conflict: bool = True


def add_actions(
    viewset: type[BaseViewSet],
    operations: Sequence[ActionOperation],
    *,
    url_prefix: str = "",
    **documentation: Any,
) -> None:
    """Add one method for each action to a viewset; it responds with the viewset's `action_response`.

    `url_prefix` starts the names of the routes, `documentation` is of all actions.
    """
    for operation in operations:
        method = _action_method(operation, url_prefix, documentation)
        setattr(viewset, method.__name__, method)


def _action_method(operation: ActionOperation, url_prefix: str, documentation: Mapping[str, Any]) -> Any:
    def method(self: Any, request: Request, name: str) -> Response:
        expected: dict[str, Any] = {"expected": expected_revision(request)} if operation.is_edit else {}
        body = parse_body(request, operation.body) if operation.body else {}
        value = next(iter(body.values()), "")
        operation.action.run(name, value, **actor(request), **expected)
        response: Response = self.action_response(name)
        return response

    path = operation.path or operation.action.name
    method.__name__, method.__doc__ = path.replace("-", "_"), operation.description
    is_for_approvers = operation.action.permission is Role.APPROVER
    route = action(
        detail=True,
        methods=["post"],
        url_path=path,
        url_name=f"{url_prefix}{path}",
        permission_classes=[MayApprove if is_for_approvers else MayReadOrOperate],
    )
    describe = documented(
        operation.operation_id,
        body=operation.body,
        is_edit=operation.is_edit,
        problems=(409,) if operation.can_conflict else (),
        **documentation,
    )
    return describe(route(method))


OPERATIONS = (
    ActionOperation(
        ACTIONS[RolloutKind.ROLLING, "pause"],
        "pause_placement",
        "Pause a placement: no new updates start, running updates finish.",
        can_conflict=False,
    ),
    ActionOperation(
        ACTIONS[RolloutKind.ROLLING, "resume"],
        "resume_placement",
        "Resume a paused placement.",
        can_conflict=False,
    ),
    ActionOperation(
        ACTIONS[RolloutKind.ROLLING, "stop"],
        "stop_placement",
        "Stop the rollout permanently; no updates start before a new rollout is started.",
    ),
    ActionOperation(
        ACTIONS[RolloutKind.ROLLING, "start"], "start_placement", "Start a rollout after a stop."
    ),
    ActionOperation(
        ACTIONS[RolloutKind.ROLLING, "unpin"], "unpin_placement", "Unpin a placement after a rollback."
    ),
    ActionOperation(
        ACTIONS[RolloutKind.ROLLING, "retry"],
        "retry_placement",
        "Retry the failed update of one cluster immediately.",
        body=RetrySerializer,
        is_edit=False,
    ),
    ActionOperation(
        ACTIONS[RolloutKind.ROLLING, "roll-back"],
        "roll_back_placement",
        "Roll back to an older resource snapshot, and pin the placement to it.",
        body=RollBackSerializer,
        path="rollback",
    ),
)


class RolloutActionViewSet(BaseViewSet):
    """Rollout controls of a placement, and its rescheduling."""

    def action_response(self, name: str, *, status: int = 200) -> Response:
        row = get_placement(name)
        run = running_rollout(row)
        document = RolloutControlsSerializer(row, context={"run": run.number if run else None}).data
        return etag_response(self.request, document, etag(row.revision), status=status)

    @documented("get_fresh_schedule", {200: RescheduleImpactSerializer})
    @action(detail=True)
    def reschedule(self, request: Request, name: str) -> Response:
        """Get the impact of rescheduling: every cluster is a candidate, present ones win ties."""
        return Response(RescheduleImpactSerializer(fresh_schedule(get_placement(name))).data)

    @documented(
        "reschedule_placement",
        {202: RolloutControlsSerializer},
        query=ConfirmQuery,
        is_edit=True,
        has_tag=True,
        problems=(409,),
    )
    @reschedule.mapping.post
    def begin_reschedule(self, request: Request, name: str) -> Response:
        """Reschedule a placement under the same policy; the changes roll out.

        Refused (409) without `confirm` where no cluster would be selected.
        """
        confirmed = "confirm" in query_params(request, ConfirmQuery)
        reschedule(name, **actor(request), expected=expected_revision(request), confirmed=confirmed)
        return self.action_response(name, status=202)


add_actions(RolloutActionViewSet, OPERATIONS, responses={200: RolloutControlsSerializer}, has_tag=True)
