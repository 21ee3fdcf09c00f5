"""Placements: the list, one of them, and its manifest to take away."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRedirect

from fleetui.access import for_readers
from fleetui.htmx import render_page, wants_fragment
from fleetui.unchanged import unchanged_since
from placements.explain.run_wording import progress_sentence, wave_counts
from placements.explain.sentences import policy_sentence
from placements.explain.wording import headline
from placements.manifests import dump_yaml
from placements.models import Binding, Decision, Placement, Rollout
from placements.operations.rescheduling import reschedule_refusal
from placements.queries.drafts import drafts_of
from placements.queries.glance import tight_of
from placements.queries.lists import (
    PLACEMENT_ORDERS,
    PlacementFilter,
    State,
    counts_by_state,
    events_matching,
    latest_decisions,
    placements_matching,
)
from placements.queries.records import decision_of, traps_of, ways_of
from placements.queries.run_clusters import progress_of
from placements.queries.runs import latest_run, placement_pulse, said_of
from placements.queries.status import latest_decision, manifest_of, scheduled_condition
from placements.scheduling.bindings import BindingState
from placements.scheduling.outcomes import Outcome
from placements.scheduling.policy import PlacementType
from placements.scheduling.semantics import Semantics
from placements.scheduling.spec import OcmPlacement, parse_placement
from placements.views import states
from placements.views.happenings import happening_rows
from placements.views.lists import order_from, page_from, unknown_words, word_from
from placements.views.outcomes import outcome_table
from placements.views.staged_placement import staged_context
from placements.views.tight_rows import TightRow, tight_row

_SHOWN = 10
_EVENTS_SHOWN = 15
_RESOURCES_SHOWN = 100


@dataclass(frozen=True, slots=True)
class PlacementRow:
    """One line of the list: how a placement stands, and what was decided last."""

    stands: TightRow
    decision: Decision | None

    @property
    def placement(self) -> Placement:
        """Give the placement itself."""
        return self.stands.tight.placement


@dataclass(frozen=True, slots=True)
class PickedRow:
    """One line of the clusters that a placement has."""

    binding: Binding
    state: states.State


def placement_rows(placements: list[Placement]) -> list[PlacementRow]:
    """Give the lines of these placements, each with its run and its last decision."""
    latest = latest_decisions(placements)
    return [PlacementRow(tight_row(one), latest.get(one.placement.pk)) for one in tight_of(placements)]


@for_readers
@require_safe
def placements(request: HttpRequest) -> HttpResponse:
    """List the placements that match, a page at a time."""
    placement_type = word_from(request, "type", PlacementType)
    wanted = PlacementFilter(
        text=request.GET.get("q", "").strip(),
        state=word_from(request, "state", State),
        placement_type=str(placement_type or ""),
        semantics=str(word_from(request, "semantics", Semantics) or ""),
        cluster=request.GET.get("cluster", "").strip(),
    )
    rows, order = placements_matching(wanted), order_from(request, PLACEMENT_ORDERS)
    page = page_from(request, rows.select_related("freshness"), order=order)
    context = {
        "wanted": wanted,
        "rows": placement_rows(page.rows),
        "after": page.after,
        "count": rows.count(),
        "unknown": unknown_words(
            request, state=State, type=PlacementType, semantics=Semantics, sort=PLACEMENT_ORDERS
        ),
        "states": counts_by_state(),
        "types": list(PlacementType),
        "semantics": list(Semantics),
        "order": order,
    }
    return render_page(request, "placements/list.html", context, fragment="placements/_list.html")


@for_readers
@require_safe
def placement(request: HttpRequest, name: str) -> HttpResponse:
    """Show one placement; while it is being decided the page asks for its living part again and again."""
    version = placement_pulse(name)
    if version and (same := unchanged_since(request, version, partial(placement_pulse, name))):
        return same
    found = Placement.objects.filter(name=name).first() if version else None
    if found is None:
        return _gone(request, name)
    context = {"version": version, **_living(request, found)}
    if not wants_fragment(request):
        context |= _lasting(found) | {"your_draft": drafts_of(request.user, found).first()}
    return render_page(request, "placements/placement.html", context, fragment="placements/_live.html")


def _gone(request: HttpRequest, name: str) -> HttpResponse:
    """Answer for a placement that is not there; a page that waits for its end is led away."""
    if wants_fragment(request):
        return HttpResponseClientRedirect(reverse("pages:placements"))
    raise Http404(f"No placement is named {name}.")


def _living(request: HttpRequest, placement: Placement) -> dict[str, Any]:
    """Give what a scheduling cycle may change."""
    latest = latest_decision(placement)
    placed = Binding.objects.filter(placement=placement).exclude(state=BindingState.UNSCHEDULED)
    page = page_from(
        request, placed.select_related("decision__record"), order="cluster_name", unique="cluster_name"
    )
    return {
        "placement": placement,
        "state": states.placement_state(placement),
        "picked": states.picked_of(placement),
        "is_waiting": placement.is_due or placement.wants_a_look or placement.deleting_since is not None,
        **(staged_context(placement) if placement.is_staged else {}),
        **_carried_out(placement),
        "condition": scheduled_condition(placement),
        "bindings": [PickedRow(one, states.phase_state(one.phase)) for one in page.rows],
        "after": page.after,
        "decision": latest,
        "headline": headline(decision_of(latest)) if latest else "",
        "traps": traps_of(latest) if latest else (),
        "ways": ways_of(latest) if latest else (),
        "outcomes": outcome_table(request, latest) if latest else None,
        "unknown": unknown_words(request, outcome=Outcome),
    }


def _carried_out(placement: Placement) -> dict[str, Any]:
    """Give how far what was decided has been carried out."""
    run = latest_run(placement)
    said = said_of(run) if run else None
    answer = said.answer if said else None
    progress = progress_of(run, now=datetime.now(UTC)) if run else None
    return {
        "run": run,
        "is_running": run is not None and run.state == Rollout.State.RUNNING,
        "run_state": states.run_state(run, str(answer.verdict) if answer else None) if run else None,
        "progress": progress_sentence(progress, answer.budgets if answer else None) if progress else "",
        "waves": wave_counts(run.waves) if run else "",
    }


def _lasting(placement: Placement) -> dict[str, Any]:
    """Give what only people change, and what has happened."""
    manifest = parse_placement(placement.document)
    resources = placement.resource_snapshots.order_by("-number")
    latest = resources.filter(is_latest=True).first()
    identities: list[list[str]] = latest.identities if latest else []
    return {
        "may_reschedule": not reschedule_refusal(placement),
        "sentence": policy_sentence(manifest.spec.policy, manifest.semantics, manifest.spread_options),
        "selectors": manifest.spec.resource_selectors,
        "ocm": manifest if isinstance(manifest, OcmPlacement) else None,
        "policy_snapshots": placement.policy_snapshots.order_by("-number")[:_SHOWN],
        "resource_snapshots": resources[:_SHOWN],
        "resources": [_resource(*one) for one in identities[:_RESOURCES_SHOWN]],
        "more_resources": max(0, len(identities) - _RESOURCES_SHOWN),
        "decisions": placement.decisions.select_related("record").order_by("-number")[:_SHOWN],
        "events": happening_rows(
            events_matching(kind="placement", name=placement.name).order_by("-id")[:_EVENTS_SHOWN]
        ),
        "manifest": dump_yaml(placement.document),
    }


def _resource(api_version: str, kind: str, namespace: str, name: str) -> dict[str, str]:
    group = api_version.rpartition("/")[0]
    url = reverse("pages:resource", args=[group or "_", kind, namespace or "_", name])
    return {"kind": kind, "namespace": namespace, "name": name, "version": api_version, "url": url}


@for_readers
@require_safe
def placement_yaml(request: HttpRequest, name: str) -> HttpResponse:
    """Hand out the manifest as a file, with or without the status."""
    found = get_object_or_404(Placement, name=name)
    manifest = found.document if request.GET.get("status") == "0" else manifest_of(found)
    headers = {"Content-Disposition": f'attachment; filename="{name}.yaml"'}
    return HttpResponse(dump_yaml(manifest), content_type="application/yaml", headers=headers)
