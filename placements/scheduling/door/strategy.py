"""How a placement's changes reach the clusters: `spec.strategy` (`spec/lifecycle.md` A.2, A.17, B.1.4)."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, TypeAlias

from pydantic import BeforeValidator, Field

from placements.scheduling.door.amounts import IntOrPercent
from placements.scheduling.door.fields import INT32_MAX, Flag, one_of, whole
from placements.scheduling.door.parsing import Parsed, Raw, Refusal, failure, shown
from placements.scheduling.faults import Problem

_AMOUNT = re.compile(r"(?P<percent>100|[0-9]{1,2})%|(?P<number>[0-9]{1,10})")
_ZERO = re.compile(r"0+%?")
_ALLOWED_AMOUNT = "a whole number from 0, or 0% to 100%"


class StrategyType(StrEnum):
    """Who decides when a cluster changes: the rolling update, or staged runs."""

    ROLLING_UPDATE = "RollingUpdate"
    EXTERNAL = "External"


class ApplyType(StrEnum):
    """How resources are written to a cluster."""

    CLIENT_SIDE_APPLY = "ClientSideApply"
    SERVER_SIDE_APPLY = "ServerSideApply"
    REPORT_DIFF = "ReportDiff"


class ComparisonOption(StrEnum):
    """Which fields count when a cluster's object is compared with the wanted one."""

    PARTIAL_COMPARISON = "PartialComparison"
    FULL_COMPARISON = "FullComparison"


class WhenToApply(StrEnum):
    """Whether an object that drifted is written over."""

    ALWAYS = "Always"
    IF_NOT_DRIFTED = "IfNotDrifted"


class WhenToTakeOver(StrEnum):
    """Whether an object that was there before is taken over."""

    ALWAYS = "Always"
    IF_NO_DIFF = "IfNoDiff"
    NEVER = "Never"


class PropagationPolicy(StrEnum):
    """What becomes of placed resources when the placement is deleted (lifecycle A.11)."""

    DELETE = "Delete"
    ABANDON = "Abandon"


def amount(value: object) -> IntOrPercent:
    """Take a whole number from 0 or a percentage."""
    if isinstance(value, IntOrPercent):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise failure([Problem((), "wrong-type", f"{shown(value)} is no amount", _ALLOWED_AMOUNT)])
    match = _AMOUNT.fullmatch(str(value)) if isinstance(value, str) or value >= 0 else None
    if match is None and isinstance(value, str):
        raise failure([Problem((), "bad-format", f"{shown(value)} is no amount", _ALLOWED_AMOUNT)])
    if match is None or int(match["number"] or 0) > INT32_MAX:
        raise failure([Problem((), "out-of-range", f"{value} is out of range", _ALLOWED_AMOUNT)])
    if match["percent"]:
        return IntOrPercent(int(match["percent"]), is_percent=True)
    return IntOrPercent(int(match["number"]))


Amount: TypeAlias = Annotated[IntOrPercent, BeforeValidator(amount)]
_QUARTER = IntOrPercent(25, is_percent=True)


class RollingUpdate(Parsed):
    """How many clusters may be unavailable or extra at a time."""

    noun: ClassVar[str] = "rolling update"

    max_unavailable: Amount = _QUARTER
    max_surge: Amount = _QUARTER
    unavailable_period_seconds: Annotated[int, whole(0)] = 60

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """With both budgets 0 nothing could ever start (lifecycle A.2)."""
        if all(_ZERO.fullmatch(str(raw.get(key))) for key in ("maxUnavailable", "maxSurge")):
            message = "maxUnavailable and maxSurge are both 0, so nothing could ever start"
            yield Problem((), "conflict", message, "at least one of them above 0")


class ServerSideApplyConfig(Parsed):
    """Details of server-side apply."""

    noun: ClassVar[str] = "server-side apply configuration"

    force: Flag = False


class ApplyStrategy(Parsed):
    """How resources are written; all but the defaults is stored and not acted on yet (lifecycle A.17)."""

    noun: ClassVar[str] = "placement's apply strategy"

    type: Annotated[ApplyType, one_of(ApplyType)] = ApplyType.CLIENT_SIDE_APPLY
    comparison_option: Annotated[ComparisonOption, one_of(ComparisonOption)] = (
        ComparisonOption.PARTIAL_COMPARISON
    )
    when_to_apply: Annotated[WhenToApply, one_of(WhenToApply)] = WhenToApply.ALWAYS
    when_to_take_over: Annotated[WhenToTakeOver, one_of(WhenToTakeOver)] = WhenToTakeOver.ALWAYS
    allow_co_ownership: Flag = False
    server_side_apply_config: ServerSideApplyConfig | None = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """Details of server-side apply need that type (lifecycle B.1.4)."""
        if "serverSideApplyConfig" in raw and raw.get("type") != ApplyType.SERVER_SIDE_APPLY:
            yield Problem(("serverSideApplyConfig",), "conflict", "goes with type: ServerSideApply only")

    @classmethod
    def complete(cls, raw: Raw) -> Raw:
        """Server-side apply has its details even when they are not written out."""
        if raw.get("type") == ApplyType.SERVER_SIDE_APPLY:
            return {"serverSideApplyConfig": {}, **raw}
        return raw


class DeleteStrategy(Parsed):
    """What happens to placed resources when the placement is deleted."""

    noun: ClassVar[str] = "delete strategy"

    propagation_policy: Annotated[PropagationPolicy, one_of(PropagationPolicy)] = PropagationPolicy.DELETE


class RolloutStrategy(Parsed):
    """How changes reach the clusters; `rolling_update` is there exactly for the type RollingUpdate."""

    noun: ClassVar[str] = "rollout strategy"
    refused: ClassVar[Mapping[str, Refusal]] = {
        "reportBackStrategy": Refusal(
            "not-supported", "reporting status back to the hub is not part of this project"
        )
    }

    type: Annotated[StrategyType, one_of(StrategyType)] = StrategyType.ROLLING_UPDATE
    rolling_update: RollingUpdate | None = None
    apply_strategy: ApplyStrategy = Field(default_factory=ApplyStrategy)
    delete_strategy: DeleteStrategy = Field(default_factory=DeleteStrategy)

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """A staged placement has no rolling update (lifecycle B.1.4)."""
        if "rollingUpdate" in raw and raw.get("type") == StrategyType.EXTERNAL:
            yield Problem(("rollingUpdate",), "conflict", "does not go with type: External", "nothing")

    @classmethod
    def complete(cls, raw: Raw) -> Raw:
        """A rolling update has its budgets even when they are not written out."""
        if raw.get("type", StrategyType.ROLLING_UPDATE) == StrategyType.ROLLING_UPDATE:
            return {"rollingUpdate": {}, **raw}
        return raw
