"""The health and the eligibility of a member cluster from its row (`rules/scheduler.md#eligibility`)."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from clusters.fleet import ELIGIBLE, Eligibility, EligibilityKind

FIVE_MINUTES = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class AgentReport:
    """The last report of a member agent; a condition that it does not mention is None."""

    heartbeat: datetime | None
    joined: str | None
    healthy: str | None
    healthy_since: datetime | None


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a silent or an unhealthy agent counts as eligible."""

    heartbeat: timedelta = FIVE_MINUTES
    unhealthy: timedelta = FIVE_MINUTES


def leaving() -> Eligibility:
    """Return the eligibility of a cluster that is leaving, whatever its agent reports."""
    return Eligibility(EligibilityKind.LEAVING, "cluster has left the fleet")


def judge(report: AgentReport | None, *, now: datetime, limits: Limits) -> Eligibility:
    """Return the first reason that makes a cluster with this report not eligible, or that it is eligible.

    The reason names no age: it is stored, and an age is computed when it is shown.
    """
    if report is None:
        return _not_connected(EligibilityKind.NO_AGENT, "member agent not online yet")
    if _is_older(report.heartbeat, now, limits.heartbeat):
        return _not_connected(
            EligibilityKind.STALE_HEARTBEAT, "no recent heartbeat signals"
        )
    if report.joined != "True":
        return _not_connected(EligibilityKind.NOT_JOINED, "member agent not joined yet")
    if report.healthy is None:
        return _not_connected(
            EligibilityKind.NO_HEALTH,
            "health condition from member agent is not available",
        )
    if report.healthy != "True" and _is_older(
        report.healthy_since, now, limits.unhealthy
    ):
        return _not_connected(
            EligibilityKind.UNHEALTHY, "unhealthy for a prolonged period of time"
        )
    return ELIGIBLE


def with_age(
    eligibility: Eligibility, report: AgentReport | None, *, now: datetime
) -> Eligibility:
    """Return the eligibility with a sentence that is true at this moment only: do not store it.

    It has the words of a Fleet hub: "… (last received 5.01 minutes ago)".
    """
    if report is None:
        return eligibility
    if eligibility.kind is EligibilityKind.STALE_HEARTBEAT:
        moment, verb = report.heartbeat, "received"
    elif eligibility.kind is EligibilityKind.UNHEALTHY:
        moment, verb = report.healthy_since, "transitioned"
    else:
        return eligibility
    minutes = (now - moment).total_seconds() / 60 if moment else 0
    since = f"last {verb} {minutes:.2f} minutes ago" if moment else f"never {verb}"
    return replace(eligibility, reason=f"{eligibility.reason} ({since})")


def _not_connected(kind: EligibilityKind, words: str) -> Eligibility:
    return Eligibility(kind, f"cluster is not connected to the fleet: {words}")


def _is_older(moment: datetime | None, now: datetime, limit: timedelta) -> bool:
    return moment is None or now - moment > limit


LIMITS = Limits()
