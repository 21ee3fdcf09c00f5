"""The MemberCluster manifest, and the scheduler's `Cluster` made from it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, ClassVar, TypeAlias

from pydantic import BeforeValidator, Field, ValidationError

from clusters.fleet import (
    ELIGIBLE,
    NO_SCHEDULE,
    NO_USAGE,
    Cluster,
    ResourceUsage,
    Taint,
)
from clusters.health import FIVE_MINUTES, AgentReport, Limits, judge, leaving, with_age
from fleetui.apimachinery.errors import ErrorDetail
from fleetui.apimachinery.fields import (
    WRITTEN_BY_A_HUB,
    FilledText,
    Flag,
    LabelKey,
    LabelValue,
    Moment,
    ObjectMeta,
    Text,
    api_version,
    integer,
    list_of,
    literal,
    one_of,
    quantities,
)
from fleetui.apimachinery.kinds import MEMBER_KIND, MEMBER_VERSIONS, refuse_other_kinds
from fleetui.apimachinery.model import (
    DEFAULT_SEMANTICS,
    ManifestModel,
    Raw,
    duplicate_problems,
    failure,
    items_at,
    mapping_at,
    parse_manifest,
    problems_in,
    wrong_type,
)

MOST_TAINTS = 100


class ValidationMode(StrEnum):
    """Whether leaving the fleet is refused while the cluster still exports services."""

    STRICT = "Strict"
    SKIP = "Skip"


class Identity(ManifestModel):
    """The RBAC subject of the member agent on the hub."""

    kind: FilledText
    name: FilledText
    namespace: Text = ""
    api_group: Text = ""


class MemberTaint(ManifestModel):
    key: LabelKey
    value: LabelValue = ""
    effect: Annotated[str, literal(NO_SCHEDULE)]


class DeleteOptions(ManifestModel):
    validation_mode: Annotated[ValidationMode, one_of(ValidationMode)] = (
        ValidationMode.STRICT
    )


class MemberSpec(ManifestModel):
    """The part of a member cluster that an administrator sets (`rules/lifecycle.md#member-clusters`)."""

    identity: Identity
    heartbeat_period_seconds: Annotated[int, integer(1, 600)] = 60
    taints: Annotated[tuple[MemberTaint, ...], list_of(high=MOST_TAINTS)] = ()
    delete_options: DeleteOptions = Field(default_factory=DeleteOptions)

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """Taints are unique."""
        taints = enumerate(map(mapping_at, items_at(raw, "taints")[:MOST_TAINTS]))
        entries = (
            (
                ("taints", index),
                tuple(str(taint.get(key) or "") for key in ("key", "value", "effect")),
            )
            for index, taint in taints
        )
        return duplicate_problems(entries, "unique taints")


class Reported(ManifestModel):
    """Part of a status: a newer hub may write more into it than is known here."""

    allow_unknown: ClassVar[bool] = True


class AgentCondition(Reported):
    type: FilledText
    status: FilledText
    last_transition_time: Moment | None = None


class AgentStatus(Reported):
    """The last report of one agent of a cluster."""

    type: FilledText
    conditions: Annotated[tuple[AgentCondition, ...], list_of()] = ()
    last_received_heartbeat: Moment | None = None

    def condition(self, kind: str) -> AgentCondition | None:
        return next(
            (condition for condition in self.conditions if condition.type == kind), None
        )


def _property_values(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise failure([wrong_type(value, "an object of properties")])
    odd = [name for name, item in value.items() if not isinstance(item, Mapping)]
    if odd:
        raise failure(
            wrong_type(value[name], "an object with a value").under(name)
            for name in odd
        )
    try:
        return quantities({name: item.get("value") for name, item in value.items()})
    except ValidationError as error:
        raise failure(
            replace(problem, keys=(*problem.keys, "value"))
            for problem in problems_in(error)
        ) from error


Quantities: TypeAlias = Annotated[dict[str, str], BeforeValidator(quantities)]


class ReportedUsage(Reported):
    """Resources of a cluster by name, as its agent measured them."""

    capacity: Quantities = Field(default_factory=dict)
    allocatable: Quantities = Field(default_factory=dict)
    available: Quantities = Field(default_factory=dict)


class MemberStatus(Reported):
    """The parts of a MemberCluster's status that scheduling reads; properties are name and value."""

    agent_status: Annotated[tuple[AgentStatus, ...], list_of()] = ()
    properties: Annotated[dict[str, str], BeforeValidator(_property_values)] = Field(
        default_factory=dict
    )
    resource_usage: ReportedUsage | None = None


