"""Sentences about a rolling update: what the budgets leave, why each cluster waits, what would free it."""

from collections.abc import Callable, Sequence
from datetime import datetime

from placements.explain.wording import counted, joined, verb
from placements.rollout.answer import Answer, Block, HeldBack, Remove, UnderWay, Waiting
from placements.rollout.budget import Ceiling, Floor, Slots
from placements.rollout.state import Phase

_NAMES_SHOWN = 3


def floor_sentence(floor: Floor) -> str:
    """Write how many available clusters may be taken down: the arithmetic in one line."""
    return (
        f"ready {floor.ready:,} − at risk {floor.at_risk:,} − floor {floor.floor:,}"
        f" = {_more(floor.ready - floor.at_risk - floor.floor)} may be taken down"
    )


def ceiling_sentence(ceiling: Ceiling) -> str:
    """Write how many clusters may be added: the arithmetic in one line."""
    taken = ceiling.holding + ceiling.added
    return f"ceiling {ceiling.ceiling:,} − placed {taken:,} = {_more(ceiling.ceiling - taken)} may be added"


def slots_sentence(slots: Slots) -> str:
    """Write how many removals of a deletion may start: the arithmetic in one line."""
    running = slots.running + slots.started
    return f"at once {slots.limit:,} − running {running:,} = {_more(slots.limit - running)} may be cleared"


def _more(number: int) -> str:
    return f"{number:,} more" if number >= 0 else f"−{-number:,}: none"


def held_back_sentence(held: HeldBack) -> str:
    """Say which removals the floor holds back, and what would let them go (lifecycle A.5)."""
    staying = len(held.staying)
    stay = f"{staying:,} {verb(staying, 'stays')} until replacements are available"
    if held.found < held.asked_for:
        return f"only {held.found:,} of {held.asked_for:,} found; {stay}, or lower the number"
    return stay


def waiting_sentence(waiting: Waiting, answer: Answer, *, clusters: int = 1) -> str:
    """Say why a cluster waits, or several alike; it reads after the name of the cluster, or their names."""
    return _WHY[waiting.block](waiting, answer, clusters)


def freeing_sentence(waiting: Waiting, answer: Answer) -> str:
    """Name what would free a cluster that waits."""
    return _FREED_BY[waiting.block](waiting, answer)


def under_way_sentence(under_way: UnderWay) -> str:
    """Say what a cluster is busy with; it reads after the name of the cluster."""
    until = f" until {_time(under_way.until)}" if under_way.until else ""
    words = {
        Phase.APPLYING: "is being applied",
        Phase.SETTLING: "settles" if under_way.until else "is applied and not available yet",
        Phase.REMOVING: "is being cleared",
    }
    return f"{words[under_way.phase]}{until}"


def unreachable_sentence(answer: Answer) -> str:
    """Name the clusters out of reach that an answer waits for, and since when; empty where there are none."""
    away = [one for one in answer.waiting if one.block is Block.UNREACHABLE]
    if not away:
        return ""
    first = min((one.since for one in away if one.since), default=None)
    some = ", the first of them" if len({one.since for one in away}) > 1 else ""
    return f"{listed([one.cluster for one in away])} cannot be reached{_since(first)}{some}"


def listed(words: Sequence[str]) -> str:
    """Join the first three words, and count the others."""
    more = [f"{len(words) - _NAMES_SHOWN:,} more"] if len(words) > _NAMES_SHOWN else []
    return joined([*words[:_NAMES_SHOWN], *more])


def _wanted(waiting: Waiting, clusters: int) -> str:
    has = f"{verb(clusters, 'has')} nothing yet"
    runs = f"{verb(clusters, 'runs')} {waiting.running}" if waiting.running else has
    if waiting.wanted is None:
        return f"{runs} and {_to_be_cleared(clusters)}"
    return f"{runs} and {_waits_for(waiting, clusters)}"


def _to_be_cleared(clusters: int) -> str:
    return f"{verb(clusters, 'is')} to be cleared"


def _waits_for(waiting: Waiting, clusters: int) -> str:
    return f"{verb(clusters, 'waits')} for {waiting.wanted}"


def _becoming_available(answer: Answer) -> list[str]:
    return [
        *(
            f"{each.cluster} becoming available" + (f" at {_time(each.until)}" if each.until else "")
            for each in answer.under_way
            if each.phase is not Phase.REMOVING
        ),
        *(
            f"{action.cluster} becoming available"
            for action in answer.actions
            if not isinstance(action, Remove)
        ),
        *(
            f"{each.cluster} succeeding when it is tried again"
            for each in answer.waiting
            if each.block is Block.RETRY_LATER
        ),
        *(f"{name} coming back" for name in answer.unreachable),
    ]


def _being_cleared(answer: Answer) -> list[str]:
    names = [each.cluster for each in answer.under_way if each.phase is Phase.REMOVING]
    names += [action.cluster for action in answer.actions if isinstance(action, Remove)]
    return [f"{name} being cleared" for name in names]


