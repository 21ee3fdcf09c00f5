"""What-if impact: which placements are rescheduled or lose clusters?"""

from collections.abc import Sequence
from dataclasses import dataclass

from fleetui.apimachinery.words import counted
from placements.explain.charts.figure import Chart, Color, stacked_bars
from placements.explain.vocabulary import verb

MOST_BARS = 30


@dataclass(frozen=True, slots=True)
class Bar:
    """One placement: the number of clusters on which it stays, from which it moves, and that it loses."""

    placement: str
    impact: str
    stays: int
    moves: int
    lost: int


def what_if_chart(bars: Sequence[Bar], *, total: Bar, in_all: int) -> Chart | None:
    """Draw the affected placements, in the order of `bars`; None where nothing is placed.

    `total` sums up all `in_all` placements, those beyond the first thirty among them.
    """
    placed = total.stays + total.moves + total.lost
    if not placed:
        return None
    worst = bars[:MOST_BARS]
    rows = [*worst, total]
    lost = f"{total.lost:,} {verb(total.lost, 'is')} lost"
    caption = (
        f"Of {counted(placed, 'placed cluster')}, {total.stays:,} {verb(total.stays, 'stays')},"
        f" {total.moves:,} {verb(total.moves, 'moves')}, {lost}"
    )
    if in_all > len(worst):
        caption += f". Shown: {len(worst):,} of {in_all:,} placements, the worst first"

    # Counts beside the names: a few of thousands are no more than a hair.
    labels = []
    for one in rows:
        changes = ((one.moves, "moves", ""), (one.lost, "is", " lost"))
        parts = [f"{count:,} {verb(count, word)}{more}" for count, word, more in changes if count]
        labels.append(f"{one.placement}  {', '.join(parts)}".rstrip())
    names = [one.placement for one in rows]
    return Chart(
        name="what-if",
        title="Placements moved and lost",
        caption=f"{caption}.",
        figure=stacked_bars(
            names,
            [
                ("stay", Color.SERIES, "", [one.stays for one in rows]),
                ("move", Color.ATTENTION, "/", [one.moves for one in rows]),
                ("are lost", Color.FAILED, "x", [one.lost for one in rows]),
            ],
            height=22 * len(rows) + 72,
            bargap=0.3,
            showgrid=False,
            tickvals=names,
            ticktext=labels,
        ),
        columns=("Placement", "Impact", "Stays on", "Moves from", "Loses"),
        rows=tuple((one.placement, one.impact, one.stays, one.moves, one.lost) for one in rows),
    )
