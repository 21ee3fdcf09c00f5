"""Query parameters of the operations: what they accept, and how the schema describes them."""

from typing import Any

from rest_framework import serializers

from clusters.drivers.base import KUBERNETES
from clusters.drivers.kubernetes.check import FAILED_CHECK, OTHER_CLUSTER
from clusters.drivers.registry import DRIVERS
from clusters.filters import ClusterFilterState
from clusters.fleet import EligibilityKind
from clusters.models import HubWriteState
from fleetui.access.audit import VERBS
from fleetui.apimachinery.model import Semantics
from fleetui.models import AuditEventType
from placements.engine.checks.examination import ALIASES, RULES
from placements.engine.checks.findings import Severity
from placements.engine.loss import LossVariant
from placements.engine.scheduling.outcome import Outcome
from placements.explain.cluster_objects import DifferenceType
from placements.manifests.policy import PlacementType
from placements.models import Eviction, ProblemKind, Rollout
from placements.services.filters import (
    EVENT_KINDS,
    PLACEMENT_ORDERS,
    RESOURCE_ORDERS,
    PlacementFilterState,
)
from placements.services.fleet.queries import ORDERS
from placements.services.rescheduling import FEWEST
from placements.services.results import CONFIRMATION

_LONGEST = 400
_LONGEST_CURSOR = 2000
Query = type[serializers.Serializer[object]]


def _text(**options: Any) -> serializers.CharField:
    return serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=_LONGEST,
        trim_whitespace=False,
        **options,
    )


def choice(values: Any, **options: Any) -> serializers.ChoiceField:
    words = [str(value) for value in values]
    message = f'"{{input}}" is not a valid choice (allowed: {", ".join(words)}).'
    return serializers.ChoiceField(
        words, required=False, error_messages={"invalid_choice": message}, **options
    )


def _number(default: int, least: int, most: int) -> serializers.IntegerField:
    return serializers.IntegerField(
        required=False, default=default, min_value=least, max_value=most
    )


def _switch(*, default: str = "false", **options: Any) -> serializers.ChoiceField:
    return choice(["true", "false"], default=default, **options)


def query_of(*bases: Query, **fields: serializers.Field[Any, Any, Any, Any]) -> Query:
    """Return the parameters of an operation: those of the bases, and these."""
    return type("Query", bases or (serializers.Serializer,), fields)


def _names(**options: Any) -> serializers.ListField:
    return serializers.ListField(
        child=serializers.CharField(max_length=_LONGEST),
        required=False,
        default=list,
        max_length=50,
        **options,
    )


