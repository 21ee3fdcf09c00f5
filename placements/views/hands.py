"""People's hands on a rollout: each is a POST; asked for with GET, it says first what it would do."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from fleetui.access import for_operators
from placements.models import Placement, ResourceSnapshot
from placements.operations.rollouts import hands
from placements.operations.rollouts.hands import HandRefusedError
from placements.queries.runs import latest_run
from placements.views.people import user_of


@dataclass(frozen=True, slots=True)
class Hand:
    """One thing that people do with a rollout: its words, and doing it."""

    button: str
    consequence: str
    done: str
    run: Callable[..., object]
    is_grave: bool = False
    begins_a_run: bool = False


HANDS = {
    "pause": Hand(
        "Pause {}",
        "Nothing more starts. What is under way is seen to its end; a newer version waits too.",
        "is paused",
        hands.pause,
    ),
    "resume": Hand("Resume {}", "The rollout goes on where it was paused.", "goes on", hands.resume),
    "stop": Hand(
        "Stop the run of {}",
        "The run ends for good, wherever the clusters are: some on the new version, some on the old. Nothing"
        " starts until somebody begins a new run.",
        "is stopped",
        hands.stop,
        is_grave=True,
    ),
    "start": Hand(
        "Begin a new run of {}",
        "A new run carries on from where the clusters are.",
        "begins a new run",
        hands.begin_anew,
        begins_a_run=True,
    ),
    "release": Hand(
        "Release {}",
        "It follows the hub again: what has changed there since the rollback is carried out.",
        "follows the hub again",
        hands.release,
        begins_a_run=True,
    ),
}


@for_operators("lay hands on rollouts")
@require_http_methods(["GET", "HEAD", "POST"])
def lay_hand(request: HttpRequest, name: str, hand: str) -> HttpResponse:
    """Say what a hand would do, or lay it."""
    found, wanted = get_object_or_404(Placement, name=name), HANDS[hand]
    return _page(
        request,
        found,
        {"title": wanted.button.format(name), "consequence": wanted.consequence, "is_grave": wanted.is_grave},
        lambda: wanted.run(name, by=user_of(request), now=datetime.now(UTC)),
        done=lambda _: f"{name} {wanted.done}.",
        begins_a_run=wanted.begins_a_run,
    )


@for_operators("lay hands on rollouts")
@require_http_methods(["GET", "HEAD", "POST"])
def retry(request: HttpRequest, name: str, cluster: str) -> HttpResponse:
    """Try again what failed on one cluster, at once."""
    return _page(
        request,
        get_object_or_404(Placement, name=name),
        {
            "title": f"Retry {name} on {cluster}",
            "consequence": "What failed there is tried again at once, without waiting for its turn.",
        },
        lambda: hands.retry(name, cluster, by=user_of(request), now=datetime.now(UTC)),
        done=lambda _: f"{name} is tried again on {cluster}.",
    )


@for_operators("lay hands on rollouts")
@require_http_methods(["GET", "HEAD", "POST"])
def roll_back(request: HttpRequest, name: str) -> HttpResponse:
    """Choose older resources, or go back to them."""
    found = get_object_or_404(Placement, name=name)
    kept = found.resource_snapshots.defer("identities").order_by("-number")
    older, latest = kept.filter(is_latest=False), kept.filter(is_latest=True).first()
    written = request.POST.get("number", "")
    number = int(written) if written.isdecimal() and len(written) < 10 else -1
    return _page(
        request,
        found,
        {
            "title": f"Roll {name} back",
            "consequence": _rolling_back(name, latest),
            "is_grave": True,
            "snapshots": older,
        },
        lambda: hands.roll_back(name, number, by=user_of(request), now=datetime.now(UTC)),
        done=lambda restored: (
            f"{name} is rolled back to the content of r{number}: it goes out as r{restored.number},"
            " and is held until somebody releases it."
        ),
        begins_a_run=True,
    )


def _rolling_back(name: str, latest: ResourceSnapshot | None) -> str:
    """Say what a rollback does: whose content, under which number, and what is held until when."""
    new = f"r{latest.number + 1}" if latest else "a new number"
    return (
        f"The content of the snapshot chosen here becomes a new one, {new}, which goes to the clusters under"
        f" the same budgets. {name} is then held at {new}: what changes on the hub is not carried out until"
        " somebody releases it."
    )


def _page(
    request: HttpRequest,
    placement: Placement,
    words: dict[str, Any],
    run: Callable[[], Any],
    *,
    done: Callable[[Any], str],
    begins_a_run: bool = False,
) -> HttpResponse:
    """Ask for a confirmation, or do it; what is refused is told with the same page.

    Then it leads to the run, or to the placement, whose page waits for the run that is to begin.
    """
    context = {"placement": placement, "is_grave": False, "snapshots": None, "refused": "", **words}
    if request.method != "POST":
        return render(request, "rollouts/hand.html", context)
    try:
        said = done(run())
    except HandRefusedError as error:
        return render(request, "rollouts/hand.html", {**context, "refused": str(error)}, status=409)
    messages.success(request, said)
    latest = None if begins_a_run else latest_run(placement)
    if latest is None:
        return redirect("pages:placement", placement.name)
    return redirect("pages:rollout", placement.name, latest.number)
