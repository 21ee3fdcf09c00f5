"""How a placement's changes reach the clusters: `spec.strategy` (`rules/lifecycle.md#strategies`)."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from fleetui.apimachinery.errors import ErrorDetail
from fleetui.apimachinery.fields import INT32_MAX, Flag, integer, one_of, refusal
from fleetui.apimachinery.model import (
    IntOrPercent,
    ManifestModel,
    Raw,
    conflict,
    quote_value,
    required,
)

_PERCENTAGE = "^(100|[0-9]{1,2})%$"
_ZERO = re.compile(r"0+%?")
_ALLOWED_AMOUNT = "an integer from 0, or 0% to 100%"


class StrategyType(StrEnum):
    ROLLING_UPDATE = "RollingUpdate"
    EXTERNAL = "External"


class ApplyType(StrEnum):
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
    """Whether placed resources are deleted with the placement (`rules/lifecycle.md#deletion`)."""

    DELETE = "Delete"
    ABANDON = "Abandon"


class ReportBackType(StrEnum):
    DISABLED = "Disabled"
    MIRROR = "Mirror"


class ReportBackDestination(StrEnum):
    ORIGINAL_RESOURCE = "OriginalResource"
    WORK_API = "WorkAPI"


def amount(value: object) -> IntOrPercent:
    """Return an integer >= 0, or a percentage from 0 to 100. Raise an error for anything else.

    As on a hub, text is a percentage and never an integer.
    """
    if isinstance(value, IntOrPercent):
        return value
    if isinstance(value, str):
        percentage = re.fullmatch(_PERCENTAGE, value)
        if percentage is None:
            message = f"Invalid value: {quote_value(value)}: text must be a percentage"
            raise refusal("bad-format", message, _ALLOWED_AMOUNT)
        return IntOrPercent(int(percentage[1]), is_percent=True)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refusal(
            "wrong-type",
            f"Invalid value: {quote_value(value)}: must be an integer or a percentage",
            _ALLOWED_AMOUNT,
        )
    if not 0 <= value <= INT32_MAX:
        message = f"Invalid value: {value}: must be from 0 to {INT32_MAX}"
        raise refusal("out-of-range", message, _ALLOWED_AMOUNT)
    return IntOrPercent(value)


WrittenAmount: TypeAlias = (
    Annotated[int, Field(ge=0, le=INT32_MAX)]
    | Annotated[str, Field(pattern=_PERCENTAGE)]
)
Amount: TypeAlias = Annotated[
    IntOrPercent, BeforeValidator(amount, json_schema_input_type=WrittenAmount)
]
_QUARTER = IntOrPercent(25, is_percent=True)


class RollingUpdate(ManifestModel):
    """How many clusters may be unavailable or extra at a time."""

    max_unavailable: Amount = _QUARTER
    max_surge: Amount = _QUARTER
    unavailable_period_seconds: Annotated[int, integer(0)] = 60

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """With both budgets 0 nothing could ever start (`rules/lifecycle.md#budgets`)."""
        if all(
            _ZERO.fullmatch(str(raw.get(key))) for key in ("maxUnavailable", "maxSurge")
        ):
            yield ErrorDetail(
                (),
                "conflict",
                "Invalid value: maxUnavailable and maxSurge must not both be 0",
                "at least one of them greater than 0",
            )


class ServerSideApplyConfig(ManifestModel):
    force: Flag = False


class ApplyStrategy(ManifestModel):
    """How resources are written; the driver `kubernetes` acts on it, the simulated one does not."""

    type: Annotated[ApplyType, one_of(ApplyType)] = ApplyType.CLIENT_SIDE_APPLY
    comparison_option: Annotated[ComparisonOption, one_of(ComparisonOption)] = (
        ComparisonOption.PARTIAL_COMPARISON
    )
    when_to_apply: Annotated[WhenToApply, one_of(WhenToApply)] = WhenToApply.ALWAYS
    when_to_take_over: Annotated[WhenToTakeOver, one_of(WhenToTakeOver)] = (
        WhenToTakeOver.ALWAYS
    )
    allow_co_ownership: Flag = False
    server_side_apply_config: ServerSideApplyConfig | None = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """Options of server-side apply need that type (`rules/lifecycle.md#strategies`)."""
        if (
            "serverSideApplyConfig" in raw
            and raw.get("type") != ApplyType.SERVER_SIDE_APPLY
        ):
            yield conflict(
                "serverSideApplyConfig", "only allowed for type ServerSideApply"
            )

    @classmethod
    def complete(cls, raw: Raw) -> Raw:
        """Server-side apply has its options even when they are not written out."""
        if raw.get("type") == ApplyType.SERVER_SIDE_APPLY:
            return {"serverSideApplyConfig": {}, **raw}
        return raw

    def effective(self) -> "ApplyStrategy":
        """Return the strategy as every driver applies it: none acts on a field in the same way as others.

        Versions of clusters are hashed from it. A field that a driver does not act on must not change them,
        or its edit would roll out without any effect; the versions of clusters add what theirs acts on.
        """
        return ApplyStrategy()


class DeleteStrategy(ManifestModel):
    propagation_policy: Annotated[PropagationPolicy, one_of(PropagationPolicy)] = (
        PropagationPolicy.DELETE
    )


class ReportBackStrategy(ManifestModel):
    """Whether the status of placed objects is copied to the hub; stored only, as KubeFleet does."""

    type: Annotated[ReportBackType, one_of(ReportBackType)] = ReportBackType.DISABLED
    destination: (
        Annotated[ReportBackDestination, one_of(ReportBackDestination)] | None
    ) = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """A mirror needs a destination (`rules/lifecycle.md#strategies`)."""
        if raw.get("type") == ReportBackType.MIRROR and raw.get("destination") is None:
            yield required(
                "destination", "type Mirror needs it", ", ".join(ReportBackDestination)
            )


class RolloutStrategy(ManifestModel):
    """How changes reach the clusters; `rolling_update` is there exactly for the type RollingUpdate."""

    type: Annotated[StrategyType, one_of(StrategyType)] = StrategyType.ROLLING_UPDATE
    rolling_update: RollingUpdate | None = None
    apply_strategy: ApplyStrategy = Field(default_factory=ApplyStrategy)
    delete_strategy: DeleteStrategy = Field(default_factory=DeleteStrategy)
    report_back_strategy: ReportBackStrategy | None = None

    @property
    def abandons(self) -> bool:
        return self.delete_strategy.propagation_policy is PropagationPolicy.ABANDON

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """A staged placement has no rolling update (`rules/lifecycle.md#strategies`)."""
        if "rollingUpdate" in raw and raw.get("type") == StrategyType.EXTERNAL:
            yield conflict("rollingUpdate", "not allowed for type External", "no value")

    @classmethod
    def complete(cls, raw: Raw) -> Raw:
        """A rolling update has its budgets even when they are not written out."""
        if raw.get("type", StrategyType.ROLLING_UPDATE) == StrategyType.ROLLING_UPDATE:
            return {"rollingUpdate": {}, **raw}
        return raw
