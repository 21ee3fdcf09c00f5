"""The pages of connections: add a cluster, prepare it, and show, test, replace or remove its connection."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)

from clusters.connection_input import CLUSTER_KINDS, DRIVERS_BY_KIND, REPORTED_BY_AGENT
from clusters.credentials import Connected
from clusters.drivers.base import KUBERNETES, SIMULATED, DriverError
from clusters.drivers.kubernetes.check import (
    CHECK_SECONDS,
    FAILED_CHECK,
    OTHER_CLUSTER,
    CheckResult,
)
from clusters.filters import similar_keys
from clusters.kubeconfig import ca_facts
from clusters.models import MemberCluster
from clusters.operations.connection import (
    ConnectionNotAllowed,
    Kinds,
    NoConnectionError,
    check_connection,
    check_stored_connection,
    connection_facts,
    new_member,
    parse_input,
    remove_connection,
    renew_credentials,
    set_connection,
)
from clusters.operations.join import ClusterSpec, put_cluster
from clusters.preparation import Preparation, preparation_documents
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.concurrency import RevisionConflict
from fleetui.htmx import render_page
from fleetui.permissions import (
    Role,
    for_cluster_administrators,
    for_operators,
    for_readers,
    for_roles,
    may_administer_clusters,
    may_operate,
)
from placements.explain.connections import check_report, unreachable_words
from placements.services.filters import kinds_for, kinds_on
from placements.services.fleet.forms import (
    row_context,
    typed_rows,
)
from placements.web.connection_forms import (
    NAME_PATH,
    OF_CLUSTER,
    connection_input,
    connection_page,
    typed_cluster,
)
from placements.web.request import actor, as_file, number_of, redirect_after

PREPARED_FILE = "fleetui-prepare.yaml"
_ADDED = {
    SIMULATED: "Member cluster {} added.",
    REPORTED_BY_AGENT: "Member cluster {} added. It is not monitored until its agent sends a heartbeat to"
    " /api/v1/clusters/{}/heartbeat.",
}


@for_roles(Role.OPERATOR, Role.CLUSTER_ADMINISTRATOR, action="add clusters")
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def add_cluster(request: HttpRequest) -> HttpResponseBase:
    if request.method != "POST":
        return _new(request)
    if request.POST.get("kind") == KUBERNETES:
        return for_cluster_administrators("connect clusters")(_new)(request)
    return for_operators("add clusters without a connection")(_new)(request)


def _new(request: HttpRequest) -> HttpResponseBase:
    may_operate_now = may_operate(request.user)
    may_connect = may_administer_clusters(request.user)
    entered = request.POST or request.GET
    usual = SIMULATED if may_operate_now else KUBERNETES
    kinds = [
        (
            *cluster_kind,
            may_connect if cluster_kind[0] == KUBERNETES else may_operate_now,
        )
        for cluster_kind in CLUSTER_KINDS
    ]
    kind = entered.get("kind") or usual
    context = {
        "noun": "cluster",
        "seconds": CHECK_SECONDS,
        "kinds": kinds,
        "kind": kind,
        **row_context(*typed_rows(entered)),
    }
    submit: Callable[[], CheckResult | str] = partial(_submitted, request, None)
    if kind != KUBERNETES:
        submit = partial(_added, request)
    return connection_page(
        request, "clusters/new.html", context, submit=submit, own=OF_CLUSTER
    )


def _added(request: HttpRequest) -> str:
    """Add a cluster without a connection; return its address. Raise InvalidManifest."""
    kind = request.POST.get("kind", "")
    name = request.POST.get("name", "").strip()
    if kind not in DRIVERS_BY_KIND:
        allowed = ", ".join(key for key, _, _ in CLUSTER_KINDS)
        raise InvalidManifest.of("kind", "not-one-of", "Unsupported value", allowed)
    typed = typed_cluster(request.POST)
    similar = similar_keys(typed.labels)
    document = new_member(name, typed.labels, typed.taints)
    spec = ClusterSpec(document, driver=DRIVERS_BY_KIND[kind])
    try:
        put_cluster(spec, **actor(request), expected=0)
    except RevisionConflict as error:
        message = f"cluster {name} is in the fleet already"
        raise InvalidManifest.of(
            NAME_PATH, "duplicate", message, "another name"
        ) from error
    messages.success(request, _ADDED[kind].format(name, name))
    for key, other in similar:
        messages.warning(
            request, f"Label key {key!r} is new in the fleet. Did you mean {other!r}?"
        )
    return reverse("web:cluster", args=[name])


@for_cluster_administrators("set connections of clusters")
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def edit_connection(request: HttpRequest, name: str) -> HttpResponseBase:
    """Check another connection or other credentials of a cluster, or save them."""
    cluster = get_object_or_404(
        MemberCluster.objects.select_related("credential"), name=name
    )
    return connection_page(
        request,
        "connections/edit.html",
        {
            "noun": "cluster",
            "seconds": CHECK_SECONDS,
            "name": name,
            "revision": cluster.revision,
            "parent": "Clusters",
            "url": reverse("web:clusters"),
            "middle_url": reverse("web:cluster", args=[name]),
            "back": reverse("web:cluster-connection", args=[name]),
        },
        submit=partial(_submitted, request, cluster),
        stored=cluster.connection,
    )


def _submitted(
    request: HttpRequest, cluster: MemberCluster | None
) -> CheckResult | str:
    """Check what was entered, or save it: for a new cluster with None, which joins the fleet.

    Return the result, or the address of the cluster. Raise InvalidManifest, ConnectionCheckFailed.
    """
    entered = request.POST
    name = cluster.name if cluster else entered.get("name", "").strip()
    wanted = connection_input(entered)
    typed = typed_cluster(entered)
    kinds: Kinds = ()
    if cluster:
        kinds = kinds_on(name)
    elif name:
        kinds = kinds_for(new_member(name, typed.labels, typed.taints))
    if entered.get("do") != "save":
        parsed = parse_input(wanted, cluster=cluster, now=datetime.now(UTC))
        is_new = cluster is None or cluster.driver != KUBERNETES
        return check_connection(parsed, name=name, kinds=kinds, is_new=is_new)
    confirm = entered.get("confirm")
    try:
        set_connection(
            name,
            wanted,
            **actor(request),
            kinds=kinds,
            labels=typed.labels,
            taints=typed.taints,
            confirmed=confirm in (FAILED_CHECK, OTHER_CLUSTER),
            other_cluster=confirm == OTHER_CLUSTER,
            joins=cluster is None,
            expected=number_of(entered.get("revision", ""), digits=18),
        )
    except (ConnectionNotAllowed, RevisionConflict) as error:
        path = "" if cluster else NAME_PATH
        raise InvalidManifest.of(path, "conflict", str(error)) from error
    words = "Connection of {} saved." if cluster else "Member cluster {} added."
    messages.success(request, words.format(name))
    return reverse("web:cluster-connection", args=[name])


_CHOICES = {
    "pods": "List pods, to read the available capacity",
    "clusterRoles": "ClusterRoles and ClusterRoleBindings",
    "definitions": "CustomResourceDefinitions",
    "recover": "Recover a lost inventory (adds list on these kinds, except Secrets)",
    "everything": "Everything: as much as a cluster administrator",
}


@for_cluster_administrators("prepare clusters")
@require_safe
def prepare_cluster(request: HttpRequest) -> HttpResponse:
    """Show the manifest that prepares a cluster, with the chosen permissions, or download it."""
    is_on = {name: name in request.GET for name in _CHOICES}
    if not request.GET:
        is_on["pods"] = True
    groups = tuple(request.GET.get("groups", "").replace(",", " ").split())
    errors: tuple[FieldError, ...] = ()
    text = ""
    try:
        documents = preparation_documents(
            Preparation(
                pods=is_on["pods"],
                cluster_roles=is_on["clusterRoles"],
                definitions=is_on["definitions"],
                groups=groups,
                recover=is_on["recover"],
                everything=is_on["everything"],
            )
        )
        text = "---\n".join(map(dump_yaml, documents))
    except InvalidManifest as error:
        errors = error.errors
    if text and "download" in request.GET:
        return as_file(
            HttpResponse(text, content_type="application/yaml; charset=utf-8"),
            PREPARED_FILE,
        )
    context = {
        "choices": [(name, label, is_on[name]) for name, label in _CHOICES.items()],
        "groups": " ".join(groups),
        "manifest": text,
        "file": PREPARED_FILE,
        "errors": errors,
        "query": request.GET.urlencode() or "pods=on",
    }
    status = 422 if errors else 200
    return render_page(
        request,
        "clusters/prepare.html",
        context,
        fragment="clusters/_prepared.html",
        status=status,
    )


@for_readers
@require_safe
def connection(request: HttpRequest, name: str) -> HttpResponse:
    """Show the connection of a cluster: its status to everyone, the rest to cluster administrators."""
    cluster = get_object_or_404(
        MemberCluster.objects.select_related("credential"), name=name
    )
    return render(
        request, "clusters/connection.html", _connection_context(request, cluster)
    )


def shown_connection(request: HttpRequest, owner: Connected) -> dict[str, Any]:
    """Return what pages show of a connection: the addresses and accounts to cluster administrators alone."""
    now = datetime.now(UTC)
    return {
        "connection": connection_facts(owner, now=now),
        "authorities": ca_facts(owner.connection.get("ca", ""), now=now),
        "may_see": may_administer_clusters(request.user),
    }


def _connection_context(request: HttpRequest, cluster: MemberCluster) -> dict[str, Any]:
    return {
        **shown_connection(request, cluster),
        "cluster": cluster,
        "is_connected": cluster.driver == KUBERNETES,
        "reason": unreachable_words(cluster, now=datetime.now(UTC)),
    }


@for_cluster_administrators("test connections of clusters")
@require_POST
def check_cluster(request: HttpRequest, name: str) -> HttpResponse:
    cluster = get_object_or_404(
        MemberCluster.objects.select_related("credential"), name=name
    )
    report = check_report(check_stored_connection(name, kinds=kinds_on(name)))
    return render_page(
        request,
        "clusters/connection.html",
        {**_connection_context(request, cluster), "report": report},
        fragment="connections/_check.html",
    )


@for_cluster_administrators("renew credentials of clusters")
@require_POST
def renew_connection(request: HttpRequest, name: str) -> HttpResponse:
    get_object_or_404(MemberCluster, name=name)
    try:
        renew_credentials(name, **actor(request))
    except (DriverError, ConnectionNotAllowed, NoConnectionError) as error:
        messages.error(request, f"Credentials not renewed: {error}.")
    else:
        messages.success(request, f"Credentials of {name} renewed.")
    return redirect("web:cluster-connection", name)


@for_cluster_administrators("remove connections of clusters")
@require_http_methods(["GET", "HEAD", "POST"])
def disconnect_cluster(request: HttpRequest, name: str) -> HttpResponse:
    cluster = get_object_or_404(MemberCluster, name=name)
    context: dict[str, Any] = {
        "cluster": cluster,
        "is_connected": cluster.driver == KUBERNETES,
    }
    if request.method != "POST":
        return render(request, "clusters/disconnect.html", context)
    expected = number_of(request.POST.get("revision", ""), digits=18)
    try:
        remove_connection(name, **actor(request), expected=expected)
    except RevisionConflict as error:
        context |= {"is_connected": True, "refused": str(error)}
        return render(request, "clusters/disconnect.html", context, status=409)
    return redirect_after(
        request, f"Connection of {name} removed.", "web:cluster-connection", name
    )
