"""The MemberCluster document, and the scheduler's `Cluster` made from it.

Rules: `spec/lifecycle.md` B.1.6. The status is a hub's own writing: it is read leniently, and only
where it matters. Eligibility follows `spec/scheduler.md` 2; nothing here knows what time it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, ClassVar, TypeAlias

from pydantic import BeforeValidator, Field, ValidationError

from placements.scheduling.agent import FIVE_MINUTES, AgentReport, Limits, judge, leaving
from placements.scheduling.door.case_clusters import parse_case_cluster, parse_clusters
from placements.scheduling.door.fields import (
    FilledText,
    Flag,
    LabelKey,
    LabelValue,
    Moment,
    Text,
    api_version,
    listed,
    one_of,
    quantities,
    whole,
    word_of,
)
from placements.scheduling.door.kinds import MEMBER_KIND, MEMBER_VERSIONS, refuse_other_kinds
from placements.scheduling.door.metadata import WRITTEN_BY_A_HUB, ObjectMeta
from placements.scheduling.door.parsing import (
    Parsed,
    Raw,
    failure,
    items_at,
    mapping_at,
    parse_model,
    problems_in,
    wrong_type,
)
from placements.scheduling.faults import Problem
from placements.scheduling.fleet import (
    ELIGIBLE,
    NO_SCHEDULE,
    NO_USAGE,
    Cluster,
    Eligibility,
    ResourceUsage,
    Taint,
)
from placements.scheduling.semantics import DEFAULT_SEMANTICS

__all__ = [
    "FIVE_MINUTES",
    "MemberCluster",
    "newest_heartbeat_of",
    "parse_case_cluster",
    "parse_clusters",
    "parse_heartbeat",
    "parse_member",
]

MOST_TAINTS = 100
_AGENT = "MemberAgent"


class ValidationMode(StrEnum):
    """Whether leaving the fleet is refused while the cluster still exports services."""

    STRICT = "Strict"
    SKIP = "Skip"


class Identity(Parsed):
    """Who the member agent is on the hub (an RBAC subject)."""

    noun: ClassVar[str] = "member identity"

    kind: FilledText
    name: FilledText
    namespace: Text = ""
    api_group: Text = ""


class MemberTaint(Parsed):
    """A taint as a MemberCluster states it."""

    noun: ClassVar[str] = "taint"

    key: LabelKey
    value: LabelValue = ""
    effect: Annotated[str, word_of(NO_SCHEDULE)]


class DeleteOptions(Parsed):
    """How leaving the fleet is checked."""

    noun: ClassVar[str] = "list of delete options"

    validation_mode: Annotated[ValidationMode, one_of(ValidationMode)] = ValidationMode.STRICT


class MemberSpec(Parsed):
    """What an administrator says of a cluster (lifecycle B.1.6)."""

    noun: ClassVar[str] = "member cluster's spec"

    identity: Identity
    heartbeat_period_seconds: Annotated[int, whole(1, 600)] = 60
    taints: Annotated[tuple[MemberTaint, ...], listed(high=MOST_TAINTS)] = ()
    delete_options: DeleteOptions = Field(default_factory=DeleteOptions)

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """No taint stands twice."""
        seen: set[tuple[str, ...]] = set()
        for index, item in enumerate(items_at(raw, "taints")[:MOST_TAINTS]):
            taint = mapping_at(item)
            entry = tuple(str(taint.get(key) or "") for key in ("key", "value", "effect"))
            if entry in seen:
                yield Problem(("taints", index), "duplicate", "repeats an entry above", "each taint once")
            seen.add(entry)


class Reported(Parsed):
    """Part of a status: a newer hub may write more into it than is known here."""

    takes_unknown: ClassVar[bool] = True


class AgentCondition(Reported):
    """What a member agent says of one aspect of itself."""

    type: FilledText
    status: FilledText
    last_transition_time: Moment | None = None


class AgentStatus(Reported):
    """The last report of one agent of a cluster."""

    type: FilledText
    conditions: Annotated[tuple[AgentCondition, ...], listed()] = ()
    last_received_heartbeat: Moment | None = None

    def condition(self, kind: str) -> AgentCondition | None:
        """Give the condition of this type, if the agent reports it."""
        return next((each for each in self.conditions if each.type == kind), None)


def _property_values(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise failure([wrong_type(value, "an object of properties")])
    odd = [name for name, item in value.items() if not isinstance(item, Mapping)]
    if odd:
        raise failure(wrong_type(value[name], "an object with a value").under(name) for name in odd)
    try:
        return quantities({name: item.get("value") for name, item in value.items()})
    except ValidationError as error:
        raise failure(_inside_value(problem) for problem in problems_in(error)) from error


def _inside_value(problem: Problem) -> Problem:
    return replace(problem, keys=(*problem.keys, "value"))


Quantities: TypeAlias = Annotated[dict[str, str], BeforeValidator(quantities)]


class ReportedUsage(Reported):
    """Resources of a cluster by name, as its agent measured them."""

    capacity: Quantities = Field(default_factory=dict)
    allocatable: Quantities = Field(default_factory=dict)
    available: Quantities = Field(default_factory=dict)


class MemberStatus(Reported):
    """The parts of a MemberCluster's status that scheduling reads; properties are name and value."""

    agent_status: Annotated[tuple[AgentStatus, ...], listed()] = ()
    properties: Annotated[dict[str, str], BeforeValidator(_property_values)] = Field(default_factory=dict)
    resource_usage: ReportedUsage | None = None


