"""Charts of the spread: the domains against their limits, and the skew after each step."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from clusters.columns import ABSENT
from fleetui.apimachinery.words import first_names, joined
from placements.engine.scheduling.candidates import candidates_of
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.replay import Replay, Spread
from placements.engine.scheduling.spread.base import is_hard
from placements.explain.charts.figure import (
    HATCHED,
    Chart,
    Color,
    GroupName,
    figure_of_panels,
    row_axis,
    whole_ticks,
)
from placements.explain.vocabulary import limit_words, spread_limit, verb
from placements.manifests.policy import PlacementType, TopologySpreadConstraint

MOST_GROUPS, FURTHEST = 24, 12
_HEAD, _NAMED_UP_TO = 44, 12


@dataclass(frozen=True, slots=True)
class DomainBar:
    """One domain: clusters placed before, added by this step, candidates that are left, and all others.

    `smallest` is the count that the domain is compared with.
    """

    name: str
    smallest: int
    before: int
    added: int
    left: int
    outside: int
    names: tuple[str, ...]

    @property
    def placed(self) -> int:
        return self.before + self.added

    @property
    def is_empty_for_good(self) -> bool:
        """Whether no cluster of the domain is placed or can be, and that holds the minimum at 0."""
        return not self.placed and not self.left and not self.smallest


@dataclass(frozen=True)
class _Panel:
    """One constraint with its domains."""

    constraint: TopologySpreadConstraint
    rows: tuple[DomainBar, ...]
    limits_skew: bool
    has_shares: bool

    @property
    def has_band(self) -> bool:
        return (is_hard(self.constraint) or self.limits_skew) and not self.has_shares

    @property
    def top(self) -> float:
        """The end of the axis; candidates may be many more than a few, and are cut there."""
        smallest = max((row.smallest for row in self.rows), default=0)
        allowed = smallest + (self.constraint.max_skew if self.has_band else 0)
        most = max((row.placed + row.left for row in self.rows), default=0)
        largest = max((row.placed for row in self.rows), default=0)
        return max(1, allowed, largest, min(most, max(allowed + 1, 4))) + 0.5

    @property
    def bars(self) -> list[DomainBar]:
        """The domains to draw, the fullest first: of many, those furthest from the mean."""
        ordered = sorted(self.rows, key=lambda row: (-row.placed, row.name))
        if len(ordered) <= MOST_GROUPS:
            return ordered
        mean = sum(row.placed for row in ordered) / len(ordered)
        chosen = sorted(ordered, key=lambda row: (-abs(row.placed - mean), row.name))[:FURTHEST]
        return [row for row in ordered if row in chosen]

    @property
    def labels(self) -> list[str]:
        labels, bars = [], self.bars
        for row in bars:
            # The name of a cluster that this step adds is in its bar, where names have room.
            added = f"  (+{row.added:,})" if row.added and not row.names[row.before :] else ""
            labels.append(f"{row.name}  {row.placed:,} of {row.placed + row.left:,}{added}")
        if others := [row.placed for row in set(self.rows).difference(bars)]:
            low, high = min(others), max(others)
            span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            labels.append(f"{len(others):,} domains nearer the mean  {span}")
        return labels


def group_chart(decision: Decision, step: int | None = None) -> Chart | None:
    """Draw the domains after a step, or as the decision leaves them; None where nothing is spread.

    Raise IndexError for a step that does not exist.
    """
    panels = _panels(decision, step)
    if not panels:
        return None
    heights = [26 * max(2, len(panel.labels)) for panel in panels]
    height = sum(heights) + _HEAD * len(panels)
    chart = make_subplots(
        rows=len(panels),
        cols=1,
        row_heights=heights,
        vertical_spacing=_HEAD / height if len(panels) > 1 else 0,
    )
    for place, panel in enumerate(panels, start=1):
        for trace in _bars(panel):
            chart.add_trace(trace, row=place, col=1)
        # Where counts may lie, for each run of rows that are compared with the same count.
        rows = enumerate(panel.bars) if panel.has_band else ()
        for smallest, run in groupby(rows, key=lambda pair: pair[1].smallest):
            first, *others = [at for at, _ in run]
            high, last = smallest + panel.constraint.max_skew, others[-1] if others else first
            chart.add_shape(
                type="rect",
                x0=smallest,
                x1=high,
                y0=first - 0.5,
                y1=last + 0.5,
                row=place,
                col=1,
                fillcolor=Color.ACCENT,
                opacity=0.12,
                line={"width": 0},
                layer="below",
            )
        chart.update_xaxes(
            row=place, col=1, range=[0, panel.top], zeroline=True, **whole_ticks(int(panel.top))
        )
        title = panel.constraint.topology_key
        chart.update_yaxes(row=place, col=1, title=title, **row_axis(panel.labels))
    return Chart(
        name="groups",
        title="Final spread" if step is None else f"Spread after step {step}",
        caption=_spread_caption(panels),
        figure=figure_of_panels(chart, height=height, barmode="stack", bargap=0.3),
        columns=("Key", "Domain", "Placed", "In this step", "Candidates", "Other clusters"),
        rows=tuple(
            (key, GroupName.of(key, row.name, row.name), row.placed, row.added, row.left, row.outside)
            for panel in panels
            for key in [panel.constraint.topology_key]
            for row in panel.rows
        ),
    )


def _panels(decision: Decision, step: int | None) -> list[_Panel]:
    policy = decision.cycle.policy
    is_spread = policy.placement_type is PlacementType.PICK_N and policy.topology_spread_constraints
    if not is_spread or decision.kind is CycleKind.FAILED:
        return []
    candidates = decision.candidates or candidates_of(decision.cycle)
    if step is None:
        after = {binding.cluster for binding in decision.bindings_after if binding.is_active}
        positions = decision.cycle.fleet.positions
        places = sorted(positions[name] for name in after if name in positions)
        placed, added = np.array(places, dtype=np.int64), decision.chosen[:0]
    else:
        # Where every cycle chooses again, no cluster counts before the first step.
        counted = candidates.placed[:0] if profile_of(decision.cycle).chooses_again else candidates.placed
        placed = np.concatenate([counted, decision.round(step).earlier_picks]).astype(np.int64)
        added = decision.chosen[step - 1 : step]
    left = candidates.passes.copy()
    left[placed] = left[added] = False
    positions_now = np.concatenate([placed, added]).astype(np.int64).tolist()
    panels = []
    for constraint, groups in zip(candidates.constraints, candidates.groups, strict=True):
        before, new, remaining = (groups.count(one) for one in (placed, added, np.nonzero(left)[0]))
        everybody = np.bincount(groups.codes[groups.codes != ABSENT], minlength=len(groups))
        projected = candidates.strategy.project(constraint, groups, before + new)
        names: dict[int, tuple[str, ...]] = {}
        for position in positions_now if len(positions_now) <= _NAMED_UP_TO else ():
            code = int(groups.codes[position])
            names[code] = (*names.get(code, ()), decision.cycle.fleet.names[position])
        rows = tuple(
            DomainBar(
                name,
                int(projected.smallest[code]),
                int(before[code]),
                int(new[code]),
                int(remaining[code]),
                int(everybody[code] - before[code] - new[code] - remaining[code]),
                names.get(code, ()),
            )
            for code, name in enumerate(groups.values)
        )
        panels.append(_Panel(constraint, rows, projected.is_skew, bool(groups.weights)))
    return panels


def _spread_caption(panels: Sequence[_Panel]) -> str:
    sentences = []
    for panel in panels:
        rows = panel.rows
        smallest, largest = (pick((row.placed for row in rows), default=0) for pick in (min, max))
        if not rows:
            counts = "no cluster has the label" if panel.limits_skew else "no domain counts"
        elif smallest == largest:
            domains = "1 domain" if len(rows) == 1 else f"each of {len(rows):,} domains"
            counts = f"{largest:,} in {domains}"
        else:
            fullest, emptiest = (
                _few([row.name for row in rows if row.placed == one]) for one in (largest, smallest)
            )
            counts = f"most in {fullest} ({largest:,}), fewest in {emptiest} ({smallest:,})"
        key, most = panel.constraint.topology_key, panel.constraint.max_skew
        far = ""
        if panel.has_band:
            measure = "skew" if panel.limits_skew else "gap"
            gap = max((row.placed - row.smallest for row in rows), default=0)
            far = f", {measure} {gap} of {most}"
        limit = limit_words(key, most, hard=is_hard(panel.constraint), limits_skew=panel.limits_skew)
        sentences.append(f"{limit}: {counts}{far}.")
        empty = [row.name for row in rows if row.is_empty_for_good]
        if empty and smallest == 0 and is_hard(panel.constraint):
            sentences.append(f"{_few(empty)} {verb(len(empty), 'stays')} at 0 (no candidates).")
        if len(rows) > MOST_GROUPS:
            sentences.append(f"Shown: the {FURTHEST} of {len(rows):,} domains furthest from the mean.")

    # What bars and band mean, and where bars end that are longer than the picture.
    is_cut = any(row.placed + row.left > panel.top for panel in panels for row in panel.bars)
    has_empty = any(row.is_empty_for_good for panel in panels for row in panel.bars)
    legend = "Solid: placed; outlined: candidates" + (" (more of them where open)" if is_cut else "")
    legend += "; hatched: not candidates" if has_empty else ""
    legend += "; shaded: within the limit" if any(panel.has_band for panel in panels) else ""
    return " ".join([*sentences, f"{legend}."])


def _few(names: Sequence[str]) -> str:
    return joined(names) if len(names) <= 4 else first_names(names)


def _bars(panel: _Panel) -> list[go.Bar]:
    rows, top = panel.bars, panel.top
    names = [", ".join(row.names[: row.before]) for row in rows]
    new = [f"+ {', '.join(row.names[row.before :])}" if row.names[row.before :] else "" for row in rows]
    left = [min(row.left, max(0.0, top - row.placed)) for row in rows]
    outside = [min(row.outside, top) if row.is_empty_for_good else 0 for row in rows]
    added = {"color": Color.ACCENT, "line": {"color": Color.TEXT, "width": 2}}
    candidates = {"color": Color.CLEAR, "line": {"color": Color.NEUTRAL, "width": 1}}
    parts: tuple[tuple[str, list[Any], dict[str, Any], str, list[str] | None], ...] = (
        ("placed", [row.before for row in rows], {"color": Color.SERIES}, Color.ON_SERIES, names),
        ("placed in this step", [row.added for row in rows], added, Color.ON_ACCENT, new),
        ("candidates", left, candidates, Color.TEXT, None),
        ("not candidates: the minimum stays at 0", outside, HATCHED, Color.TEXT, None),
    )
    return [
        go.Bar(
            orientation="h",
            y=list(range(len(rows))),
            x=values,
            name=what,
            marker=marker,
            text=texts or None,
            insidetextfont={"color": color},
            textposition="inside",
            insidetextanchor="start",
            constraintext="inside",
            customdata=[[row.name, row.placed, row.left, row.outside] for row in rows],
            hovertemplate=f"%{{customdata[0]}}: {what}<br>%{{customdata[1]:,d}} placed, %{{customdata[2]:,d}}"
            " candidates, %{customdata[3]:,d} others<extra></extra>",
        )
        for what, values, marker, color, texts in parts
    ]


MOST_STEPS = 400
"""Lines are drawn, and rows listed, up to this many steps; a longer decision shows its last ones."""
_MOST_COUNTS = 1_000_000
"""Of domains, over the steps that are drawn: with a domain for each cluster there are fewer steps."""


def skew_chart(decision: Decision, current: int | None = None) -> Chart | None:
    """Draw the skew of each constraint after each step, and mark the current one.

    None for a decision without steps or constraints.
    """
    replay, total = Replay(decision), decision.number_of_rounds
    most = min(MOST_STEPS, 1 + _MOST_COUNTS // max(1, decision.domains_in_round))
    last = total if current is None else min(total, max(current + most // 2, most))
    rows: list[tuple[Any, ...]] = []  # without the counts of the steps, which are one for each domain
    spreads: tuple[Spread, ...] = ()
    for number in range(max(1, last - most + 1), last + 1):
        step = replay.step(number)
        spreads = spreads or step.spreads
        rows.append((number, step.winner or "none", *(one.skew_after for one in step.spreads)))
    if not spreads:
        return None
    measure = "skew" if spreads[0].limits_skew else "gap"
    numbers, winners, *columns = zip(*rows, strict=True)

    parts = []
    for limit, values in zip(spreads, columns, strict=True):
        words = f"{spread_limit(limit)}: at most {max(values)} during the steps, {values[-1]} at the end"
        among = "its emptiest sibling" if limit.is_nested else "the emptiest"
        parts.append(words if limit.limits_skew else f"{words}, the fullest domain above {among}")
    caption = "; ".join(parts) + "."
    if len(rows) < total:
        where = "the last" if last == total else f"steps {numbers[0]} to {last},"
        caption += f" Shown: {where} {len(rows):,} of {total:,} steps."

    chart = make_subplots(rows=len(spreads), cols=1, shared_xaxes=True, vertical_spacing=0.24 / len(spreads))
    for place, (limit, values) in enumerate(zip(spreads, columns, strict=True), start=1):
        line = go.Scatter(
            x=numbers,
            y=values,
            mode="lines+markers" if len(rows) <= 40 else "lines",
            line={"shape": "hv", "color": Color.ACCENT, "width": 2},
            customdata=winners,
            hovertemplate=f"step %{{x}}: %{{customdata}}<br>{measure} %{{y}}<extra></extra>",
        )
        chart.add_trace(line, row=place, col=1)
        is_limit = limit.is_hard or limit.limits_skew
        if is_limit:
            dashes = {"color": Color.ATTENTION, "dash": "dash", "width": 2}
            chart.add_hline(y=limit.max_skew, row=place, col=1, line=dashes)
        if current is not None:
            chart.add_vline(
                x=current, row=place, col=1, line={"color": Color.TEXT, "dash": "dot", "width": 1}
            )
        top = max(limit.max_skew if is_limit else 1, *values)
        title = f"{limit.topology_key} {measure}"
        chart.update_yaxes(row=place, col=1, title=title, range=[0, top * 1.15], **whole_ticks(top, most=4))
    chart.update_xaxes(row=len(spreads), col=1, title="step", **whole_ticks(len(rows), most=12))
    return Chart(
        name="skews",
        title=f"{measure.capitalize()} by step",
        caption=caption,
        figure=figure_of_panels(chart, height=96 * len(spreads) + 48),
        columns=("Step", "Selected", *(f"{one.topology_key}: {measure}" for one in spreads)),
        rows=tuple(rows),
    )
