"""What became of a decision: the run that carried it out, of either sort."""

from django.db.models import Q

from placements.models import Decision, Rollout, StagedRun


def run_after(row: Decision) -> Rollout | StagedRun | None:
    """Give the run that carried a decision out; None where there was none yet.

    Of rolling updates it is the one under way then, or the next. A staged run freezes what was decided when
    it begins, so it is the first that was made since, or that waited for this decision.
    """
    if row.placement_id is None:
        return None
    rolling, staged = _rolling(row), _staged(row)
    if rolling is None or staged is None:
        return rolling or staged
    return rolling if rolling.started_at <= staged.created_at else staged


def _rolling(row: Decision) -> Rollout | None:
    runs = Rollout.objects.filter(placement=row.placement_id).defer("answer", "waves")
    under_way = Q(ended_at__isnull=True) | Q(ended_at__gte=row.created_at)
    return runs.filter(under_way).order_by("number").first()


def _staged(row: Decision) -> StagedRun | None:
    runs = StagedRun.objects.filter(placement=row.placement_id)
    runs = runs.defer("plan", "answer", "strategy", "overrides", "document")
    since = Q(created_at__gte=row.created_at)
    if _is_first_of_its_policy(row):
        since |= Q(plan__policy_snapshot=str(row.policy_number))
    return runs.filter(since).order_by("pk").first()


def _is_first_of_its_policy(row: Decision) -> bool:
    earlier = Decision.objects.filter(placement=row.placement_id, number__lt=row.number)
    return not earlier.filter(policy_number=row.policy_number).exists()
