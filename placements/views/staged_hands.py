"""People's hands on a staged run: each is a POST; asked for with GET, it says first what it would do."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from fleetui.access import for_approvers, for_operators
from placements.models import StagedRun
from placements.operations.rollouts.hands import HandRefusedError
from placements.operations.staged import hands
from placements.queries.staged_approvals import why_not_approve
from placements.scheduling.door.staged_documents import RunState
from placements.scheduling.faults import Faults
from placements.views.people import user_of


@dataclass(frozen=True, slots=True)
class Hand:
    """One thing that people do with a staged run: its words, and doing it."""

    button: str
    consequence: str
    done: str
    run: Callable[..., object]
    is_grave: bool = False


HANDS = {
    "resume": Hand(
        "Let {} go",
        "It begins, or goes on where it was stopped. A timed wait that was under way begins anew.",
        "goes on",
        partial(hands.set_state, state=RunState.RUN),
    ),
    "stop": Hand(
        "Stop {}",
        "Nothing more starts. What is under way on clusters is seen to its end. It can be let go again.",
        "is told to stop",
        partial(hands.set_state, state=RunState.STOP),
    ),
    "abandon": Hand(
        "Abandon {}",
        "The run ends for good, wherever the clusters are: some on the new version, some on the old. What is"
        " under way comes to its end; what has failed is not tried again until somebody starts another run.",
        "is abandoned",
        hands.abandon,
        is_grave=True,
    ),
}


@for_operators("lay hands on staged runs")
@require_http_methods(["GET", "HEAD", "POST"])
def lay_hand(request: HttpRequest, name: str, hand: str) -> HttpResponse:
    """Say what a hand would do, or lay it."""
    wanted = HANDS[hand]
    return _page(
        request,
        get_object_or_404(StagedRun, name=name),
        {"title": wanted.button.format(name), "consequence": wanted.consequence, "is_grave": wanted.is_grave},
        wanted.run,
        done=f"{name} {wanted.done}.",
    )


@for_operators("lay hands on staged runs")
@require_http_methods(["GET", "HEAD", "POST"])
def skip_wait(request: HttpRequest, name: str, stage: str) -> HttpResponse:
    """End the timed wait of a stage."""
    return _page(
        request,
        get_object_or_404(StagedRun, name=name),
        {
            "title": f"Skip the wait of stage {stage}",
            "consequence": f"The wait after stage {stage} of {name} ends now. An approval cannot be skipped.",
        },
        partial(hands.skip_wait, stage=stage),
        done=f"{name} does not wait any longer after stage {stage}.",
    )


@for_operators("lay hands on staged runs")
@require_http_methods(["GET", "HEAD", "POST"])
def retry(request: HttpRequest, name: str, cluster: str) -> HttpResponse:
    """Try again what failed on one cluster, at once."""
    return _page(
        request,
        get_object_or_404(StagedRun, name=name),
        {
            "title": f"Retry {name} on {cluster}",
            "consequence": "What failed there is tried again at once, without waiting for its turn.",
        },
        partial(hands.retry, cluster=cluster),
        done=f"{name} is tried again on {cluster}.",
    )


@for_approvers("approve stages")
@require_http_methods(["GET", "HEAD", "POST"])
def approve(request: HttpRequest, name: str, stage: str) -> HttpResponse:
    """Say what letting a stage go on leads to, or do it."""
    run = get_object_or_404(StagedRun.objects.select_related("placement"), name=name)
    return _page(
        request,
        run,
        {
            "title": f"Approve stage {stage} of {name}",
            "consequence": _goes_on(run, stage) + " That it was you, and when, is kept with the run.",
            "refused": why_not_approve(run, user_of(request)),
        },
        partial(hands.approve, stage=stage),
        done=f"Stage {stage} of {name} is approved.",
    )


def _goes_on(run: StagedRun, stage: str) -> str:
    """Say what an approval lets happen."""
    request = run.approvals.filter(stage=stage, approved_at=None).first()
    if request is None:
        return f"Stage {stage} does not wait for anybody."
    if request.side == "before":
        return f"Stage {stage} begins, and its clusters are updated in their order."
    return f"Stage {stage} is updated; the run goes on with the next stage once nothing else is waited for."


def _page(
    request: HttpRequest,
    run: StagedRun,
    words: dict[str, Any],
    lay: Callable[..., object],
    *,
    done: str,
) -> HttpResponse:
    """Ask for a confirmation, or do it and go to the run; what is refused is told with the same page."""
    context = {"run": run, "is_grave": False, "refused": "", **words}
    if request.method != "POST":
        return render(request, "rollouts/staged/hand.html", context)
    try:
        lay(run.name, by=user_of(request), now=datetime.now(UTC))
    except (HandRefusedError, PermissionDenied) as error:
        status = 403 if isinstance(error, PermissionDenied) else 409
        return render(request, "rollouts/staged/hand.html", {**context, "refused": str(error)}, status=status)
    except Faults as found:
        said = "; ".join(fault.message for fault in found.faults)
        return render(request, "rollouts/staged/hand.html", {**context, "refused": said}, status=409)
    messages.success(request, done)
    return redirect("pages:staged-run", run.name)
