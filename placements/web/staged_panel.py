"""The panel about staged runs on the page of a placement."""

from typing import Any

from placements.engine.rollout.state import Phase
from placements.explain.staged_updates import run_sentences
from placements.models import Binding, Placement, StagedRun
from placements.services.disruption.impact import has_begun_run
from placements.services.rollouts.staged_queries import result_in
from placements.web import badges

_NAMES_SHOWN = 8


def staged_context(placement: Placement) -> dict[str, Any]:
    """Return the newest run, and the failed clusters, which are retried only by a run."""
    run = StagedRun.objects.filter(placement=placement).select_related("placement").order_by("-pk").first()
    result = result_in(run) if run and run.ended_at is None else None
    rows = Binding.objects.filter(placement=placement, phase__in=(Phase.FAILED, Phase.REMOVE_FAILED))
    failed = list(rows.order_by("cluster_name").values_list("cluster_name", flat=True))
    return {
        "staged_run": run,
        "staged_state": badges.staged_state(run) if run else None,
        "staged_sentences": run_sentences(result) if result else [],
        "staged_begun": has_begun_run(placement),
        "staged_failed": failed[:_NAMES_SHOWN],
        "staged_more": max(0, len(failed) - _NAMES_SHOWN),
    }
