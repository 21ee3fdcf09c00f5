"""Rebalance plans: what does each number of moves reach?"""

import plotly.graph_objects as go

from fleetui.apimachinery.words import counted
from placements.engine.exact.rebalance import MovePlan
from placements.explain.charts.figure import LEGEND_ABOVE, Chart, Color, figure, round_ticks


def curve_chart(plan: MovePlan) -> Chart | None:
    """Draw what each number of moves reaches; None where there is one point only."""
    curve = plan.curve
    if len(curve) < 2:
        return None
    limits = [str(one.limit) for one in curve]
    names = ("placed", "hard_excess", "excess", "stale", "skew", "affinity")
    placed, hard, soft, stale, skew, affinity = ([getattr(one, name) for one in curve] for name in names)
    series = [
        ("excess of hard limits", Color.FAILED, "solid", hard),
        ("excess of soft limits", Color.ATTENTION, "dash", soft),
        ("outdated placements", Color.UNKNOWN, "dot", stale),
        ("clusters missing", Color.PROGRESS, "dashdot", [plan.wanted - one for one in placed]),
        ("skew", Color.NEUTRAL, "solid", skew),
    ]
    # A flat line has no information, and hides that something else improves.
    visible = [one for one in series[:-1] if any(one[-1])]
    visible = visible or [one for one in series[-1:] if len({*one[-1]}) > 1]
    largest = max((max(values) for *_, values in visible), default=0)
    counts = {"title": "clusters", "range": [0, max(1, largest) * 1.06], **round_ticks(largest)}
    most = min(10, max(affinity) - min(affinity) + 1)
    scores = {"title": "affinity score", "tickformat": ",d", "nticks": most}
    axes = {"yaxis": counts if visible else scores}
    if len({*affinity}) > 1 or not visible:
        if visible:
            axes["yaxis2"] = {**scores, "overlaying": "y", "side": "right", "showgrid": False}
        visible.append(("affinity score", Color.ACCENT, "longdash", affinity))
    lines = [
        go.Scatter(
            name=name,
            mode="lines+markers",
            x=limits,
            y=values,
            yaxis="y2" if "yaxis2" in axes and values is affinity else "y",
            line={"color": color, "dash": dash, "width": 2},
            hovertemplate=f"%{{x}} moves: %{{y}} {name}<extra></extra>",
        )
        for name, color, dash, values in visible
    ]
    titles = ("Moves", "Selected", "Hard excess", "Soft excess", "Outdated", "Skew", "Affinity")
    moves = [one.limit for one in curve]
    columns = zip(titles, (moves, placed, hard, soft, stale, skew, affinity), strict=True)
    table = [one for one in columns if any(one[1])]  # a phone has no place for columns of zeros
    return Chart(
        name="rebalance",
        title="Result by number of moves",
        caption=f"The best possible set takes {counted(curve[-1].moves, 'move')}.",
        figure=figure(
            *lines, height=240, xaxis={"title": "moves at most", "type": "category"}, **axes, **LEGEND_ABOVE
        ),
        columns=tuple(name for name, _ in table),
        rows=tuple(zip(*(values for _, values in table), strict=True)),
    )