class MemberMeta(ObjectMeta):
    """Metadata, and since when the cluster is leaving the fleet."""

    ignored_fields: ClassVar[frozenset[str]] = WRITTEN_BY_A_HUB - {"deletionTimestamp"}

    deletion_timestamp: Moment | None = None


class MemberClusterManifest(ManifestModel):
    api_version: Annotated[str, api_version(*MEMBER_VERSIONS)]
    kind: Annotated[str, literal(MEMBER_KIND)]
    metadata: MemberMeta
    spec: MemberSpec
    status: MemberStatus | None = None

    @property
    def newest_heartbeat(self) -> datetime | None:
        agent = self._agent
        return agent.last_received_heartbeat if agent else None

    def cluster(
        self,
        *,
        now: datetime,
        heartbeat_limit: timedelta = FIVE_MINUTES,
        unhealthy_limit: timedelta = FIVE_MINUTES,
        strict_health: bool = False,
    ) -> Cluster:
        """Return the cluster as the scheduler reads it; without status eligible, unless health is strict."""
        status = self.status or MemberStatus()
        usage = status.resource_usage
        if self.metadata.deletion_timestamp:
            eligibility = leaving()
        elif self.status is None and not strict_health:
            eligibility = ELIGIBLE
        else:
            limits = Limits(heartbeat_limit, unhealthy_limit)
            eligibility = with_age(
                judge(self.report, now=now, limits=limits), self.report, now=now
            )
        return Cluster(
            name=self.metadata.name,
            labels=self.metadata.labels,
            taints=tuple(
                Taint(taint.key, taint.value, taint.effect)
                for taint in self.spec.taints
            ),
            properties=status.properties,
            usage=ResourceUsage(usage.capacity, usage.allocatable, usage.available)
            if usage
            else NO_USAGE,
            eligibility=eligibility,
        )

    @property
    def report(self) -> AgentReport | None:
        """Return the latest report of the member agent; None when there is no agent yet."""
        agent = self._agent
        if agent is None:
            return None
        joined, healthy = agent.condition("Joined"), agent.condition("Healthy")
        return AgentReport(
            heartbeat=agent.last_received_heartbeat,
            joined=joined.status if joined else None,
            healthy=healthy.status if healthy else None,
            healthy_since=healthy.last_transition_time if healthy else None,
        )

    @property
    def _agent(self) -> AgentStatus | None:
        agents = self.status.agent_status if self.status else ()
        return next((agent for agent in agents if agent.type == "MemberAgent"), None)


class Heartbeat(ManifestModel):
    """A report of the agent of a cluster: its health, and measured values if it has any."""

    healthy: Flag
    properties: Quantities | None = None
    usage: ReportedUsage | None = None


def parse_heartbeat(document: object) -> Heartbeat:
    """Parse a heartbeat. Raise InvalidManifest."""
    return parse_manifest(Heartbeat, document, semantics=DEFAULT_SEMANTICS, path="")


def parse_member(document: object) -> MemberClusterManifest:
    """Parse a MemberCluster document. Raise InvalidManifest."""
    refuse_other_kinds(document, MEMBER_KIND)
    return parse_manifest(
        MemberClusterManifest, document, semantics=DEFAULT_SEMANTICS, path=""
    )


def newest_heartbeat_of(members: Iterable[MemberClusterManifest]) -> datetime | None:
    """Return the latest heartbeat of several clusters, by which to judge the freshness of an old export."""
    heartbeats = (member.newest_heartbeat for member in members)
    return max((moment for moment in heartbeats if moment), default=None)
