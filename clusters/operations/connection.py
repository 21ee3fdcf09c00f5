"""Connections of Kubernetes clusters: checked, saved with their secrets, removed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

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
from clusters.drivers.base import KUBERNETES, DriverUnavailable
from clusters.drivers.kubernetes.check import (
    IDENTITY,
    OTHER_CLUSTER,
    CheckStep,
    ConnectionCheck,
    ConnectionCheckFailed,
    is_passed,
)
from clusters.drivers.kubernetes.configuration import parse_connection
from clusters.kubeconfig import ParsedConnection, ca_facts
from clusters.kubernetes_drivers import address_rules, hub_id, open_client
from clusters.models import MemberCluster, Membership
from clusters.operations.change_log import lock_fleet
from clusters.operations.credentials import remove_secret, save_secret
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
from fleetui.audit import AuditEvent, record_all
from fleetui.concurrency import check_revision
from fleetui.encryption import keep_keys
from fleetui.errors import FleetError, UnknownObject

INSECURE_WARNING = (
    "TLS verification is off. Anyone on the network path can read the credentials "
    "and change what is applied. Add the CA certificate."
)
Kinds = Sequence[tuple[str, str]]


class ConnectionNotAllowed(FleetError):
    """A cluster cannot have a connection as it is."""


class NoConnectionError(UnknownObject):
    problem_type = "no-connection"

    def __init__(self, name: str) -> None:
        super().__init__(f"cluster {name!r} has no connection")


@dataclass(frozen=True, slots=True)
class SavedConnection:
    """A connection that was saved, with the steps of its check and the warnings of its admission."""

    cluster: MemberCluster
    steps: tuple[CheckStep, ...]
    warnings: tuple[str, ...] = ()
    is_new: bool = False


def parse_input(
    wanted: ConnectionInput, *, cluster: MemberCluster | None, now: datetime
) -> ParsedConnection:
    """Return the connection that a user entered; without a secret it keeps the stored one.

    Raise InvalidManifest, also for an address that is not allowed.
    """
    return parse_connection_input(wanted, kept=partial(kept_secret, cluster), now=now)


@dataclass(frozen=True, slots=True)
class ConnectionExamination:
    """The steps of a check, and which cluster it is.

    `changes_cluster`: the member would have another cluster than before, which needs a confirmation.
    """

    steps: tuple[CheckStep, ...]
    identity: ServerIdentity = field(default_factory=ServerIdentity)
    changes_cluster: bool = False

    @property
    def is_passed(self) -> bool:
        return is_passed(
            [
                one
                for one in self.steps
                if not (self.changes_cluster and one.step == IDENTITY)
            ]
        )


def check_connection(
    parsed: ParsedConnection, *, name: str, kinds: Kinds = (), is_new: bool = False
) -> ConnectionExamination:
    """Check a connection of a member of this name, at most ten seconds; no transaction may be open.

    `kinds`: (apiVersion, kind) of what is placed on the cluster, or would be. `is_new`: also report what is
    missing of the kinds that the manifest of "Prepare a cluster" has.
    """
    values = parsed.secret.values if parsed.secret else {}
    connection = parse_connection(parsed.connection)
    try:
        client = open_client(connection, lambda: values)
    except DriverUnavailable as error:
        return ConnectionExamination((CheckStep("address", False, str(error)),))
    try:
        check = ConnectionCheck(
            client.connection,
            client.secret,
            client,
            rules=address_rules(),
            kinds=kinds,
            usual=DEFAULT_KINDS if is_new else None,
            hub_id=hub_id(),
        )
        steps = check.run()
    finally:
        client.close()
    identity = ServerIdentity(check.cluster_uid, check.holders)
    try:
        problem = judge_identity(identity, name)
        is_refused = False
    except AlreadyJoined as error:
        problem, is_refused = str(error), True
    if problem:
        steps = tuple(
            replace(one, ok=False, message=problem) if one.step == IDENTITY else one
            for one in steps
        )
    return ConnectionExamination(
        steps, identity, changes_cluster=bool(problem) and not is_refused
    )


def check_stored_connection(name: str, *, kinds: Kinds = ()) -> tuple[CheckStep, ...]:
    """Check the connection that a cluster has. Raise UnknownClusterError, NoConnectionError."""
    cluster = connected_cluster(name)
    credential = credential_of(cluster)
    secret = None
    if credential:
        try:
            secret = decrypt(cluster.uid, credential.ciphertext)
        except CredentialsUnreadable as error:
            return (
                CheckStep(
                    "credentials", False, str(error), "Set the credentials again"
                ),
            )
    return check_connection(
        ParsedConnection(cluster.connection, secret), name=name, kinds=kinds
    ).steps


def connected_cluster(name: str) -> MemberCluster:
    """Return a cluster with a connection. Raise UnknownClusterError, NoConnectionError."""
    cluster = _cluster(name)
    if cluster.driver != KUBERNETES:
        raise NoConnectionError(name)
    return cluster


def _cluster(name: str) -> MemberCluster:
    cluster = (
        MemberCluster.objects.select_related("credential").filter(name=name).first()
    )
    if cluster is None:
        raise UnknownClusterError(name)
    return cluster


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
) -> SavedConnection:
    """Check a connection and save it with its secret; the network is used before the transaction.

    `confirmed`: save it although the check fails. `other_cluster`: also where it is not the cluster that it
    was, or one that had another name. `joins`: a cluster that is not there joins the fleet, with
    these labels and taints.

    Raise InvalidManifest, ConnectionCheckFailed, ConnectionNotAllowed, UnknownClusterError, RevisionConflict.
    """
    cluster = (
        MemberCluster.objects.select_related("credential").filter(name=name).first()
    )
    if cluster is None and not joins:
        raise UnknownClusterError(name)
    _refuse_unsuitable(cluster, joins=joins)
    if cluster is None:
        parse_cluster(new_member(name, labels, taints))
    parsed = parse_input(wanted, cluster=cluster, now=now)
    is_new = cluster is None or cluster.driver != KUBERNETES
    found = check_connection(parsed, name=name, kinds=kinds, is_new=is_new)
    _refuse_joined(found.identity, name)
    if found.changes_cluster and not other_cluster:
        raise ConnectionCheckFailed(found.steps, confirm=OTHER_CLUSTER)
    if not confirmed and not found.is_passed:
        raise ConnectionCheckFailed(found.steps)

    if parsed.secret:
        keep_keys()
    with transaction.atomic():
        lock_fleet()
        cluster = (
            MemberCluster.objects.select_related("credential").filter(name=name).first()
        )
        _refuse_unsuitable(cluster, joins=joins)
        if (
            _refuse_joined(found.identity, name) and not other_cluster
        ):  # since the check
            raise ConnectionCheckFailed(found.steps, confirm=OTHER_CLUSTER)
        check_revision(
            CLUSTER,
            name,
            expected=expected,
            revision=cluster.revision if cluster else 0,
        )
        document = cluster.document if cluster else new_member(name, labels, taints)
        spec = ClusterSpec(document, driver=KUBERNETES, connection=parsed.connection)
        upsert_clusters([spec], by=by, now=now)
        set_identity(name, found.identity.cluster_uid, by=by, now=now)
        row = _cluster(name)
        events = save_secret(row, parsed.secret, by=by, now=now)
        was_insecure = cluster is not None and cluster.has_insecure_tls
        if row.has_insecure_tls and not was_insecure:
            events.append(
                AuditEvent("TLS verification off", CLUSTER, name, revision=row.revision)
            )
        record_all(events, by=by, now=now)
    warnings = (INSECURE_WARNING,) if row.has_insecure_tls else ()
    return SavedConnection(
        _cluster(name), found.steps, warnings, is_new=cluster is None
    )


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
        "caFingerprints": [one.fingerprint for one in authorities],
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
    identity = {
        "kind": "ServiceAccount",
        "name": "fleetui",
        "namespace": "fleetui-system",
    }
    return {
        "apiVersion": MEMBER_VERSIONS[0],
        "kind": MEMBER_KIND,
        "metadata": {"name": name, **({"labels": dict(labels)} if labels else {})},
        "spec": {
            "identity": identity,
            **({"taints": list(map(dict, taints))} if taints else {}),
        },
    }


@transaction.atomic
def remove_connection(
    name: str, *, by: User | None, now: datetime, expected: int | None = None
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
