"""Connections of Kubernetes clusters: checked, saved with their secrets, renewed, removed.

See `rules/kubernetes-driver.md#secrets`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from django.contrib.auth.models import User
from django.db import transaction

from clusters.connection_input import ConnectionInput, parse_connection_input
from clusters.credentials import (
    Connected,
    CredentialsUnreadable,
    credential_of,
    decrypt,
    expiry_notice,
    kept_secret,
    public_facts,
)
from clusters.drivers.base import (
    KUBERNETES,
    DriverError,
    DriverRejected,
    DriverUnavailable,
)
from clusters.drivers.concurrency import NotCalled, call_all
from clusters.drivers.kubernetes.check import (
    FAILED_CHECK,
    IDENTITY,
    OTHER_CLUSTER,
    CheckResult,
    CheckStep,
    ConnectionCheck,
    ConnectionCheckFailed,
)
from clusters.drivers.kubernetes.configuration import parse_connection
from clusters.kubeconfig import ParsedConnection, Secret, ca_facts, facts_of
from clusters.kubernetes_drivers import address_rules, hub_id, open_client
from clusters.models import ClusterCredential, Hub, MemberCluster, Membership
from clusters.operations.change_log import lock_fleet
from clusters.operations.credentials import (
    remove_secret,
    save_secret,
    secret_event,
    store_secret,
)
from clusters.operations.edit import UnknownClusterError
from clusters.operations.identity import (
    AlreadyJoined,
    ServerIdentity,
    judge_identity,
    set_identity,
)
from clusters.operations.join import (
    CLUSTER,
    ClusterSpec,
    parse_cluster,
    upsert_clusters,
)
from clusters.preparation import DEFAULT_KINDS
from fleetui.apimachinery.kinds import MEMBER_KIND, MEMBER_VERSIONS
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.words import is_token
from fleetui.audit import record_all
from fleetui.concurrency import check_revision
from fleetui.encryption import keep_keys
from fleetui.errors import FleetError, UnknownObject
from fleetui.threads import close_connections

INSECURE_WARNING = (
    "TLS verification is off. Anyone on the network path can read the credentials "
    "and change what is applied. Add the CA certificate."
)
Kinds = Sequence[tuple[str, str]]
_CHECKS_AT_ONCE = 10


class ConnectionNotAllowed(FleetError):
    """A cluster cannot have a connection as it is."""


class NoConnectionError(UnknownObject):
    problem_type = "no-connection"

    def __init__(self, name: str) -> None:
        super().__init__(f"cluster {name!r} has no connection")


Owner = TypeVar("Owner", MemberCluster, Hub)


@dataclass(frozen=True, slots=True)
class SavedConnection(Generic[Owner]):
    """A connection that was saved, of a cluster or of a hub, with the result of its check."""

    owner: Owner
    result: CheckResult
    is_new: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        return (INSECURE_WARNING,) if self.owner.connection.get("insecureTLS") else ()


def parse_input(
    wanted: ConnectionInput, *, cluster: MemberCluster | None, now: datetime
) -> ParsedConnection:
    """Return the connection that a user entered; without a secret it keeps the stored one.

    Raise InvalidManifest, also for an address that is not allowed.
    """
    return parse_connection_input(wanted, kept=partial(kept_secret, cluster), now=now)


@dataclass(frozen=True, slots=True)
class ConnectionExamination(CheckResult):
    """The result of a check, and which cluster it is: another one than before needs a confirmation."""

    identity: ServerIdentity = field(default_factory=ServerIdentity)

    @property
    def is_passed(self) -> bool:
        left_out = IDENTITY if self.confirm == OTHER_CLUSTER else ""
        return CheckResult(
            tuple(step for step in self.steps if step.step != left_out)
        ).is_passed


def check_connection(
    parsed: ParsedConnection,
    *,
    name: str,
    kinds: Kinds = (),
    is_new: bool = False,
) -> ConnectionExamination:
    """Check a connection of a member of this name, at most ten seconds; no transaction may be open.

    `kinds`: (apiVersion, kind) of what is placed on the cluster, or would be. `is_new`: also report what is
    missing of the kinds that the manifest of "Prepare a cluster" has.
    """
    return _judged(_examined(parsed, hub_id(), kinds=kinds, is_new=is_new), name)


def check_new_connections(
    wanted: Mapping[str, ParsedConnection], *, kinds_of: Callable[[str], Kinds]
) -> dict[str, ConnectionExamination]:
    """Check connections of members by name, several at a time; no transaction may be open."""
    hub = hub_id()
    kinds = {name: kinds_of(name) for name in wanted}

    def examine(name: str) -> ConnectionExamination:
        return _examined(wanted[name], hub, kinds=kinds[name], is_new=True)

    with ThreadPoolExecutor(_CHECKS_AT_ONCE) as pool:
        found = dict(zip(wanted, pool.map(examine, wanted), strict=True))
    return {name: _judged(examination, name) for name, examination in found.items()}


def _examined(
    parsed: ParsedConnection, hub: str, *, kinds: Kinds, is_new: bool
) -> ConnectionExamination:
    """Return what the cluster answers, without a look at the database: it runs in threads."""
    values = parsed.secret.values if parsed.secret else {}
    connection = parse_connection(parsed.connection)
    try:
        client = open_client(connection, lambda: values)
    except DriverUnavailable as error:
        return ConnectionExamination((CheckStep("address", False, str(error)),))
    with closing(client):
        check = ConnectionCheck(
            client,
            rules=address_rules(),
            kinds=kinds,
            usual=DEFAULT_KINDS if is_new else None,
            hub_id=hub,
        )
        steps = check.run()
    identity = ServerIdentity(check.cluster_uid, check.holders)
    return ConnectionExamination(steps, identity=identity)


def _judged(found: ConnectionExamination, name: str) -> ConnectionExamination:
    """Return the result of a check for a member of this name: which cluster it is may be a problem."""
    confirm = FAILED_CHECK
    try:
        if problem := judge_identity(found.identity, name):
            confirm = OTHER_CLUSTER
    except AlreadyJoined as error:
        problem = str(error)
    if not problem:
        return found
    steps = tuple(
        replace(step, ok=False, message=problem) if step.step == IDENTITY else step
        for step in found.steps
    )
    return replace(found, steps=steps, confirm=confirm)


def check_stored_connection(name: str, *, kinds: Kinds = ()) -> CheckResult:
    """Check the connection that a cluster has. Raise UnknownClusterError, NoConnectionError."""
    cluster = connected_cluster(name)
    secret = None
    if credential := credential_of(cluster):
        try:
            secret = decrypt(cluster.uid, credential.ciphertext)
        except CredentialsUnreadable as error:
            return CheckResult((unreadable_step(error),))
    parsed = ParsedConnection(cluster.connection, secret)
    return check_connection(parsed, name=name, kinds=kinds)


def unreadable_step(error: DriverUnavailable) -> CheckStep:
    return CheckStep("credentials", False, str(error), "Set the credentials again")


def connected_cluster(name: str) -> MemberCluster:
    """Return a cluster with a connection. Raise UnknownClusterError, NoConnectionError."""
    cluster = _cluster(name)
    if cluster.driver != KUBERNETES:
        raise NoConnectionError(name)
    return cluster


def _cluster(name: str) -> MemberCluster:
    cluster = _member(name)
    if cluster is None:
        raise UnknownClusterError(name)
    return cluster


def _member(name: str) -> MemberCluster | None:
    return MemberCluster.objects.select_related("credential").filter(name=name).first()


def set_connection(
    name: str,
    wanted: ConnectionInput,
    *,
    by: User | None,
    now: datetime,
    kinds: Kinds = (),
    confirmed: bool = False,
    other_cluster: bool = False,
    joins: bool = False,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    expected: int | None = None,
) -> SavedConnection[MemberCluster]:
    """Check a connection and save it with its secret; the network is used before the transaction.

    `confirmed`: save it although the check fails. `other_cluster`: also where it is not the cluster that it
    was, or one that had another name. `joins`: a cluster that is not there joins the fleet, with
    these labels and taints.

    Raise InvalidManifest, ConnectionCheckFailed, ConnectionNotAllowed, UnknownClusterError, RevisionConflict.
    """
    cluster = _member(name)
    if cluster is None and not joins:
        raise UnknownClusterError(name)
    _refuse_unsuitable(cluster, joins=joins)
    if cluster is None:
        parse_cluster(new_member(name, labels, taints))
    parsed = parse_input(wanted, cluster=cluster, now=now)
    is_new = cluster is None or cluster.driver != KUBERNETES
    found = check_connection(parsed, name=name, kinds=kinds, is_new=is_new)
    refuse_unconfirmed(found, name, confirmed=confirmed, other_cluster=other_cluster)

    if parsed.secret:
        keep_keys()
    with transaction.atomic():
        lock_fleet()
        cluster = _member(name)
        _refuse_unsuitable(cluster, joins=joins)
        check_revision(
            CLUSTER,
            name,
            expected=expected,
            revision=cluster.revision if cluster else 0,
        )
        document = cluster.document if cluster else new_member(name, labels, taints)
        return save_checked(
            document, parsed, found, by=by, now=now, other_cluster=other_cluster
        )


def refuse_unconfirmed(
    found: ConnectionExamination,
    name: str,
    *,
    confirmed: bool,
    other_cluster: bool = False,
) -> None:
    """Raise ConnectionCheckFailed, ConnectionNotAllowed for what has to be confirmed or may not be saved."""
    _refuse_joined(found.identity, name)
    is_other = found.confirm == OTHER_CLUSTER and not other_cluster
    if is_other or not (confirmed or found.is_passed):
        raise ConnectionCheckFailed(found)


def save_checked(
    document: Mapping[str, Any],
    parsed: ParsedConnection,
    found: ConnectionExamination,
    *,
    by: User | None,
    now: datetime,
    other_cluster: bool = False,
) -> SavedConnection[MemberCluster]:
    """Save a cluster with a connection that was checked, in the transaction that has the lock of the fleet.

    Raise ConnectionCheckFailed, ConnectionNotAllowed where another cluster has it since the check.
    """
    name = document["metadata"]["name"]
    if _refuse_joined(found.identity, name) and not other_cluster:
        raise ConnectionCheckFailed(replace(found, confirm=OTHER_CLUSTER))
    cluster = _member(name)
    spec = ClusterSpec(document, driver=KUBERNETES, connection=parsed.connection)
    upsert_clusters([spec], by=by, now=now)
    set_identity(name, found.identity.cluster_uid, by=by, now=now)
    before = cluster.connection if cluster else {}
    events = save_secret(_cluster(name), parsed.secret, before=before, by=by, now=now)
    record_all(events, by=by, now=now)
    return SavedConnection(_cluster(name), found, is_new=cluster is None)


def _refuse_joined(identity: ServerIdentity, name: str) -> str:
    """Return what has to be confirmed. Raise ConnectionNotAllowed for a cluster that is joined already."""
    try:
        return judge_identity(identity, name)
    except AlreadyJoined as error:
        raise ConnectionNotAllowed(str(error)) from error


def _refuse_unsuitable(cluster: MemberCluster | None, *, joins: bool) -> None:
    if cluster is None:
        return
    if joins:
        raise ConnectionNotAllowed(
            f"cluster {cluster.name} is in the fleet already; set its connection instead"
        )
    if cluster.is_simulated:
        raise ConnectionNotAllowed(f"cluster {cluster.name} is simulated")
    if cluster.membership == Membership.LEAVING:
        raise ConnectionNotAllowed(f"cluster {cluster.name} is leaving the fleet")


def connection_facts(owner: Connected, *, now: datetime) -> dict[str, Any]:
    """Return what administrators of clusters see of a connection; no secret is among it."""
    credential = credential_of(owner)
    connection = owner.connection
    is_insecure = bool(connection.get("insecureTLS"))
    authorities = ca_facts(connection.get("ca", ""), now=now)
    return {
        **connection,
        "insecureTLS": is_insecure,
        "caFingerprints": [authority.fingerprint for authority in authorities],
        "credential": credential
        and {
            **(public_facts(credential) or {}),
            "expiresAt": credential.expires_at,
            "revision": credential.revision,
            "setBy": credential.set_by,
            "setAt": credential.set_at,
            "rejectedSince": credential.unauthorized_since,
            "blockedUntil": credential.blocked_until,
            "renewAt": credential.renew_at,
            "renewalError": credential.renewal_error,
            "notice": expiry_notice(credential, now=now),
        },
        "warning": INSECURE_WARNING if is_insecure else "",
    }


def new_member(
    name: str,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Return the manifest of a cluster that joins by its connection alone."""
    return {
        "apiVersion": MEMBER_VERSIONS[0],
        "kind": MEMBER_KIND,
        "metadata": {"name": name, **({"labels": dict(labels)} if labels else {})},
        "spec": {
            "identity": {
                "kind": "ServiceAccount",
                "name": "fleetui",
                "namespace": "fleetui-system",
            },
            **({"taints": list(map(dict, taints))} if taints else {}),
        },
    }


