"""The words of connections: why a cluster does not answer, and the check of a connection as tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from clusters.credentials import credential_of
from clusters.drivers.base import KUBERNETES
from clusters.drivers.kubernetes.check import IDENTITY, CheckResult, CheckStep
from clusters.kubernetes_drivers import REJECTED
from clusters.models import MemberCluster

VERBS = ("get", "list", "create", "patch", "delete")
_UNREACHABLE: Mapping[str, str] = {
    REJECTED: "Credentials rejected",
    "credentials-unreadable": "Stored credentials not readable",
    "tls-insecure-not-allowed": "Not connected: TLS verification is off, which this console does not allow",
    "not-in-cluster": "Not connected: this console does not run in a pod with a service account",
    "tls": "TLS certificate not accepted",
    "dns": "Host name not resolved",
    "address": "Address not allowed",
    "refused": "Connection refused",
    "broken": "Connection broken",
    "timeout": "No answer in time",
    "proxy": "Proxy not reachable",
    "not-kubernetes": "Answer is not from an API server",
    "no-such-path": "Path not served",
    "too-large": "Answer too large",
}
_STEPS: Mapping[str, str] = {
    "credentials": "Stored credentials",
    "address": "Address",
    "TCP": "TCP connection",
    "TLS": "TLS",
    "version": "Version",
    "authentication": "Authentication",
    IDENTITY: "Identity",
    "discovery": "Discovery",
    "permissions": "Permissions",
    "list": "First objects",
}


def unreachable_reason(cluster: MemberCluster) -> tuple[str, datetime | None]:
    """Return why a Kubernetes cluster does not answer, and since when; "" while it answers."""
    if cluster.driver != KUBERNETES:
        return "", None
    credential = credential_of(cluster)
    if credential and credential.unauthorized_since:
        return _UNREACHABLE[REJECTED], credential.unauthorized_since
    code = cluster.unanswered_code
    words = _UNREACHABLE.get(code, "Not reachable")
    if code.startswith("http-"):
        words = f"API server answers {code.removeprefix('http-')}"
    return words if cluster.unanswered_since else "", cluster.unanswered_since


def unreachable_words(cluster: MemberCluster, *, now: datetime) -> str:
    """Return why a Kubernetes cluster does not answer, with the time; "" while it answers."""
    words, since = unreachable_reason(cluster)
    if since is None:
        return ""
    return f"{words} since {since:{'%H:%M' if since.date() == now.date() else '%Y-%m-%d %H:%M'}} UTC"


@dataclass(frozen=True, slots=True)
class PermissionRow:
    """The permissions on one resource: whether each verb is allowed; None: not needed, or not known.

    `missing` are the verbs that are not allowed, or why that is not known; `level` is that of a missing one,
    "" where it does not matter.
    """

    resource: str
    cells: tuple[tuple[str, bool | None], ...]
    missing: str = ""
    hint: str = ""
    level: str = "failed"
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The steps of a check up to the authentication, and the permissions by resource."""

    is_passed: bool
    confirm: str
    steps: tuple[tuple[str, CheckStep], ...]
    permissions: tuple[PermissionRow, ...]

    @property
    def has_hints(self) -> bool:
        return any(row.hint for row in self.permissions)

    @property
    def missing(self) -> int:
        return sum(
            bool(row.missing) and row.level == "failed" for row in self.permissions
        )


def check_report(
    result: CheckResult, permissions: Sequence[PermissionRow] = ()
) -> CheckReport:
    """Return a check for pages; `permissions` are those that are no steps of their own."""
    ahead = [(_STEPS[step.step], step) for step in result.steps if step.step in _STEPS]
    by_resource: dict[str, list[CheckStep]] = {}
    rows = list(permissions)
    for step in result.steps:
        if step.access:
            resource = step.access.name.partition(" ")[2]
            by_resource.setdefault(resource, []).append(step)
        elif step.step not in _STEPS:  # a kind that the cluster does not serve
            rows.append(
                PermissionRow(
                    step.step,
                    tuple((verb, None) for verb in VERBS),
                    step.message,
                    step.hint,
                )
            )
    reviewed = [
        _permission_row(resource, of_resource)
        for resource, of_resource in by_resource.items()
    ]
    return CheckReport(
        result.is_passed, result.confirm, tuple(ahead), (*reviewed, *rows)
    )


def _permission_row(resource: str, steps: Sequence[CheckStep]) -> PermissionRow:
    allowed = {step.access.verb: step.ok for step in steps if step.access}
    failed = [step for step in steps if not step.ok]
    verbs = ", ".join(
        step.access.verb
        for step in failed
        if step.access and step.message == "not allowed"
    )
    unknown = next(
        (step.message for step in failed if step.message != "not allowed"), ""
    )
    return PermissionRow(
        resource,
        tuple((verb, allowed.get(verb)) for verb in VERBS),
        "; ".join(filter(None, (verbs, unknown))),
        failed[0].hint if failed else "",
        "attention" if all(step.is_optional for step in steps) else "failed",
    )
