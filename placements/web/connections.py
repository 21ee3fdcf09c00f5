"""The pages of connections: add a cluster, prepare it, and show, test, replace or remove its connection."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
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

from clusters.credentials import Connected
from clusters.drivers.base import KUBERNETES, SIMULATED, DriverError
from clusters.drivers.kubernetes.check import CHECK_SECONDS, FAILED_CHECK, OTHER_CLUSTER
from clusters.filters import similar_keys
from clusters.kubeconfig import ca_facts
from clusters.models import MemberCluster
from clusters.operations.connection import (
    ConnectionCheckFailed,
    ConnectionNotAllowed,
    NoConnectionError,
    check_connection,
    check_stored_connection,
    connection_facts,
    new_member,
    parse_input,
    remove_connection,
    set_connection,
)
from clusters.operations.credential_renewal import renew_credentials
from clusters.operations.join import ClusterSpec, put_cluster
from clusters.preparation import Preparation, preparation_documents
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.concurrency import RevisionConflict
from fleetui.htmx import redirect_page, render_page
from fleetui.permissions import (
    Role,
    current_user,
    for_cluster_administrators,
    for_operators,
    for_readers,
    for_roles,
    may_administer_clusters,
    may_operate,
)
from placements.explain.connections import check_report, unreachable_words
from placements.services.filters import kinds_for, kinds_on
from placements.services.fleet.forms import row_context, typed_rows
from placements.web.connection_forms import (
    NAME_PATH,
    OF_CLUSTER,
    connection_context,
    connection_input,
    typed_cluster,
)
from placements.web.request import as_file, number_of

REPORTED_BY_AGENT = "agent"
KINDS = (
    (SIMULATED, "Simulated", "Exists only in this console. For trying things out."),
    (
        KUBERNETES,
        "Kubernetes",
        "The console connects to its API server, applies resources and observes them.",
    ),
    (
        REPORTED_BY_AGENT,
        "Reported by an agent",
        "An agent in the cluster sends heartbeats over REST. Placements are scheduled, not applied.",
    ),
)
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
    """Check the connection of a new cluster, or add the cluster."""
    if request.method != "POST":
        return _form(request, None, status=200)
    if request.POST.get("kind") == KUBERNETES:
        return for_cluster_administrators("connect clusters")(_submitted)(request, None)
    return for_operators("add clusters without a connection")(_added)(request)


def _added(request: HttpRequest) -> HttpResponseBase:
    """Add a cluster without a connection."""
    kind, name = request.POST.get("kind", ""), request.POST.get("name", "").strip()
    if kind not in _ADDED:
        allowed = ", ".join(key for key, _, _ in KINDS)
        return _form(
            request,
            None,
            [FieldError("kind", "not-one-of", "Unsupported value", allowed)],
        )
    try:
        typed = typed_cluster(request.POST)
        similar = similar_keys(typed.labels)
        document = new_member(name, typed.labels, typed.taints)
        spec = ClusterSpec(document, driver=kind if kind == SIMULATED else "")
        put_cluster(spec, by=current_user(request), now=datetime.now(UTC), expected=0)
    except InvalidManifest as error:
        return _form(request, None, error.errors)
    except RevisionConflict:
        message = f"cluster {name} is in the fleet already"
        return _form(
            request, None, [FieldError(NAME_PATH, "duplicate", message, "another name")]
        )
    messages.success(request, _ADDED[kind].format(name, name))
    for key, other in similar:
        messages.warning(
            request, f"Label key {key!r} is new in the fleet. Did you mean {other!r}?"
        )
    return redirect_page(request, reverse("web:cluster", args=[name]))


@for_cluster_administrators("set connections of clusters")
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def edit_connection(request: HttpRequest, name: str) -> HttpResponseBase:
    """Check another connection or other credentials of a cluster, or save them."""
    cluster = get_object_or_404(
        MemberCluster.objects.select_related("credential"), name=name
    )
    if request.method != "POST":
        return _form(request, cluster, status=200)
    return _submitted(request, cluster)


def _submitted(request: HttpRequest, cluster: MemberCluster | None) -> HttpResponseBase:
    """Check what was entered, or save it: for a new cluster with None, which joins the fleet."""
    now, by = datetime.now(UTC), current_user(request)
    name = cluster.name if cluster else request.POST.get("name", "").strip()
    try:
        wanted, typed = connection_input(request.POST), typed_cluster(request.POST)
        document = new_member(name, typed.labels, typed.taints)
        if request.POST.get("do") != "save":
            parsed = parse_input(wanted, cluster=cluster, now=now)
            kinds = kinds_on(name) if cluster else kinds_for(document) if name else ()
            is_new = cluster is None or cluster.driver != KUBERNETES
            found = check_connection(parsed, name=name, kinds=kinds, is_new=is_new)
            confirm = OTHER_CLUSTER if found.changes_cluster else FAILED_CHECK
            report = check_report(found.steps)
            return _form(request, cluster, report=report, confirm=confirm, status=200)
        set_connection(
            name,
            wanted,
            by=by,
            now=now,
            kinds=kinds_on(name) if cluster else kinds_for(document),
            labels=typed.labels,
            taints=typed.taints,
            confirmed=request.POST.get("confirm") in (FAILED_CHECK, OTHER_CLUSTER),
            other_cluster=request.POST.get("confirm") == OTHER_CLUSTER,
            joins=cluster is None,
            expected=number_of(request.POST.get("revision", ""), digits=18)
            if cluster
            else None,
        )
    except InvalidManifest as error:
        return _form(request, cluster, error.errors)
    except ConnectionCheckFailed as error:
        report = check_report(error.steps)
        return _form(
            request, cluster, report=report, confirm=error.confirm, is_refused=True
        )
    except (ConnectionNotAllowed, RevisionConflict) as error:
        path = "" if cluster else NAME_PATH
        return _form(request, cluster, [FieldError(path, "conflict", str(error))])
    messages.success(
        request,
        f"Connection of {name} saved." if cluster else f"Member cluster {name} added.",
    )
    return redirect_page(request, reverse("web:cluster-connection", args=[name]))


def _form(
    request: HttpRequest,
    cluster: MemberCluster | None,
    errors: Iterable[FieldError] = (),
    *,
    status: int = 422,
    **shown: Any,
) -> HttpResponse:
    """Show the form; to htmx only the result and the errors, so that the browser keeps what was entered."""
    context = {"noun": "cluster", "seconds": CHECK_SECONDS}
    if cluster:
        context |= {
            **connection_context(request, errors, stored=cluster.connection, **shown),
            "name": cluster.name,
            "revision": cluster.revision,
            "parent": "Clusters",
            "url": reverse("web:clusters"),
            "middle_url": reverse("web:cluster", args=[cluster.name]),
            "back": reverse("web:cluster-connection", args=[cluster.name]),
        }
        page = "connections/edit.html"
    else:
        context |= connection_context(request, errors, own=OF_CLUSTER, **shown)
        context |= _new_cluster(request)
        page = "clusters/new.html"
    return render_page(
        request, page, context, fragment="connections/_result.html", status=status
    )


def _new_cluster(request: HttpRequest) -> dict[str, Any]:
    may_operate_now = may_operate(request.user)
    may_connect = may_administer_clusters(request.user)
    entered, typed = request.GET, ("", "")
    if request.method == "POST":
        entered, typed = request.POST, typed_rows(request.POST)
    usual = SIMULATED if may_operate_now else KUBERNETES
    kinds = [
        (*one, may_connect if one[0] == KUBERNETES else may_operate_now)
        for one in KINDS
    ]
    return {
        "kinds": kinds,
        "kind": entered.get("kind") or usual,
        **row_context(*typed),
    }


@dataclass(frozen=True, slots=True)
class PreparationChoice:
    """A check box of the page: the name in the address, what it allows, and whether it is on."""

    name: str
    label: str
    is_on: bool


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
        "choices": [
            PreparationChoice(name, label, is_on[name])
            for name, label in _CHOICES.items()
        ],
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
    """Check the stored connection of a cluster."""
    cluster = get_object_or_404(
        MemberCluster.objects.select_related("credential"), name=name
    )
    steps = check_stored_connection(name, kinds=kinds_on(name))
    context = {**_connection_context(request, cluster), "report": check_report(steps)}
    return render_page(
        request, "clusters/connection.html", context, fragment="connections/_check.html"
    )


@for_cluster_administrators("renew credentials of clusters")
@require_POST
def renew_connection(request: HttpRequest, name: str) -> HttpResponse:
    """Renew the service account token of a cluster."""
    get_object_or_404(MemberCluster, name=name)
    try:
        renew_credentials(name, by=current_user(request), now=datetime.now(UTC))
    except (DriverError, ConnectionNotAllowed, NoConnectionError) as error:
        messages.error(request, f"Credentials not renewed: {error}.")
    else:
        messages.success(request, f"Credentials of {name} renewed.")
    return redirect("web:cluster-connection", name)


@for_cluster_administrators("remove connections of clusters")
@require_http_methods(["GET", "HEAD", "POST"])
def disconnect_cluster(request: HttpRequest, name: str) -> HttpResponse:
    """Confirm the removal of a connection, or remove it."""
    cluster = get_object_or_404(MemberCluster, name=name)
    context: dict[str, Any] = {
        "cluster": cluster,
        "is_connected": cluster.driver == KUBERNETES,
    }
    if request.method != "POST":
        return render(request, "clusters/disconnect.html", context)
    expected = number_of(request.POST.get("revision", ""), digits=18)
    try:
        remove_connection(
            name, by=current_user(request), now=datetime.now(UTC), expected=expected
        )
    except RevisionConflict as error:
        context |= {"is_connected": True, "refused": str(error)}
        return render(request, "clusters/disconnect.html", context, status=409)
    messages.success(request, f"Connection of {name} removed.")
    return redirect("web:cluster-connection", name)
