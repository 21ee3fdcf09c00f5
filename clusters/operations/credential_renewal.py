"""Renewal of the service account tokens of clusters.

See `rules/kubernetes-driver.md#secrets`.
"""

import time
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

from django.contrib.auth.models import User
from django.db import transaction

from clusters.credentials import decrypt, public_facts
from clusters.drivers.base import DriverError, DriverRejected
from clusters.drivers.concurrency import NotCalled, call_all
from clusters.drivers.kubernetes.configuration import parse_connection
from clusters.kubeconfig import Secret, facts_of
from clusters.kubernetes_drivers import open_client
from clusters.models import ClusterCredential, MemberCluster
from clusters.operations.connection import ConnectionNotAllowed, connected_cluster
from clusters.operations.credentials import secret_event, store_secret
from fleetui.audit import record_all
from fleetui.threads import close_connections

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
    client = open_client(connection, lambda: present.values)
    try:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/serviceaccounts/{quote(account, safe='')}/token"
        answer = client.request("POST", path, body=request, deadline=deadline)
    finally:
        client.close()
    status = answer.body.get("status")
    token = (
        status.get("token")
        if answer.status == 201 and isinstance(status, dict)
        else None
    )
    if (
        not isinstance(token, str)
        or not token.isascii()
        or not token.isprintable()
        or " " in token
    ):
        raise DriverRejected(
            f"the API server answers {answer.status} to the request for a token"
        )
    renewed = Secret({"token": token})
    client = open_client(connection, lambda: renewed.values)
    try:
        client.request("GET", "/version", deadline=deadline)
    finally:
        client.close()
    return renewed


def record_failure(credential: ClusterCredential, error: DriverError) -> None:
    rows = ClusterCredential.objects.filter(
        pk=credential.pk, revision=credential.revision
    )
    rows.update(renewal_error=str(error)[:200])


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
    after = public_facts(saved)
    event = secret_event("credentials renewed", cluster, before, after)
    record_all([event], by=by, now=now)
