"""Two decisions on the same inputs, compared: a record and what comes out when it is decided again."""

import zlib
from itertools import zip_longest

from placements.scheduling.decision import Decision
from placements.scheduling.storage import pack


def difference(stored: Decision, again: Decision) -> str:
    """Say where deciding again first departs from what is stored; empty where everything is equal.

    Everything is the id, the picks in their order, what stays and what goes, and every column that the picks
    competed on.
    """
    if again.id != stored.id:
        return f"its id would be {again.id}"
    for step, (was, now) in enumerate(zip_longest(stored.picked_names, again.picked_names), start=1):
        if was != now:
            return f"step {step} picked {was or 'nothing'}, and would pick {now or 'nothing'}"
    for words, was, now in (
        ("what stays", stored.kept, again.kept),
        ("what is unscheduled", stored.unscheduled, again.unscheduled),
    ):
        if was != now:
            return f"{words} would be another list of {len(now)} clusters, not of {len(was)}"
    return "" if _content(stored) == _content(again) else "its columns would hold other values"


def _content(decision: Decision) -> bytes:
    return zlib.decompress(pack(decision))
