"""Fields of requests and responses: the base classes, manifests and their parts, and rows of lists."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property, partial
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from drf_spectacular.utils import extend_schema_field, inline_serializer
from rest_framework import serializers

from clusters.drivers.base import ObjectRef
from clusters.filters import ClusterListState
from clusters.fleet import EligibilityKind
from clusters.models import MemberCluster
from clusters.observation import silence_of, unhealthy_since
from clusters.operations.edit import not_ready_at
from fleetui.apimachinery.errors import ManifestWarning
from fleetui.models import AuditEventType, Event
from placements.api.manifest_schema import ObjectCondition, component, ref
from placements.engine.limits import ExceededLimit
from placements.engine.loss import PlacementImpact, PlacementLoss
from placements.engine.status import HealthCounts, PlacementHealth
from placements.explain.diff import unified_text
from placements.manifests.policy import PlacementPolicy
from placements.models import (
    Binding,
    Decision,
    Placement,
    PolicySnapshot,
    Resource,
    ResourceSnapshot,
)
from placements.models.closed_sets import values_of
from placements.services.apply import Result

VERDICTS = ("", *map(str, EligibilityKind))
LABELS = component("Labels")
LABEL_PATCH = component("LabelPatch")
ANY_OBJECT = component("AnyObject")


class CamelCaseSerializer(serializers.Serializer[Any]):
    """Serialize fields under camelCase names; keys inside a value, such as labels, stay as they are."""

    def get_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name, field in super().get_fields().items():
            camel_case = re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
            if isinstance(field, serializers.SerializerMethodField):
                field.method_name = f"get_{name}"
            elif field.source is None and camel_case != name:
                field.source = name
            fields[camel_case] = field
        return fields


def names(**options: Any) -> serializers.ListField:
    return serializers.ListField(child=serializers.CharField(), **options)


def enum(values: Iterable[str], **options: Any) -> serializers.ChoiceField:
    """Return a field with a closed set of values; of responses, where nothing checks them."""
    return serializers.ChoiceField([str(value) for value in values], **options)


_KINDS: dict[Any, Callable[..., serializers.Field[Any, Any, Any, Any]]] = {
    str: serializers.CharField,
    int: serializers.IntegerField,
    bool: serializers.BooleanField,
    float: serializers.FloatField,
    datetime: serializers.DateTimeField,
    tuple[str, ...]: names,
}


def _field_for(kind: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the field of a type, and its options; a type that is not known is a closed set."""
    options = {}
    if NoneType in get_args(kind):
        [kind] = {*get_args(kind)} - {NoneType}
        options["allow_null"] = True
    return _KINDS.get(kind, partial(enum, kind)), options


class RowSerializer(CamelCaseSerializer, serializers.ModelSerializer[Any]):
    """Describes what is in a row; what may be written into it is up to the operations.

    A column with a closed set of values is published with these.
    """

    def build_standard_field(self, field_name: str, model_field: Any) -> Any:
        field, options = super().build_standard_field(field_name, model_field)
        known: dict[str, Any] = (
            {"allow_null": True} if options.get("allow_null") else {}
        )
        closed = [value for value, _ in model_field.choices or ()]
        closed = closed or values_of(self.Meta.model, model_field.name)
        if not closed:
            return serializers.CharField if model_field.choices else field, known
        blank = [""] if model_field.blank and "" not in closed else []
        return serializers.ChoiceField, known | {"choices": [*blank, *closed]}

    def build_property_field(self, field_name: str, model_class: Any) -> Any:
        """Return the field of a property by the type that it returns."""
        member = getattr(model_class, field_name)
        return _field_for(get_type_hints(member.fget)["return"])

    def get_uniqueness_extra_kwargs(
        self,
        field_names: Any,
        declared_fields: Any,
        extra_kwargs: Any,
    ) -> Any:
        return extra_kwargs, {}


def _manifest(name: str) -> Any:
    """Return a serializer that only names a schema; `manifest_components` has what is in it."""
    return inline_serializer(name, {"kind": serializers.CharField()})


CLUSTER_MANIFEST = _manifest("ClusterManifest")
PLACEMENT_MANIFEST = _manifest("PlacementManifest")
RESOURCE_MANIFEST = _manifest("ResourceManifest")
OVERRIDE_MANIFEST = _manifest("OverrideManifest")
BUDGET_MANIFEST = _manifest("BudgetManifest")
STRATEGY_MANIFEST = _manifest("StagedStrategyManifest")
RUN_MANIFEST = _manifest("StagedRunManifest")
APPROVAL_MANIFEST = _manifest("ApprovalManifest")