@transaction.atomic
def remove_connection(
    name: str,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> MemberCluster:
    """Remove connection and secret; the cluster stays in the fleet without a driver.

    Raise UnknownClusterError, NoConnectionError, RevisionConflict.
    """
    lock_fleet()
    row = connected_cluster(name)
    check_revision(CLUSTER, name, expected=expected, revision=row.revision)
    credential = credential_of(row)
    upsert_clusters([ClusterSpec(row.document, driver="")], by=by, now=now)
    after = _cluster(name)
    record_all(remove_secret(after, credential, by=by, now=now), by=by, now=now)
    return _cluster(name)


RETRY = timedelta(hours=1)
CALL_SECONDS = 10.0
BATCH = 50
_THREADS = 8
_ROUND_SECONDS = 15.0
_SHORTEST_TOKEN = 600
"""Seconds; the API server accepts no shorter lifetime."""


def renew_credentials(name: str, *, by: User | None, now: datetime) -> None:
    """Renew a token now. Raise UnknownClusterError, NoConnectionError, ConnectionNotAllowed, DriverError."""
    cluster = connected_cluster(name)
    credential = ClusterCredential.objects.filter(cluster=cluster).first()
    if credential is None or credential.renew_at is None:
        raise ConnectionNotAllowed(
            f"the credentials of {name} are not a service account token that expires"
        )
    try:
        secret = request_token(cluster, credential)
    except DriverError as error:
        record_failure(credential, error)
        raise
    save_renewed(cluster, credential, secret, by=by, now=now)


def renew_due(*, now: datetime) -> int:
    """Renew the tokens that have lived half of their time, failed ones after an hour; return how many."""
    due = ClusterCredential.objects.filter(renew_at__lte=now)
    pks = list(due.order_by("renew_at").values_list("pk", flat=True)[:BATCH])
    if not pks or not due.filter(pk__in=pks).update(renew_at=now + RETRY):
        return 0
    rows = {
        row.pk: row
        for row in ClusterCredential.objects.select_related("cluster").filter(
            pk__in=pks
        )
    }
    calls = {pk: partial(request_token, row.cluster, row) for pk, row in rows.items()}
    renewed = 0
    answers = call_all(
        calls,
        threads=_THREADS,
        seconds=_ROUND_SECONDS,
        patience=CALL_SECONDS,
        at_end=close_connections,
    )
    for pk, answer in answers:
        if isinstance(answer, DriverError):
            record_failure(rows[pk], answer)
        elif not isinstance(answer, NotCalled):
            save_renewed(rows[pk].cluster, rows[pk], answer, by=None, now=now)
            renewed += 1
    return renewed


def request_token(cluster: MemberCluster, credential: ClusterCredential) -> Secret:
    """Return a new token for the account of the present one, once a call with it succeeded.

    It is bound to the object of the present one: both end when that is deleted. No database is used. Raise
    DriverUnavailable, DriverRejected.
    """
    present = decrypt(cluster.uid, credential.ciphertext)
    facts = facts_of(present)
    if (
        facts.service_account is None
        or facts.issued_at is None
        or facts.expires_at is None
    ):
        raise DriverRejected("the token is not one of a service account that expires")
    namespace, account = facts.service_account
    seconds = max(
        _SHORTEST_TOKEN, int((facts.expires_at - facts.issued_at).total_seconds())
    )
    spec: dict[str, Any] = {"expirationSeconds": seconds}
    if bound := facts.bound_to:
        spec["boundObjectRef"] = {"apiVersion": "v1", **bound._asdict()}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": spec,
    }
    deadline = time.monotonic() + CALL_SECONDS
    connection = parse_connection(cluster.connection)
    with closing(open_client(connection, lambda: present.values)) as client:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/serviceaccounts/{quote(account, safe='')}/token"
        answer = client.request("POST", path, body=request, deadline=deadline)
    token = mapping_at(answer.body, "status").get("token")
    if answer.status != 201 or not isinstance(token, str) or not is_token(token):
        raise DriverRejected(
            f"the API server answers {answer.status} to the request for a token"
        )
    renewed = Secret({"token": token})
    with closing(open_client(connection, lambda: renewed.values)) as client:
        client.request("GET", "/version", deadline=deadline)
    return renewed


def record_failure(credential: ClusterCredential, error: DriverError) -> None:
    ClusterCredential.objects.filter(
        pk=credential.pk, revision=credential.revision
    ).update(renewal_error=str(error)[:200])


@transaction.atomic
def save_renewed(
    cluster: MemberCluster,
    credential: ClusterCredential,
    secret: Secret,
    *,
    by: User | None,
    now: datetime,
) -> None:
    """Save a renewed token, unless the credentials were replaced or removed meanwhile."""
    present = (
        ClusterCredential.objects.select_for_update().filter(pk=credential.pk).first()
    )
    if present is None or present.revision != credential.revision:
        return
    saved = store_secret(cluster, present, secret, by=by, now=now)
    before = public_facts(credential)
    event = secret_event("credentials renewed", cluster, before, public_facts(saved))
    record_all([event], by=by, now=now)