NoQuery = query_of()
ConfirmQuery = query_of(
    confirm=choice(
        [CONFIRMATION],
        help_text="Required after a 409 `confirmation-needed`: the change unschedules everything.",
    )
)
ConnectionQuery = query_of(
    confirm=choice(
        [FAILED_CHECK],
        help_text="Required after a 409 `confirmation-needed`: the check of the connection fails.",
    )
)
JoinQuery = query_of(
    joins=_switch(help_text="The cluster is not in the fleet yet, and joins it.")
)
ClusterConnectionQuery = query_of(
    JoinQuery,
    confirm=choice(
        [FAILED_CHECK, OTHER_CLUSTER],
        help_text="Required after a 409 `confirmation-needed`, with its `confirm`: the check fails, or it is"
        " another cluster than before (then also what else fails is confirmed).",
    ),
)
PrepareQuery = query_of(
    pods=_switch(default="true", help_text="List pods, for the available capacity."),
    clusterRoles=_switch(help_text="ClusterRoles and ClusterRoleBindings."),
    definitions=_switch(help_text="CustomResourceDefinitions."),
    group=_names(help_text="All kinds of an API group, such as `example.com`."),
    recover=_switch(
        help_text="List the chosen kinds except Secrets, to recover a lost inventory."
    ),
    everything=_switch(help_text="All kinds: as much as a cluster administrator."),
)
DryRunQuery = query_of(
    dryRun=choice(
        ["All"],
        help_text="Validate everything, respond as if it was saved, and write nothing.",
    )
)
ImportQuery = query_of(
    DryRunQuery,
    ConnectionQuery,
    context=_names(help_text="Only these contexts of a kubeconfig; by default all."),
    rename=_names(
        help_text="`OLD=NEW`: another name for a cluster; without NEW it is left out."
    ),
    driver=choice(
        sorted(set(DRIVERS) - {KUBERNETES}),
        help_text="Monitor the clusters with this driver; by default with none.",
    ),
)
_FORCE = _text(
    help_text="Paths, separated by commas, that are taken from other field managers of a live hub."
)
PutObjectQuery = query_of(DryRunQuery, force=_FORCE)
PutPlacementQuery = query_of(PutObjectQuery, ConfirmQuery)
DeleteQuery = query_of(
    dryRun=choice(["All"], help_text="Of a live hub: try it and delete nothing.")
)
ApplyQuery = query_of(
    DryRunQuery,
    ConfirmQuery,
    strict=choice(
        ["true", "false"],
        help_text="`true`: refuse policies and clusters of other systems.",
    ),
)
ChecksQuery = query_of(
    q=_text(help_text="Part of the name of the placement or of the message."),
    placement=_text(help_text="Findings of this placement only."),
    severity=choice(Severity),
    rule=choice(
        [*RULES, *ALIASES],
        help_text="Findings of this rule or code of a warning, or with one of it as a consequence.",
    ),
)
LimitQuery = query_of(limit=_number(100, 1, 500))
PageQuery = query_of(
    after=serializers.CharField(
        required=False,
        max_length=_LONGEST_CURSOR,
        help_text="The end of the previous page, from its `next`.",
    ),
    limit=_number(100, 1, 500),
)
NumberedPageQuery = query_of(after=_number(0, 0, 10**9), limit=_number(20, 1, 100))
AccessLogQuery = query_of(
    PageQuery,
    verb=choice(VERBS, help_text="What was done."),
    by=_text(help_text="The user who did it."),
    q=_text(help_text="Part of the object."),
    address=_text(help_text="The address that it came from."),
)
HubWriteQuery = query_of(
    PageQuery,
    state=choice(HubWriteState.values),
    kind=_text(help_text="The kind of the object, such as MemberCluster."),
    object=_text(help_text="The name of the object."),
    by=_text(help_text="The user who requested it."),
)
HubActionQuery = query_of(
    kind=_text(help_text="The kind of an object, such as ResourcePlacement."),
    namespace=_text(help_text="The namespace of the object."),
    name=_text(help_text="The name of the object."),
)
SendWriteQuery = PutPlacementQuery
ClusterQuery = query_of(
    PageQuery,
    q=_text(help_text="Part of the name."),
    label=serializers.ListField(
        child=serializers.CharField(max_length=_LONGEST),
        required=False,
        default=list,
        max_length=20,
        help_text="`key:value`, or `key` for any value; all of them have to match.",
    ),
    state=choice(ClusterFilterState),
    verdict=choice(EligibilityKind),
    order=choice(ORDERS, default="name"),
)
PlacementQuery = query_of(
    PageQuery,
    q=_text(help_text="Part of the name."),
    state=choice(PlacementFilterState),
    type=choice(PlacementType),
    semantics=choice(Semantics),
    cluster=_text(help_text="A cluster that has the placement."),
    namespace=_text(help_text="The namespace of the placement."),
    survives=_text(help_text="A level of the resilience report, such as `region`."),
    order=choice(PLACEMENT_ORDERS, default="name"),
)
DriftQuery = query_of(
    PageQuery,
    cluster=_text(help_text="The name of a cluster."),
    kind=_text(help_text="The kind of the objects."),
    path=_text(
        help_text="A JSON pointer, such as `/spec/replicas`: this field, or one below or above it."
    ),
    type=choice(
        DifferenceType,
        help_text="`Drift`: changed after the apply; `Diff`: before a takeover, or reported.",
    ),
)
ResourceQuery = query_of(
    PageQuery,
    kind=_text(),
    namespace=_text(),
    q=_text(help_text="Part of the name."),
    order=choice(RESOURCE_ORDERS, default="name"),
)
HistoryQuery = query_of(
    PageQuery,
    unchanged=choice(
        ("true", "false"),
        default="false",
        help_text="Whether decisions that changed no cluster are listed.",
    ),
)
DecisionQuery = query_of(PageQuery, placement=_text())
RemovalQuery = query_of(cluster=_text(help_text="The name of a cluster."))
ApprovalQuery = query_of(
    PageQuery,
    run=_text(help_text="The full name of the run."),
    pending=choice(
        ["true", "false"], help_text="Whether the stage is not approved yet."
    ),
)
EventQuery = query_of(
    PageQuery,
    kind=choice(EVENT_KINDS),
    name=_text(),
    q=_text(help_text="Part of the name."),
    by=_text(help_text="Part of the name of a user, or of `system`."),
    type=choice(AuditEventType),
    reason=_text(
        help_text="What was done, such as `changed`, or with the kind: `ClusterChanged`."
    ),
    cluster=_text(
        help_text="A cluster, also with the evictions and retries of placements there."
    ),
    request=_text(
        help_text="The id that the events of one change of many objects share."
    ),
)
OutcomeQuery = query_of(
    outcome=choice(Outcome),
    after=_text(help_text="The name of the last cluster of the previous page."),
    limit=_number(100, 1, 500),
)
PartQuery = query_of(part=_number(0, 0, 10**6))
StagedRunQuery = query_of(
    PageQuery,
    placement=_text(help_text="The name of the placement."),
    active=serializers.BooleanField(required=False, default=None, allow_null=True),
)
RolloutQuery = query_of(
    PageQuery,
    q=_text(help_text="Part of the name of the placement."),
    placement=_text(),
    state=choice(Rollout.State),
)
OverrideQuery = query_of(
    PageQuery,
    q=_text(help_text="Part of the name."),
    placement=_text(help_text="Overrides that may change this placement."),
)
EvictionQuery = query_of(
    PageQuery,
    q=_text(help_text="Part of the name of the placement."),
    placement=_text(help_text="Its full name."),
    outcome=choice(Eviction.Outcome.values),
)
InboxQuery = query_of(
    kind=choice(ProblemKind.values),
    hub=_text(help_text="The name of a hub; `local` is the hub of the console."),
)
SearchQuery = query_of(
    q=serializers.CharField(
        required=False, default="", allow_blank=True, max_length=_LONGEST
    )
)
MovesQuery = query_of(
    moves=_text(
        help_text=f"The maximum of moves, or `{FEWEST}` that repair all hard limits; a move is one cluster"
        " that leaves. Without it, all at once."
    )
)
RescheduleQuery = query_of(ConfirmQuery, MovesQuery)
ResilienceQuery = query_of(
    variant=choice(LossVariant),
    level=_text(help_text="`cluster` or a topology key."),
    limit=_number(100, 1, 10_000),
)
