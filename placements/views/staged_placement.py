"""What the page of a placement says of its staged runs."""

from typing import Any

from placements.explain.staged_wording import run_sentences
from placements.models import Binding, Placement, StagedRun
from placements.queries.drain_impact import has_begun_run
from placements.queries.staged import answer_in
from placements.rollout.state import Phase
from placements.views import states

_NAMES_SHOWN = 8


def staged_context(placement: Placement) -> dict[str, Any]:
    """Give the newest run, and where something failed that nobody tries again outside a run."""
    run = StagedRun.objects.filter(placement=placement).select_related("placement").order_by("-pk").first()
    answer = answer_in(run) if run and run.ended_at is None else None
    rows = Binding.objects.filter(placement=placement, phase__in=(Phase.FAILED, Phase.REMOVE_FAILED))
    failed = list(rows.order_by("cluster_name").values_list("cluster_name", flat=True))
    return {
        "staged_run": run,
        "staged_state": states.staged_state(run) if run else None,
        "staged_sentences": run_sentences(answer) if answer else [],
        "staged_begun": has_begun_run(placement),
        "staged_failed": failed[:_NAMES_SHOWN],
        "staged_more": max(0, len(failed) - _NAMES_SHOWN),
    }
