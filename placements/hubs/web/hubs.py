"""The pages of live hubs: list, connect, one hub with its streams and actions, what it decided."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
)
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)

from clusters.drivers.kubernetes.check import FAILED_CHECK, CheckResult
from clusters.hub_queries import visible_hubs
from clusters.models import Hub
from clusters.models.hubs import HubIdentity, HubMode
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.bulk import first_or_raise
from fleetui.htmx import render_page
from fleetui.hub_scope import LOCAL_HUB, current_hub_id, in_hub
from fleetui.permissions import (
    current_user,
    for_cluster_administrators,
    for_readers,
)
from placements.hubs.connections.discovery import CHECK_SECONDS, HubCheckReport
from placements.hubs.connections.operations import (
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
from placements.hubs.explain.agreements import agreement_document, difference_csv
from placements.hubs.explain.connections import (
    IDENTITIES,
    MODES,
    hub_check_report,
    permission_row,
    shown_hub,
    shown_stream,
    shown_write,
)
from placements.hubs.projection.operations import (
    unresolved_counts,
    unresolved_objects,
)
from placements.hubs.queries import recent_writes, streams_of, summaries_of, summary_of
from placements.hubs.replay.observed_decisions import hub_side_of
from placements.services.decisions.records import decisions_named
from placements.web.connection_forms import (
    ConnectionField,
    connection_input,
    connection_page,
)
from placements.web.connections import shown_connection
from placements.web.request import as_file

MOST_SHOWN = 50
OF_HUB = (
    ConnectionField(
        "name",
        "Name",
        "Lowercase letters, digits and “-”, at most 63. Cannot be changed.",
        is_required=True,
    ),
    ConnectionField("title", "Title", "Shown with the name on pages."),
    ConnectionField(
        "mode",
        "Mode",
        "Whether the console may write to the hub.",
        "select",
        choices=tuple(MODES.items()),
    ),
    ConnectionField(
        "identity",
        "Identity of writes",
        "In whose name the console writes.",
        "select",
        choices=tuple(IDENTITIES.items()),
    ),
    ConnectionField("namespaces", "Namespaces", "Default: all."),
)


@for_readers
@require_safe
def hubs(request: HttpRequest) -> HttpResponse:
    now, visible = datetime.now(UTC), list(visible_hubs(request.user).order_by("name"))
    unresolved = unresolved_counts([hub.pk for hub in visible], now=now)
    rows = [
        shown_hub(summary, now=now, unresolved=unresolved.get(summary.hub.pk, 0))
        for summary in summaries_of(visible, now=now)
    ]
    return render_page(
        request, "hubs/list.html", {"hubs": rows}, fragment="hubs/_list.html"
    )


@for_cluster_administrators("connect hubs")
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def new_hub(request: HttpRequest) -> HttpResponseBase:
    entered = request.POST
    spec = HubSpec(
        entered.get("name", "").strip(),
        title=entered.get("title", "").strip(),
        mode=entered.get("mode", HubMode.READ.value),
        identity=entered.get("identity", HubIdentity.SHARED.value),
        namespaces=tuple(entered.get("namespaces", "").replace(",", " ").split()),
    )
    return connection_page(
        request,
        "hubs/new.html",
        {"noun": "hub", "seconds": CHECK_SECONDS},
        submit=partial(_submitted, request, spec, None),
        report=hub_check_report,
        own=OF_HUB,
    )


@for_cluster_administrators("replace credentials of hubs")
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def credentials(request: HttpRequest, name: str) -> HttpResponseBase:
    """Check another connection or other credentials of a hub, or save them."""
    hub = _visible(request, name)
    about_url = reverse("web:hub-about", args=[name])
    context = {
        "noun": "hub",
        "seconds": CHECK_SECONDS,
        "name": name,
        "parent": "Hubs",
        "url": reverse("web:hubs"),
        "middle_url": about_url,
        "back": about_url,
    }
    return connection_page(
        request,
        "hubs/edit_connection.html",
        context,
        submit=partial(_submitted, request, spec_of(hub), hub),
        report=hub_check_report,
        stored=hub.connection,
    )


def _submitted(
    request: HttpRequest, spec: HubSpec, hub: Hub | None
) -> CheckResult | str:
    """Check what was entered, or save it: for a new hub with None.

    Return the result of the check, or the address of the hub. Raise InvalidManifest, ConnectionCheckFailed.
    """
    now = datetime.now(UTC)
    entered = request.POST
    wanted = connection_input(entered)
    if entered.get("do") != "save":
        check_spec(spec)
        parsed = parse_hub_input(wanted, hub=hub, name=spec.name, now=now)
        return check_parsed(spec, parsed)
    is_confirmed = entered.get("confirm") == FAILED_CHECK
    try:
        save_hub(
            spec,
            wanted,
            by=current_user(request),
            now=now,
            confirmed=is_confirmed,
            replaces=hub is not None,
        )
    except HubExists as error:
        raise InvalidManifest.of(
            "name", "duplicate", str(error), "another name"
        ) from error
    words = "Connection of {} saved." if hub else "Hub {} added."
    messages.success(request, words.format(spec.name))
    return reverse("web:hub-about", args=[spec.name])


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
    with in_hub(hub.pk):
        rows = unresolved_objects(now=now)
        ordered = rows.order_by("kind", "namespace", "name", "pk")
        unresolved, count = list(ordered[:MOST_SHOWN]), rows.count()
    context: dict[str, Any] = {
        "unresolved": unresolved,
        "unresolved_count": count,
        "unresolved_more": count - len(unresolved),
        "hub": shown_hub(summary_of(hub, now=now), now=now),
        "streams": [shown_stream(stream) for stream in streams_of(hub)],
        "writes": [shown_write(write) for write in recent_writes(hub)],
        **shown_connection(request, hub),
    }
    if report:
        context["report"] = hub_check_report(report)
    else:
        context["permissions"] = [
            permission_row(permission)
            for permission in hub.found.get("permissions", ())
        ]
    return render_page(request, "hubs/about.html", context, fragment="hubs/_live.html")


def _visible(request: HttpRequest, name: str) -> Hub:
    return first_or_raise(
        visible_hubs(request.user).filter(name=name),
        Http404(f"No hub is named {name}."),
    )


@for_cluster_administrators("check hubs")
@require_POST
def check(request: HttpRequest, name: str) -> HttpResponse:
    hub = _visible(request, name)
    return _about(request, hub, check_stored_hub(hub.name))


@for_cluster_administrators("pause hubs")
@require_POST
def pause(request: HttpRequest, name: str) -> HttpResponse:
    _visible(request, name)
    paused = request.POST.get("paused") == "true"
    change_hub(
        name, {"paused": paused}, by=current_user(request), now=datetime.now(UTC)
    )
    messages.success(request, f"Hub {name} {'paused' if paused else 'resumed'}.")
    return redirect("web:hub-about", name)


@for_cluster_administrators("remove hubs")
@require_http_methods(["GET", "HEAD", "POST"])
def remove(request: HttpRequest, name: str) -> HttpResponseBase:
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


@for_readers
@require_safe
def decision_on_hub(request: HttpRequest, prefix: str, form: str) -> HttpResponse:  # noqa: ARG001 -- of a view
    """Download the decision of the hub and its differences from the replay."""
    rows = decisions_named(prefix)
    side = hub_side_of(rows[0]) if len(rows) == 1 else None
    if side is None:
        raise Http404
    name = f"{rows[0].record.decision_id[:10]}-hub.{form}"
    if form == "json":
        return as_file(JsonResponse(agreement_document(side)), name)
    text = difference_csv(side.differences)
    return as_file(HttpResponse(text, content_type="text/csv; charset=utf-8"), name)