def _time(moment: datetime) -> str:
    return moment.strftime("%H:%M:%S")


def _since(moment: datetime | None) -> str:
    return f" since {moment:%Y-%m-%d %H:%M:%S} UTC" if moment else ""


def _update_floor(waiting: Waiting, answer: Answer, clusters: int) -> str:
    floor, wanted = answer.budgets.updates, _wanted(waiting, clusters)
    if floor.limit == 0:
        return f"{wanted}; maxUnavailable 0 lets no cluster be taken down: {floor_sentence(floor)}"
    return f"{wanted}; {floor_sentence(floor)}"


def _ceiling(waiting: Waiting, answer: Answer, clusters: int) -> str:
    return f"{_wanted(waiting, clusters)}; {ceiling_sentence(answer.budgets.additions)}"


def _retry_later(waiting: Waiting, _: Answer, clusters: int) -> str:
    at = f" at {_time(waiting.until)}" if waiting.until else ""
    if clusters > 1:
        return f"failed; the first of them is tried again{at}"
    return f"failed {_attempts(waiting)}; it is tried again{at}"


def _unreachable(waiting: Waiting, _: Answer, clusters: int) -> str:
    noun = "cluster" if clusters == 1 else "clusters"
    return f"{_stands(waiting, clusters)}; the {noun} cannot be reached{_since(waiting.since)}"


def _stands(waiting: Waiting, clusters: int) -> str:
    if waiting.wanted is None or waiting.running != waiting.wanted:
        return _wanted(waiting, clusters)
    was, has = ("was", "has") if clusters == 1 else ("were", "have")
    return f"{was} given {waiting.wanted} and {has} not become available"


def _attempts(waiting: Waiting) -> str:
    return counted(waiting.action.attempt - 1, "time") if waiting.action else "before"


def _deletion_limit(_: Waiting, answer: Answer, clusters: int) -> str:
    slots, cleared = answer.budgets.deletion, _to_be_cleared(clusters)
    return f"{cleared}; {slots_sentence(slots)}" if slots else cleared


def _not_in_fleet(waiting: Waiting, _: Answer, clusters: int) -> str:
    who = "the cluster is" if clusters == 1 else "the clusters are"
    return f"{_wanted(waiting, clusters)}; {who} no longer in the fleet"


_WHY: dict[Block, Callable[[Waiting, Answer, int], str]] = {
    Block.PAUSED: lambda waiting, _, clusters: f"{_wanted(waiting, clusters)}; the placement is paused",
    Block.STOPPED: lambda waiting, _, clusters: f"{_wanted(waiting, clusters)}; the run was stopped",
    Block.NOT_IN_FLEET: _not_in_fleet,
    Block.UNREACHABLE: _unreachable,
    Block.RETRY_LATER: _retry_later,
    Block.BEING_REMOVED: lambda waiting, _, clusters: (
        f"{_waits_for(waiting, clusters)}; the old is being cleared"
    ),
    Block.UPDATE_FLOOR: _update_floor,
    Block.REMOVAL_FLOOR: lambda waiting, answer, clusters: (
        f"{_wanted(waiting, clusters)}; {floor_sentence(answer.budgets.removals)}"
    ),
    Block.CEILING: _ceiling,
    Block.DELETION_LIMIT: _deletion_limit,
}


def _frees_update(_: Waiting, answer: Answer) -> str:
    floor = answer.budgets.updates
    return listed(_becoming_available(answer) if floor.limit else []) or "a larger maxUnavailable"


def _frees_removal(_: Waiting, answer: Answer) -> str:
    held = answer.held_back
    if held and held.is_for_good:
        return "a lower number, a policy that finds more clusters, or a larger maxUnavailable"
    return listed(_becoming_available(answer)) or "more available clusters, or a larger maxUnavailable"


def _frees_addition(_: Waiting, answer: Answer) -> str:
    if answer.budgets.additions.limit == 0:
        return listed(_being_cleared(answer)) or "a removal, or a maxSurge above 0"
    return listed(_being_cleared(answer)) or "a removal, or a larger maxSurge"


def _frees_unreachable(waiting: Waiting, _: Answer) -> str:
    if waiting.forgettable_from is None:
        return "its coming back"
    return f"its coming back, or forgetting it from {_time(waiting.forgettable_from)} on"


_FREED_BY: dict[Block, Callable[[Waiting, Answer], str]] = {
    Block.PAUSED: lambda *_: "resuming the placement",
    Block.STOPPED: lambda *_: "a new run",
    Block.NOT_IN_FLEET: lambda *_: "the next decision",
    Block.UNREACHABLE: _frees_unreachable,
    Block.RETRY_LATER: lambda *_: "a retry now, or a newer version",
    Block.BEING_REMOVED: lambda *_: "the end of the removal",
    Block.UPDATE_FLOOR: _frees_update,
    Block.REMOVAL_FLOOR: _frees_removal,
    Block.CEILING: _frees_addition,
    Block.DELETION_LIMIT: lambda _, answer: listed(_being_cleared(answer)) or "the end of another removal",
}