class MemberMeta(ObjectMeta):
    """Metadata, and since when the cluster is leaving the fleet."""

    left_aside: ClassVar[frozenset[str]] = WRITTEN_BY_A_HUB - {"deletionTimestamp"}

    deletion_timestamp: Moment | None = None


class MemberCluster(Parsed):
    """A whole MemberCluster document."""

    noun: ClassVar[str] = MEMBER_KIND

    api_version: Annotated[str, api_version(*MEMBER_VERSIONS)]
    kind: Annotated[str, word_of(MEMBER_KIND)]
    metadata: MemberMeta
    spec: MemberSpec
    status: MemberStatus | None = None

    @property
    def newest_heartbeat(self) -> datetime | None:
        """Give the time of the member agent's last heartbeat."""
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
        """Give the cluster as the scheduler sees it at a moment.

        Without any status it counts as eligible, unless health is strict.
        """
        status = self.status or MemberStatus()
        usage = status.resource_usage
        return Cluster(
            name=self.metadata.name,
            labels=self.metadata.labels,
            taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in self.spec.taints),
            properties=status.properties,
            usage=ResourceUsage(usage.capacity, usage.allocatable, usage.available) if usage else NO_USAGE,
            eligibility=self._eligibility(
                now, Limits(heartbeat_limit, unhealthy_limit), strict_health=strict_health
            ),
        )

    @property
    def report(self) -> AgentReport | None:
        """Give what the member agent reported last; None when there is no agent yet."""
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
        return next((agent for agent in agents if agent.type == _AGENT), None)

    def _eligibility(self, now: datetime, limits: Limits, *, strict_health: bool) -> Eligibility:
        if self.metadata.deletion_timestamp:
            return leaving()
        if self.status is None and not strict_health:
            return ELIGIBLE
        return judge(self.report, now=now, limits=limits)


class Heartbeat(Parsed):
    """What the agent of a cluster reports of it: its health, and readings where it has taken any."""

    noun: ClassVar[str] = "heartbeat"

    healthy: Flag
    properties: Quantities | None = None
    usage: ReportedUsage | None = None


def parse_heartbeat(document: object) -> Heartbeat:
    """Turn a heartbeat into a value; raise Faults with all that is wrong."""
    return parse_model(Heartbeat, document, semantics=DEFAULT_SEMANTICS, path="")


def parse_member(document: object) -> MemberCluster:
    """Turn a MemberCluster document into a value; raise Faults with all that is wrong."""
    refuse_other_kinds(document, MEMBER_KIND)
    return parse_model(MemberCluster, document, semantics=DEFAULT_SEMANTICS, path="")


def newest_heartbeat_of(members: Iterable[MemberCluster]) -> datetime | None:
    """Give the latest heartbeat of several clusters: the moment to judge an old export by."""
    heartbeats = (member.newest_heartbeat for member in members)
    return max((moment for moment in heartbeats if moment), default=None)
