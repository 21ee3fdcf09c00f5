"""The pages of live hubs: list, connect, and one hub with its streams, permissions and actions."""

from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)

from clusters.connection_input import ConnectionInput
from clusters.credentials import expiry_notice
from clusters.drivers.kubernetes.check import FAILED_CHECK
from clusters.hub_queries import visible_hubs
from clusters.kubeconfig import ca_facts
from clusters.models import Hub
from clusters.models.hubs import HubIdentity, HubMode
from clusters.operations.connection import INSECURE_WARNING
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.htmx import render_page
from fleetui.hub_scope import LOCAL_HUB, current_hub_id, in_hub
from fleetui.permissions import (
    current_user,
    for_cluster_administrators,
    for_readers,
    may_administer_clusters,
)
from placements.hubs.connections.check import HubCheckReport
from placements.hubs.connections.connection import credential_of_hub
from placements.hubs.connections.operations import (
    HubCheckFailed,
    HubExists,
    HubSpec,
    change_hub,
    check_parsed,
    check_spec,
    check_stored_hub,
    parse_hub_input,
    remove_hub,
    save_hub,
    spec_of,
)
from placements.hubs.explain.connections import (
    permission_rows,
    shown_hub,
    shown_stream,
    shown_write,
)
from placements.hubs.projection.unresolved import (
    unresolved_counts,
    unresolved_objects,
)
from placements.hubs.queries import recent_writes, streams_of, summaries_of, summary_of

MOST_SHOWN = 50


@for_readers
@require_safe
def hubs(request: HttpRequest) -> HttpResponse:
    """List the live hubs with state and age."""
    now, visible = datetime.now(UTC), list(visible_hubs(request.user).order_by("name"))
    unresolved = unresolved_counts([hub.pk for hub in visible], now=now)
    rows = [
        shown_hub(one, now=now, unresolved=unresolved.get(one.hub.pk, 0))
        for one in summaries_of(visible, now=now)
    ]
    return render_page(
        request, "hubs/list.html", {"hubs": rows}, fragment="hubs/_list.html"
    )


@for_cluster_administrators("connect hubs")
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def new_hub(request: HttpRequest) -> HttpResponseBase:
    """Check the connection of a new hub, or save it."""
    if request.method != "POST":
        return _form(request, None)
    entered, now = request.POST, datetime.now(UTC)
    spec = HubSpec(
        entered.get("name", "").strip(),
        title=entered.get("title", "").strip(),
        mode=entered.get("mode", HubMode.READ.value),
        identity=entered.get("identity", HubIdentity.SHARED.value),
        namespaces=tuple(entered.get("namespaces", "").replace(",", " ").split()),
    )
    wanted = ConnectionInput(
        entered.get("kubeconfig", ""), entered.get("context", "").strip()
    )
    try:
        if entered.get("do") != "save":
            check_spec(spec)
            report = check_parsed(
                spec, parse_hub_input(wanted, hub=None, name=spec.name, now=now)
            )
            return _form(request, report, status=200)
        confirmed = entered.get("confirm") == FAILED_CHECK
        save_hub(spec, wanted, by=current_user(request), now=now, confirmed=confirmed)
    except InvalidManifest as error:
        return _form(request, None, error.errors)
    except HubExists as error:
        return _form(
            request, None, [FieldError("name", "duplicate", str(error), "another name")]
        )
    except HubCheckFailed as error:
        return _form(request, error.report, is_refused=True)
    messages.success(request, f"Hub {spec.name} added.")
    return redirect("web:hub-about", spec.name)


def _form(
    request: HttpRequest,
    report: HubCheckReport | None,
    errors: Any = (),
    *,
    is_refused: bool = False,
    status: int | None = None,
) -> HttpResponse:
    """Show the form with what was entered, apart from the kubeconfig: it holds a secret."""
    entered = request.POST if request.method == "POST" else {}
    context = {
        "entered": {
            key: entered.get(key, "")
            for key in ("name", "title", "context", "namespaces")
        },
        "mode": entered.get("mode", HubMode.READ.value),
        "identity": entered.get("identity", HubIdentity.SHARED.value),
        "errors": errors,
        "report": report,
        "permissions": permission_rows(report.permissions) if report else (),
        "is_refused": is_refused,
        "failed_check": FAILED_CHECK,
    }
    usual = 422 if request.method == "POST" else 200
    return render(
        request, "hubs/new.html", context, status=usual if status is None else status
    )


