"""Reviewing a draft before it is saved: who moves, what changes, and the button that does it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import unified_diff
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from fleetui.access import for_operators
from fleetui.revisions import StaleEditError
from placements.drafting.rebasing import Overlap, Side
from placements.explain.sentences import policy_sentence
from placements.manifests import dump_yaml
from placements.models import Draft
from placements.operations.as_seen import PreviewOutdatedError
from placements.operations.drafts import (
    Seen,
    UnknownDraftError,
    confirm_draft,
    digest_of,
    draft_of,
    rebase_draft,
)
from placements.operations.emptying import EmptiesPlacementError
from placements.queries.drafts import DraftPreview, Look, look_at
from placements.scheduling.bindings import Binding
from placements.scheduling.faults import Faults
from placements.scheduling.spec import parse_placement
from placements.views.as_reviewed import moved_since, names_after
from placements.views.editor_showing import conflict, showing
from placements.views.people import is_confirmed, user_of
from placements.views.semantics import draft_sides
from placements.yaml_edits import CannotEditError


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a unified diff: `sort` is added, removed, place or same."""

    sort: str
    text: str


@for_operators("save placements")
@require_http_methods(["GET", "HEAD", "POST"])
def review(request: HttpRequest, number: int) -> HttpResponse:
    """Show what saving a draft would do, or save it as it was shown."""
    found = _own(request, number)
    if request.method != "POST":
        return _page(request, found)
    seen = Seen(request.POST.get("digest", ""), request.POST.get("decision", ""))
    try:
        saved = confirm_draft(
            number,
            seen=seen,
            by=user_of(request),
            now=datetime.now(UTC),
            confirmed=is_confirmed(request),
        )
    except EmptiesPlacementError as error:
        return _page(request, found, status=409, empties=error)
    except PreviewOutdatedError as error:
        return _page(request, found, status=409, outdated="draft" if error.is_text else "fleet")
    except StaleEditError:
        return _page(request, _own(request, number), status=409)
    except Faults as faults:
        return _page(request, found, status=422, refused=faults)
    messages.success(request, f"Saved {saved.placement.name}.")
    return redirect("pages:placement", saved.placement.name)


@for_operators("edit drafts")
@require_POST
def rebase(request: HttpRequest, number: int) -> HttpResponse:
    """Carry a draft over to what somebody else saved meanwhile."""
    keep = Side(request.POST["keep"]) if request.POST.get("keep") in list(Side) else None
    found = _own(request, number)
    try:
        done = rebase_draft(number, by=user_of(request), now=datetime.now(UTC), keep=keep)
    except (CannotEditError, Faults) as error:
        return _overlaps(request, found, (), str(error))
    if done.overlaps and keep is None:
        return _overlaps(request, found, done.overlaps, "")
    messages.success(request, "The draft goes on from what is saved now.")
    return redirect("pages:draft", number)


def _overlaps(
    request: HttpRequest, found: Draft, overlaps: tuple[Overlap, ...], trouble: str
) -> HttpResponse:
    context = {"draft": found, "placement": found.placement, "overlaps": overlaps, "trouble": trouble}
    return render(request, "drafts/overlaps.html", context, status=409)


def _own(request: HttpRequest, number: int) -> Draft:
    try:
        return draft_of(number, by=user_of(request))
    except UnknownDraftError as error:
        raise Http404("You have no draft of that number.") from error


def _page(
    request: HttpRequest,
    found: Draft,
    *,
    status: int = 200,
    outdated: str = "",
    refused: Faults | None = None,
    empties: EmptiesPlacementError | None = None,
) -> HttpResponse:
    placement = found.placement
    look = look_at(found.text, saved=placement, now=datetime.now(UTC), with_waves=True)
    before = placement.document if placement else None
    context = {
        **showing(look, placement),
        "draft": found,
        "placement": placement,
        "digest": digest_of(found.text),
        **conflict(found, placement),
        "outdated": outdated,
        "moved": moved_since(request, look.shown) if outdated == "fleet" and look.shown else [],
        "after": names_after(look.shown) if look.shown else "",
        "was_sentence": _sentence(before) if before else "",
        "manifest_diff": list(_manifest_diff(before, look)),
        "other_reasons": _other_reasons(look.shown) if look.shown else [],
        "is_unchanged": before is not None and look.checked.data == before,
        "refused": refused.faults if refused else (),
        "empties": empties,
        **_rules(request, look),
    }
    return render(request, "drafts/review.html", context, status=status)


def _rules(request: HttpRequest, look: Look) -> dict[str, Any]:
    """Give the draft under the rules of all four systems, where that is asked for."""
    draft = look.checked.draft
    if "rules" not in request.GET or draft is None or look.checked.faults:
        return {"has_rules": False}
    return {"has_rules": True, **draft_sides(draft)}


def _manifest_diff(before: dict[str, Any] | None, look: Look) -> Iterator[DiffLine]:
    old = dump_yaml(before).splitlines() if before else []
    new = dump_yaml(look.checked.data).splitlines() if look.checked.document else []
    lines = unified_diff(old, new, "live", "draft", lineterm="", n=3)
    for line in list(lines)[2:]:
        sorts = {"+": "added", "-": "removed", "@": "place"}
        yield DiffLine(sorts.get(line[:1], "same"), line)


def _sentence(document: Mapping[str, Any]) -> str:
    placement = parse_placement(document)
    return policy_sentence(placement.spec.policy, placement.semantics, placement.spread_options)


def _other_reasons(shown: DraftPreview) -> list[str]:
    """Name who stays with other scores than those that it was picked with."""
    decision = shown.preview.decision
    before = {one.cluster: one for one in decision.cycle.live_bindings if one.is_active}
    return [
        one.cluster
        for one in decision.picked
        if one.cluster in before and _scores(before[one.cluster]) != _plain(one)
    ]


def _scores(binding: Binding) -> tuple[Any, Any]:
    return _plain(binding)


def _plain(scored: Any) -> tuple[Any, Any]:
    spread = scored.topology_spread_score
    return (tuple(spread) if isinstance(spread, list) else spread, scored.affinity_score)