def json_field(schema: dict[str, Any]) -> type[serializers.JSONField]:
    """Return a kind of field whose values are described by a schema."""
    return extend_schema_field(schema)(
        type("SchemaField", (serializers.JSONField,), {})
    )


def map_of(values: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object whose keys are names, such as topology keys or clusters."""
    return {"type": "object", "additionalProperties": values}


AnyObject = json_field(ANY_OBJECT)
Numbers = json_field(map_of({"type": "integer"}))
Texts = json_field(map_of({"type": "string"}))
AnyValue = json_field({})
Score = json_field(
    {
        "oneOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}],
        "nullable": True,
    }
)
ConditionField = json_field({"allOf": [ref(ObjectCondition)], "nullable": True})
PolicyField = json_field(ref(PlacementPolicy))
Identities = json_field(
    {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}
)
Labels = json_field(LABELS)


class Text(serializers.CharField):
    """Text; a number is not text."""

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


def number(source: str, **options: Any) -> serializers.IntegerField:
    return serializers.IntegerField(source=source, **options)


def text(source: str, **options: Any) -> serializers.CharField:
    return serializers.CharField(source=source, **options)


Described = TypeVar("Described", bound=type[CamelCaseSerializer])


def fields_of(
    value: type,
    /,
    *attributes: str,
    within: str = "",
    sources: Mapping[str, str] | None = None,
    **help_texts: str,
) -> Callable[[Described], Described]:
    """Return a decorator that adds, for responses, a field for each attribute of a value, by its type.

    `attributes` have the order of the fields, by default that of the value; what the class declares stays.
    `within` is where the serialized object has the value; `sources` are attributes with another name.
    """
    types = get_type_hints(value)
    properties: dict[str, Any] = {
        name: getattr(member, "fget", None) or getattr(member, "func", None)
        for name, member in vars(value).items()
        if isinstance(member, property | cached_property)
    }

    def add_fields(serializer: Described) -> Described:
        fields = serializer._declared_fields  # where REST framework has them
        for name in attributes or types:
            if name in fields:
                fields[name] = fields.pop(name)
                continue
            source = (sources or {}).get(name, name)
            kind = types.get(source) or get_type_hints(properties[source])["return"]
            field, options = _field_for(kind)
            if within or source != name:
                options["source"] = ".".join(filter(None, (within, source)))
            fields[name] = field(**options, help_text=help_texts.get(name))
        return serializer

    return add_fields


class TaintSerializer(CamelCaseSerializer):
    """A taint of a cluster."""

    key = serializers.CharField()
    value = serializers.CharField(required=False)
    effect = serializers.ChoiceField(["NoSchedule"])


class UsageSerializer(CamelCaseSerializer):
    """Resources of a cluster by name."""

    capacity = Labels(required=False)
    allocatable = Labels(required=False)
    available = Labels(required=False)


class HeartbeatSerializer(CamelCaseSerializer):
    """What the agent of a cluster reports; values that are left out stay as they were."""

    healthy = serializers.BooleanField()
    properties = Labels(required=False)
    usage = UsageSerializer(required=False)


NOT_OBSERVED = (
    "Seconds since the last observation where it is too old; null while it counts."
)


UNHEALTHY = (
    "Since when it reports itself unhealthy while it can still be selected; "
    "null otherwise."
)


def silent_seconds(row: MemberCluster) -> int | None:
    silence = silence_of(row, now=datetime.now(UTC))
    return None if silence is None else int(silence.total_seconds())


class ObservedClusterSerializer(RowSerializer):
    """What a list of clusters and an observation of one have in common."""

    eligible = serializers.BooleanField(source="is_eligible")
    verdict = enum(VERDICTS, help_text="Why it cannot be selected; empty when it can.")
    not_observed_seconds = serializers.SerializerMethodField(help_text=NOT_OBSERVED)
    unhealthy_since = serializers.SerializerMethodField(help_text=UNHEALTHY)

    get_not_observed_seconds = staticmethod(silent_seconds)

    def get_unhealthy_since(self, row: MemberCluster) -> datetime | None:
        return unhealthy_since(row, now=datetime.now(UTC))


class EligibilitySerializer(ObservedClusterSerializer):
    """Whether placements can select a cluster."""

    not_ready_at = serializers.SerializerMethodField(
        help_text="When it becomes not ready if it stays as it is."
    )

    class Meta:
        model = MemberCluster
        fields = (
            "name",
            "eligible",
            "verdict",
            "reason",
            "heartbeat_at",
            "healthy_since",
            "unanswered_since",
            "not_observed_seconds",
            "unhealthy_since",
            "monitored",
            "not_ready_at",
        )
        extra_kwargs = {
            "reason": {"source": "verdict_reason"},
            "monitored": {
                "source": "is_monitored",
                "help_text": "Whether a driver or agent reports.",
            },
        }

    def get_not_ready_at(self, row: MemberCluster) -> datetime | None:
        return not_ready_at(row, now=datetime.now(UTC))


@fields_of(ManifestWarning)
class WarningSerializer(CamelCaseSerializer):
    """A warning about a document that was accepted."""


@fields_of(
    Result,
    "kind",
    "name",
    "object_kind",
    "object_name",
    "did",
    "message",
    "warnings",
    kind="Such as `cluster`, `placement` or `resource`.",
    object_kind="The kind of the manifest, such as `ConfigMap`.",
    object_name="With its namespace, if it has one.",
    message="The reason, of an eviction.",
)
class AppliedDocumentSerializer(CamelCaseSerializer):
    """The result for one document."""

    did = enum(
        [
            "created",
            "joined",
            "changed",
            "unchanged",
            "executed",
            "not-executed",
            "invalid",
        ],
        help_text="`executed`, `not-executed` and `invalid` are of evictions.",
    )
    warnings = WarningSerializer(many=True)


@fields_of(
    ExceededLimit,
    "topology_key",
    "max_skew",
    "skew",
    "fullest_domain",
    "fullest_count",
    "emptiest_domain",
    "emptiest_count",
    emptiest_domain="Empty while there are fewer domains than minDomains.",
)
class ExceededLimitSerializer(CamelCaseSerializer):
    """A `DoNotSchedule` constraint that what is placed exceeds."""


class JoiningSerializer(CamelCaseSerializer):
    """A cluster that would be selected, with the scores of its round."""

    cluster = serializers.CharField()
    topology_spread_score = Score(allow_null=True)
    affinity_score = serializers.FloatField(allow_null=True)


@fields_of(
    PlacementLoss,
    "placement",
    "fate",
    "was_fulfilled",
    "is_fulfilled",
    "joins",
    "leaves",
    "scores",
    "placed_before",
    "placed_after",
    "objects_out_of_service",
    "exceeded_limits",
    "message",
    objects_out_of_service="Those that no cluster has afterwards.",
)
class PlacementLossSerializer(CamelCaseSerializer):
    """What a change of the fleet, or its next decision, does to a placement."""

    fate = serializers.ChoiceField(list(PlacementImpact), source="impact")
    scores = JoiningSerializer(
        many=True, help_text="Of `joins`, in the order of the rounds."
    )
    exceeded_limits = ExceededLimitSerializer(many=True)


class ObjectChangeSerializer(CamelCaseSerializer):
    """How a dry run would change one object; values of Secrets are hidden."""

    kind = serializers.CharField()
    name = serializers.CharField()
    verb = serializers.CharField()
    diff = serializers.SerializerMethodField(
        help_text="A unified diff of the manifests as YAML."
    )

    def get_diff(self, change: Event) -> str:
        return unified_text(change)


class DeletedSerializer(CamelCaseSerializer):
    """What was deleted, by kind and name."""

    items = names()


class ClusterSerializer(ObservedClusterSerializer):
    """A cluster in a list; its manifest has everything else."""

    labels = serializers.SerializerMethodField()
    taints = serializers.SerializerMethodField()
    placements = serializers.SerializerMethodField(
        help_text="The number of its placements."
    )
    outdated_placements = serializers.SerializerMethodField(
        help_text="The number of its placements that a new decision would not select it for."
    )
    state = serializers.ChoiceField(
        [str(cluster_list_state) for cluster_list_state in ClusterListState],
        source="how",
        help_text="Its status; each cluster has exactly one.",
    )

    def get_fields(self) -> dict[str, Any]:
        insecure = serializers.BooleanField(
            source="has_insecure_tls",
            help_text="The connection to its API server does not verify TLS.",
        )
        return {**super().get_fields(), "insecureTLS": insecure}

    class Meta:
        model = MemberCluster
        fields = (
            "name",
            "uid",
            "revision",
            "membership",
            "eligible",
            "verdict",
            "verdict_reason",
            "verdict_since",
            "joined_at",
            "heartbeat_at",
            "not_observed_seconds",
            "unhealthy_since",
            "driver",
            "is_demo",
            "labels",
            "taints",
            "cordoned",
            "placements",
            "outdated_placements",
            "state",
        )
        extra_kwargs = {
            "cordoned": {"source": "is_cordoned", "read_only": True},
            "joined_at": {
                "source": "joined_since",
                "help_text": "Null while it is joining.",
            },
        }

    def get_labels(self, row: MemberCluster) -> dict[str, str]:
        return row.document["metadata"].get("labels") or {}

    def get_taints(self, row: MemberCluster) -> list[dict[str, str]]:
        return row.document["spec"].get("taints") or []

    def get_placements(self, row: MemberCluster) -> int:
        return int(self.context["placements"].get(row.name, 0))

    def get_outdated_placements(self, row: MemberCluster) -> int:
        return int(self.context["outdated"].get(row.name, 0))


class ResourceSerializer(RowSerializer):
    """A resource on the hub, in a list."""

    labels = Labels()
    size = serializers.IntegerField(
        read_only=True, help_text="Bytes of the manifest as stored."
    )

    class Meta:
        model = Resource
        fields = (
            "group",
            "version",
            "kind",
            "namespace",
            "name",
            "uid",
            "labels",
            "size",
            "revision",
            "created_at",
            "updated_at",
            "is_demo",
        )


@fields_of(
    HealthCounts,
    "wanted",
    "scheduled",
    "rollout_started",
    "applied",
    "available",
    "pending",
    "in_progress",
    "not_available",
    "unreachable",
    "not_observed",
    "not_monitored",
    "not_ready",
    "failed",
    "differs",
    sources={"rollout_started": "started", "in_progress": "in_flight"},
    pending="Nothing is started there yet.",
    in_progress="Being applied, or not available yet.",
    not_available="Applied, and not available for too long.",
    not_observed="Their last observation is too old.",
    not_monitored="Without a driver nothing is applied.",
    not_ready="Applied, on a reachable cluster that is unhealthy or cannot be selected.",
    differs="ReportDiff found differences there, and applied nothing.",
)
class HealthCountsSerializer(CamelCaseSerializer):
    """How many clusters are wanted and meet each condition; the states, from `available` on, sum up."""


@fields_of(
    PlacementHealth,
    "level",
    "word",
    "message",
    "counts",
    word="The status word of the pages.",
)
class HealthSerializer(CamelCaseSerializer):
    """The status of a placement: the worst of Scheduled, RolloutStarted, Applied and Available."""

    message = serializers.CharField(help_text="What makes it so; may be empty.")
    counts = HealthCountsSerializer()


class PlacementSerializer(RowSerializer):
    """A placement in a list; its manifest has everything else."""

    type = text("placement_type")
    revision_number = serializers.IntegerField(
        help_text="The revision as pages name it; `revision` also counts pauses."
    )
    health = serializers.SerializerMethodField()
    decision = serializers.SerializerMethodField()

    class Meta:
        model = Placement
        fields = (
            "namespace",
            "name",
            "uid",
            "revision",
            "revision_number",
            "type",
            "number_of_clusters",
            "semantics",
            "fulfilled",
            "placed",
            "pending",
            "health",
            "selection_faults",
            "deleting_since",
            "created_at",
            "updated_at",
            "is_demo",
            "decision",
        )
        extra_kwargs = {
            "fulfilled": {"source": "is_fulfilled"},
            "placed": {"source": "placed_count"},
            "pending": {"source": "is_due"},
        }

    @extend_schema_field(HealthSerializer)
    def get_health(self, row: Placement) -> Any:
        return HealthSerializer(self.context["healths"][row.pk]).data

    def get_decision(self, row: Placement) -> str | None:
        latest: Decision | None = self.context["decisions"].get(row.pk)
        return latest.record.decision_id if latest else None


@fields_of(ObjectRef, "group", "kind", "namespace", "name", "messages")
class ObjectWarningsSerializer(CamelCaseSerializer):
    """An object that an API server warned of, with its messages."""

    messages = serializers.ListField(child=serializers.CharField())


class BindingSerializer(RowSerializer):
    """A placement on one cluster."""

    placement = text("placement.full_name")
    policy_snapshot = number("policy_snapshot.number", allow_null=True, read_only=True)
    resource_snapshot = number(
        "resource_snapshot.number", allow_null=True, read_only=True
    )
    decision = text("decision.record.decision_id", allow_null=True, read_only=True)
    failed_objects = AnyValue(
        help_text="The objects that were rejected, or are not available yet."
    )
    failed_override = AnyValue(
        allow_null=True, help_text="The override that did not apply, with its path."
    )
    is_busy = serializers.SerializerMethodField(
        help_text="Whether an apply needs several calls."
    )
    drifts = serializers.SerializerMethodField(
        help_text="The number of objects that have drifted."
    )
    warnings = ObjectWarningsSerializer(
        many=True,
        read_only=True,
        help_text="What the API server warned of at an apply or a removal.",
    )

    class Meta:
        model = Binding
        fields = (
            "placement",
            "cluster",
            "state",
            "previous_state",
            "policy_snapshot",
            "resource_snapshot",
            "decision",
            "topology_spread_score",
            "affinity_score",
            "picked_at",
            "phase",
            "failure",
            "failed_objects",
            "failed_override",
            "message",
            "unavailable_code",
            "is_busy",
            "objects_done",
            "contested_since",
            "drifts",
            "warnings",
        )
        extra_kwargs = {
            "cluster": {"source": "cluster_name"},
            "phase": {"help_text": "The progress of the cluster."},
            "failure": {"help_text": "The kind of failure; empty without one."},
            "message": {"allow_blank": True},
            "unavailable_code": {
                "allow_blank": True,
                "help_text": "Why the last call got no answer, such as `timeout`; empty if it did.",
            },
            "contested_since": {
                "read_only": True,
                "help_text": "Since when others change the same objects repeatedly.",
            },
            "objects_done": {
                "read_only": True,
                "help_text": "Objects finished; null when not busy.",
            },
        }

    def get_is_busy(self, row: Binding) -> bool:
        return row.objects_done is not None

    def get_drifts(self, row: Binding) -> int:
        return len(row.drifted_objects)


class PolicySnapshotSerializer(RowSerializer):
    """A policy snapshot; the number of clusters is not part of it."""

    name = text("__str__")
    latest = serializers.BooleanField(source="is_latest")
    options = AnyObject()
    policy = PolicyField()

    class Meta:
        model = PolicySnapshot
        fields = (
            "name",
            "number",
            "latest",
            "semantics",
            "options",
            "policy",
            "content_hash",
            "created_at",
            "created_by",
        )


class ResourceSnapshotRowSerializer(RowSerializer):
    """A resource snapshot without the content of its resources."""

    name = text("__str__")

    class Meta:
        model = ResourceSnapshot
        fields: tuple[str, ...] = (
            "name",
            "number",
            "latest",
            "objects",
            "content_hash",
            "created_at",
            "created_by",
        )
        extra_kwargs = {
            "latest": {"source": "is_latest"},
            "objects": {"source": "objects_count"},
        }


class ResourceSnapshotSerializer(ResourceSnapshotRowSerializer):
    """A resource snapshot with one part of its content; large snapshots have several parts."""

    identities = Identities(
        help_text="apiVersion, kind, namespace and name of every object."
    )
    part = serializers.IntegerField()
    parts = serializers.IntegerField()
    manifests = serializers.ListField(child=AnyObject())

    class Meta(ResourceSnapshotRowSerializer.Meta):
        fields = (
            *ResourceSnapshotRowSerializer.Meta.fields,
            "identities",
            "part",
            "parts",
            "manifests",
        )


class DecisionRowSerializer(RowSerializer):
    """One scheduling cycle of one placement."""

    id = text("record.decision_id")
    joins = names(help_text="The first of them.")
    leaves = names(help_text="The first of them, evicted clusters included.")

    class Meta:
        model = Decision
        fields = (
            "id",
            "placement",
            "number",
            "kind",
            "fulfilled",
            "policy_snapshot",
            "wanted",
            "picked",
            "kept",
            "unscheduled",
            "joins",
            "leaves",
            "leaves_count",
            "milliseconds",
            "because",
            "asked_by",
            "created_at",
        )
        extra_kwargs = {
            "placement": {"source": "placement_name"},
            "fulfilled": {"source": "is_fulfilled"},
            "policy_snapshot": {"source": "policy_number"},
            "picked": {"source": "picked_count"},
            "because": {"source": "trigger"},
            "asked_by": {"source": "triggered_by"},
            "kept": {"source": "kept_count"},
            "unscheduled": {"source": "unscheduled_count"},
        }


class EventRowSerializer(RowSerializer):
    """An event: who did what to an object."""

    type = enum(AuditEventType, read_only=True)

    class Meta:
        model = Event
        fields: tuple[str, ...] = (
            "id",
            "at",
            "type",
            "by",
            "what",
            "kind",
            "name",
            "revision",
        )
        extra_kwargs = {
            "by": {"source": "actor_name"},
            "what": {"source": "verb"},
        }


class EventSerializer(EventRowSerializer):
    """An event with the object before and after."""

    class Meta(EventRowSerializer.Meta):
        fields = (*EventRowSerializer.Meta.fields, "before", "after")