@for_readers
@require_safe
def line(request: HttpRequest) -> HttpResponse:
    """Show the state of the hub in scope, which its pages poll."""
    if current_hub_id() == LOCAL_HUB:
        raise Http404
    return render(request, "hubs/_hub_line.html")


@for_readers
@require_safe
def about(request: HttpRequest, name: str) -> HttpResponse:
    """Show a hub: its state, its streams, what its account may do, and actions."""
    return _about(request, _visible(request, name))


def _about(
    request: HttpRequest, hub: Hub, report: HubCheckReport | None = None
) -> HttpResponse:
    now = datetime.now(UTC)
    may_administer = may_administer_clusters(request.user)
    credential = credential_of_hub(hub) if may_administer else None
    permissions = report.permissions if report else hub.found.get("permissions", ())
    with in_hub(hub.pk):
        rows = unresolved_objects(now=now)
        ordered = rows.order_by("kind", "namespace", "name", "pk")
        unresolved, count = list(ordered[:MOST_SHOWN]), rows.count()
    context = {
        "unresolved": unresolved,
        "unresolved_count": count,
        "unresolved_more": count - len(unresolved),
        "hub": shown_hub(summary_of(hub, now=now), now=now),
        "streams": [shown_stream(one) for one in streams_of(hub)],
        "permissions": permission_rows(permissions),
        "writes": [shown_write(one) for one in recent_writes(hub)],
        "report": report,
        "credential": credential,
        "notice": expiry_notice(credential, now=now) if credential else "",
        "server": hub.connection.get("server", "") if may_administer else "",
        "authorities": ca_facts(hub.connection.get("ca", ""), now=now)
        if may_administer
        else (),
        "insecure": INSECURE_WARNING if hub.connection.get("insecureTLS") else "",
    }
    return render_page(request, "hubs/about.html", context, fragment="hubs/_live.html")


def _visible(request: HttpRequest, name: str) -> Hub:
    hub = visible_hubs(request.user).filter(name=name).first()
    if hub is None:
        raise Http404(f"No hub is named {name}.")
    return hub


@for_cluster_administrators("check hubs")
@require_POST
def check(request: HttpRequest, name: str) -> HttpResponse:
    """Check the stored connection of a hub."""
    hub = _visible(request, name)
    return _about(request, hub, check_stored_hub(hub.name))


@for_cluster_administrators("pause hubs")
@require_POST
def pause(request: HttpRequest, name: str) -> HttpResponse:
    """Pause a hub, or resume it."""
    _visible(request, name)
    paused = request.POST.get("paused") == "true"
    change_hub(
        name, {"paused": paused}, by=current_user(request), now=datetime.now(UTC)
    )
    messages.success(request, f"Hub {name} {'paused' if paused else 'resumed'}.")
    return redirect("web:hub-about", name)


@for_cluster_administrators("replace credentials of hubs")
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def credentials(request: HttpRequest, name: str) -> HttpResponseBase:
    """Replace the connection and the credentials of a hub."""
    hub = _visible(request, name)
    errors: Any = ()
    report = None
    if request.method == "POST":
        wanted = ConnectionInput(
            request.POST.get("kubeconfig", ""), request.POST.get("context", "").strip()
        )
        spec = spec_of(hub)
        confirmed = request.POST.get("confirm") == FAILED_CHECK
        try:
            by, now = current_user(request), datetime.now(UTC)
            save_hub(spec, wanted, by=by, now=now, confirmed=confirmed, replaces=True)
        except InvalidManifest as error:
            errors = error.errors
        except HubCheckFailed as error:
            report = error.report
        else:
            messages.success(request, f"Credentials of {name} replaced.")
            return redirect("web:hub-about", name)
    now = datetime.now(UTC)
    context = {
        "hub": shown_hub(summary_of(hub, now=now), now=now),
        "name": name,
        "errors": errors,
        "report": report,
        "failed_check": FAILED_CHECK,
    }
    return render(
        request,
        "hubs/credentials.html",
        context,
        status=422 if request.method == "POST" else 200,
    )


@for_cluster_administrators("remove hubs")
@require_http_methods(["GET", "HEAD", "POST"])
def remove(request: HttpRequest, name: str) -> HttpResponseBase:
    """Confirm the removal of a hub, or remove it."""
    hub = _visible(request, name)
    if request.method != "POST":
        now = datetime.now(UTC)
        return render(
            request,
            "hubs/remove.html",
            {"hub": shown_hub(summary_of(hub, now=now), now=now)},
        )
    remove_hub(name, by=current_user(request), now=datetime.now(UTC))
    messages.success(request, f"Hub {name} removed.")
    return redirect(reverse("web:hubs"))
