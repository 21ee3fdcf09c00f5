"""Placements: the list, one of them, its manifest to download, deleting and rescheduling it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe
from django_htmx.http import HttpResponseClientRedirect

from clusters.hubs.dispatch import acts_through
from clusters.models import MemberCluster
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.audit import events_since
from fleetui.concurrency import RevisionConflict
from fleetui.htmx import render_page, wants_fragment
from fleetui.permissions import for_operators, for_readers
from fleetui.polling import not_modified
from placements.engine.rollout.state import Phase
from placements.engine.scheduling.outcome import Outcome
from placements.explain.advice import OUTDATED
from placements.explain.agreements import DIFFERS_SENTENCE
from placements.explain.health import condition_sentence
from placements.explain.preview import afresh_words
from placements.explain.rollouts import progress_sentence, wave_counts
from placements.explain.vocabulary import headline, policy_sentence
from placements.manifests.binding import BindingState
from placements.manifests.placement import OcmPlacement, parse_placement
from placements.manifests.policy import PlacementType
from placements.models import (
    CHANGES_CLUSTERS,
    Binding,
    Decision,
    Placement,
    PlacementResilience,
    Rollout,
    StagedRun,
)
from placements.services.assertions import check_of
from placements.services.dashboard.queries import tight_of
from placements.services.decisions.records import decision_of, fixes_of, outcomes_of, problems_of
from placements.services.disruption.impact import has_begun_run
from placements.services.editor.queries import drafts_of, preview_reschedule
from placements.services.filters import (
    PLACEMENT_ORDERS,
    PlacementFilter,
    PlacementFilterState,
    counts_in_all,
    events_matching,
    has_driver,
    latest_decisions,
    namespaces_of_placements,
    placements_matching,
)
from placements.services.fleet.queries import stale_placements
from placements.services.health import health_of, with_rollouts
from placements.services.hubs.queries import agreement_of_row, latest_agreements
from placements.services.placements import UnschedulesEverything, delete_placement
from placements.services.rescheduling import confirm_reschedule, reschedule_refusal
from placements.services.resilience.queries import levels_in, resilience_in
from placements.services.results import PLACEMENT
from placements.services.rollouts.operations import ActionNotAllowed
from placements.services.rollouts.queries import latest_run, placement_pulse, progress_of, report_of
from placements.services.rollouts.staged_queries import result_in, sentences_of
from placements.services.scheduling import PreviewOutdatedError
from placements.services.status import latest_decision, manifest_of, scheduled_condition
from placements.services.teams import of_placement
from placements.web import badges
from placements.web.dashboard import TightRow, tight_row
from placements.web.events import event_rows, url_of
from placements.web.outcomes import outcome_table
from placements.web.request import (
    current_user,
    is_confirmed,
    number_of,
    order_from,
    page_from,
    unknown_words,
    word_from,
)
from placements.web.review import decision_context, names_after, names_changed_since, rollout_sentence

_REVISIONS_SHOWN = 10
_EVENTS_SHOWN = 15
_RESOURCES_SHOWN = 100
_CLUSTERS_SHOWN = 20
_FAILED_SHOWN = 8


@dataclass(frozen=True, slots=True)
class PlacementListRow:
    """One line of the list: the status of a placement, and its last decision."""

    stands: TightRow
    decision: Decision | None

    @property
    def placement(self) -> Placement:
        return self.stands.tight.placement

    @property
    def resilience(self) -> PlacementResilience | None:
        return resilience_in(self.placement)


def placement_rows(placements: list[Placement]) -> list[PlacementListRow]:
    """Return the lines of these placements, each with its rollout and its last decision."""
    latest = latest_decisions(placements)
    return [PlacementListRow(tight_row(one), latest.get(one.placement.pk)) for one in tight_of(placements)]


@for_readers
@require_safe
def placements(request: HttpRequest) -> HttpResponse:
    """List the placements that match, a page at a time."""
    placement_type = word_from(request, "type", PlacementType)
    wanted = PlacementFilter(
        text=request.GET.get("q", "").strip(),
        state=word_from(request, "state", PlacementFilterState),
        placement_type=str(placement_type or ""),
        semantics=str(word_from(request, "semantics", Semantics) or ""),
        cluster=request.GET.get("cluster", "").strip(),
        namespace=request.GET.get("namespace", "").strip(),
        survives=request.GET.get("survives", "").strip(),
    )
    rows, order = placements_matching(wanted), order_from(request, PLACEMENT_ORDERS)
    page = page_from(
        request,
        with_rollouts(rows.select_related("staleness_check", "resilience__report")),
        order=order,
        unique="full_name",
    )
    in_all, states, _ = counts_in_all()
    context = {
        "wanted": wanted,
        "rows": placement_rows(page.rows),
        "after": page.after,
        "count": in_all if wanted == PlacementFilter() else rows.count(),
        "unknown": unknown_words(
            request,
            state=PlacementFilterState,
            type=PlacementType,
            semantics=Semantics,
            sort=PLACEMENT_ORDERS,
        ),
        "states": states,
        "types": list(PlacementType),
        "namespaces": namespaces_of_placements(),
        "semantics": list(Semantics),
        "levels": levels_in(page.rows),
        "order": order,
    }
    return render_page(request, "placements/list.html", context, fragment="placements/_list.html")


@for_readers
@require_safe
def placement(request: HttpRequest, name: str) -> HttpResponse:
    """Show one placement; while it is being scheduled the page polls the part that changes."""
    version = placement_pulse(name)
    if version and (same := not_modified(request, version, partial(placement_pulse, name))):
        return same
    rows = Placement.objects.select_related("resilience__report", "assertion_check").filter(full_name=name)
    found = with_rollouts(rows).first() if version else None
    if found is None:
        if wants_fragment(request):  # a page that waited for the end of a deletion
            return HttpResponseClientRedirect(reverse("web:placements"))
        raise Http404(f"No placement is named {name}.")
    now = datetime.now(UTC)
    health, latest = health_of(found, now=now), latest_decision(found)
    judged = latest_agreements([found]).get(found.pk) if found.is_mirrored else None
    placed = Binding.objects.filter(placement=found).exclude(state=BindingState.UNSCHEDULED)
    placed = placed.annotate(has_driver=has_driver()).select_related("decision__record")
    page = page_from(request, placed, order="cluster_name", unique="cluster_name")
    run = latest_run(found)
    said = report_of(run) if run else None
    answer = said.result if said else None
    progress = progress_of(run, now=now) if run else None
    context = {
        "version": version,
        "placement": found,
        "state": badges.placement_state(health),
        "conditions": condition_sentence(health.counts),
        "picked": badges.picked_of(found),
        "is_waiting": found.is_due or found.needs_sync or found.deleting_since is not None,
        **(_staged_context(found) if found.is_staged else {}),
        "run": run,
        "is_running": run is not None and run.state == Rollout.State.RUNNING,
        "run_state": badges.run_state(run, str(answer.phase) if answer else None) if run else None,
        "progress": progress_sentence(
            progress, answer.budgets if answer else None, is_initial=run is not None and run.is_initial
        )
        if progress
        else "",
        "waves": wave_counts(run.waves) if run else "",
        "condition": scheduled_condition(found, latest),
        "bindings": [
            (one, badges.binding_state(one, is_applied=getattr(one, "has_driver", True))) for one in page.rows
        ],
        "after": page.after,
        "decision": latest,
        "agreement": agreement_of_row(judged) if judged else None,
        "differs": DIFFERS_SENTENCE,
        "headline": headline(decision_of(latest)) if latest else "",
        "outdated": stale_placements(most=1, placement=name)[0],
        "traps": [one for one in problems_of(latest) if not one.startswith(OUTDATED)] if latest else (),
        "ways": fixes_of(latest) if latest else (),
        "outcomes": outcome_table(request, outcomes_of(latest)) if latest else None,
        "unknown": unknown_words(request, outcome=Outcome),
    }
    if not wants_fragment(request):
        context |= _lasting_context(found) | {"your_draft": drafts_of(request.user, found).first()}
    return render_page(request, "placements/placement.html", context, fragment="placements/_live.html")


def _staged_context(placement: Placement) -> dict[str, Any]:
    """Return the newest run, and the failed clusters, which are retried only by a run."""
    run = StagedRun.objects.filter(placement=placement).select_related("placement").order_by("-pk").first()
    result = result_in(run) if run and run.ended_at is None else None
    rows = Binding.objects.filter(placement=placement, phase__in=(Phase.FAILED, Phase.REMOVE_FAILED))
    failed = list(rows.order_by("cluster_name").values_list("cluster_name", flat=True))
    return {
        "staged_run": run,
        "staged_state": badges.staged_state(run) if run else None,
        "staged_sentences": sentences_of(run, result) if run and result else [],
        "staged_begun": has_begun_run(placement),
        "staged_failed": failed[:_FAILED_SHOWN],
        "staged_more": max(0, len(failed) - _FAILED_SHOWN),
    }


def _lasting_context(placement: Placement) -> dict[str, Any]:
    """Return what only people change, and what has happened."""
    manifest = parse_placement(placement.document)
    resources = placement.resource_snapshots.order_by("-number")
    latest = resources.filter(is_latest=True).first()
    identities: list[list[str]] = latest.identities if latest else []
    events = events_matching(kind="placement", name=placement.full_name).order_by("-at", "-id")
    return {
        "resilience": resilience_in(placement),
        "assertions": check_of(placement),
        "may_reschedule": not reschedule_refusal(placement),
        "sentence": policy_sentence(manifest.spec.policy, manifest.semantics, manifest.spread_options),
        "selectors": manifest.spec.resource_selectors,
        "ocm": manifest if isinstance(manifest, OcmPlacement) else None,
        "policy_snapshots": placement.policy_snapshots.order_by("-number")[:_REVISIONS_SHOWN],
        "resource_snapshots": resources[:_REVISIONS_SHOWN],
        "resources": [
            {
                "kind": kind,
                "namespace": namespace,
                "name": name,
                "version": api_version,
                "url": url_of("resource", "/".join((api_version.rpartition("/")[0], kind, namespace, name))),
            }
            for api_version, kind, namespace, name in identities[:_RESOURCES_SHOWN]
        ],
        "more_resources": max(0, len(identities) - _RESOURCES_SHOWN),
        "decisions": placement.decisions.filter(CHANGES_CLUSTERS)
        .select_related("record")
        .order_by("-number")[:_REVISIONS_SHOWN],
        "events": event_rows(events[:_EVENTS_SHOWN]),
        "manifest": dump_yaml(placement.document),
    }


@for_readers
@require_safe
def placement_yaml(request: HttpRequest, name: str) -> HttpResponse:
    """Download the manifest, with or without the status."""
    found = get_object_or_404(Placement, full_name=name)
    manifest = found.document if request.GET.get("status") == "0" else manifest_of(found)
    headers = {"Content-Disposition": f'attachment; filename="{name}.yaml"'}
    return HttpResponse(dump_yaml(manifest), content_type="application/yaml", headers=headers)


@acts_through(delete_placement)
@for_operators("delete placements", of=of_placement)
@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, name: str) -> HttpResponse:
    """Show what deleting would do, or delete."""
    found = get_object_or_404(Placement, full_name=name)
    if request.method == "POST":
        gone = delete_placement(name, by=current_user(request), now=datetime.now(UTC))
        messages.success(request, f"Placement {name} deleted." if gone else f"Deleting placement {name}.")
        return redirect("web:placements") if gone else redirect("web:placement", name)

    placed = Binding.objects.filter(placement=found).exclude(state=BindingState.UNSCHEDULED)
    context = {
        "placement": found,
        "placed": placed.order_by("cluster_name")[:_CLUSTERS_SHOWN],
        "more": max(0, placed.count() - _CLUSTERS_SHOWN),
        "abandons": parse_placement(found.document).spec.strategy.abandons,
        "carried_out": placed.exclude(state=BindingState.SCHEDULED).count(),
    }
    return render(request, "placements/delete.html", context)


@acts_through(confirm_reschedule)
@for_operators("reschedule placements", of=of_placement)
@require_http_methods(["GET", "HEAD", "POST"])
def reschedule(request: HttpRequest, name: str) -> HttpResponse:
    """Show what rescheduling a placement would change, or do just what was shown.

    `?back=` is the cluster that the placement is to be restored to, from whose page this was opened.
    """
    found = get_object_or_404(Placement, full_name=name)
    if request.method != "POST":
        return _show_reschedule(request, found)
    expected = number_of(request.POST.get("revision", ""), digits=18)
    if expected is None:
        return _show_reschedule(request, found, status=409)
    try:
        confirm_reschedule(
            name,
            decision_id=request.POST.get("decision", ""),
            by=current_user(request),
            now=datetime.now(UTC),
            expected=expected,
            confirmed=is_confirmed(request),
        )
    except UnschedulesEverything as error:
        return _show_reschedule(request, found, status=409, empties=error)
    except RevisionConflict:
        found.refresh_from_db()
        events = event_rows(events_since(PLACEMENT, name, expected))
        return _show_reschedule(request, found, status=409, outdated="placement", events=events)
    except PreviewOutdatedError:
        found.refresh_from_db()
        return _show_reschedule(request, found, status=409, outdated="fleet")
    except ActionNotAllowed:
        return _show_reschedule(request, found, status=409)
    messages.success(request, f"Placement {name} rescheduled.")
    back = _cluster_to_restore(request)
    return redirect("web:cluster-drain", back) if back else redirect("web:placement", name)


def _cluster_to_restore(request: HttpRequest) -> str:
    given = request.GET.get("back", "")
    return given if MemberCluster.objects.filter(name=given).exists() else ""


def _show_reschedule(
    request: HttpRequest, placement: Placement, *, status: int = 200, **results: Any
) -> HttpResponse:
    """Show the preview; `results` say why a confirmation was refused: outdated, events, empties."""
    context: dict[str, Any] = {
        "placement": placement,
        "now": datetime.now(UTC),
        "refusal": reschedule_refusal(placement),
        "outdated": results.get("outdated", ""),
        "events": results.get("events", ()),
        "empties": results.get("empties"),
        "back": _cluster_to_restore(request),
        "schedule": None,
        "explanation": "",
        "faults": (),
        "is_saved": True,
    }
    if not context["refusal"]:
        try:
            schedule = preview_reschedule(placement)
        except InvalidManifest as found:
            context["faults"] = found.faults
        else:
            context |= {
                **decision_context(schedule),
                "rollout": rollout_sentence(schedule, schedule.waves(now=datetime.now(UTC))),
                "explanation": afresh_words(schedule.decision.cycle),
                "after": names_after(schedule),
                "moved": names_changed_since(request, schedule),
            }
    return render(request, "placements/reschedule.html", context, status=status)
