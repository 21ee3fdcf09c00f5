"""The difference of two revisions as Markdown, JSON and SARIF."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from fleetui.apimachinery.words import first_lines, names_and_more
from placements.engine.checks.file import NAME
from placements.explain.checks import (
    SARIF_LEVELS,
    TITLES,
    finding_document,
    labels_sarif,
)
from placements.explain.sarif import SarifResult, sarif_text
from placements.explain.staged_updates import duration_words
from placements.explain.vocabulary import verb

_FINDINGS_SHOWN = _GATES_SHOWN = _NOTES_SHOWN = 20
_LONGEST_LINE = 600
_LONGEST = 60_000
_NAMES_SHOWN = 20
_VERSION = 1


def impact_document(impact: Any, gates: Sequence[Any]) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "placements": len(impact.rows),
        "changed": len(impact.changed),
        "bindings": impact.bindings_before,
        "moves": impact.leaves,
        "rows": [
            {
                "placement": row.name,
                "file": row.where.file,
                "line": row.where.line,
                "change": row.change,
                "before": len(row.placed_before),
                "after": len(row.placed_now),
                "joins": row.joins,
                "leaves": row.leaves,
                "stays": len(row.placed_before & row.placed_now),
                "becomesUnfulfilled": row.becomes_unfulfilled,
                "becomesFulfilled": row.becomes_fulfilled,
                "skews": [
                    {"key": key, "before": before, "after": after}
                    for key, before, after in row.skews
                ],
                "rolloutSeconds": row.rollout_seconds,
                "fresh": {"joins": row.fresh_joins, "leaves": row.fresh_leaves},
                "findings": [
                    finding_document(row.name, finding) for finding in row.findings
                ],
            }
            for row in impact.changed
        ],
        "incomplete": any(note.is_incomplete for note in impact.notes),
        "notes": [note_document(note) for note in impact.notes],
        "fleetFindings": [
            finding_document("", finding) for finding in impact.fleet_findings
        ],
        "gates": [
            {
                "gate": gate.gate,
                "state": str(gate.state),
                "placement": gate.row.name if gate.row else None,
                "message": gate.message,
            }
            for gate in gates
        ],
    }


def note_document(one: Any) -> dict[str, Any]:
    return {
        "file": one.file,
        "line": one.line,
        "message": one.message,
        "incomplete": one.is_incomplete,
    }


def notes_sarif(notes: Sequence[Any]) -> list[SarifResult]:
    return [
        SarifResult(
            "not-rendered" if note.is_incomplete else "not-read",
            "warning",
            note.message,
            note.file,
            note.line,
        )
        for note in notes
    ]


def headline_of(impact: Any) -> str:
    total, changed, bindings = (
        len(impact.rows),
        len(impact.changed),
        impact.bindings_before,
    )
    tenths = (impact.leaves * 2000 // bindings + 1) // 2 if bindings else 0
    share = f" ({tenths // 10}.{tenths % 10} %)" if bindings else ""
    return (
        f"Placement impact: {changed} of {total} placements {verb(changed, 'changes')}, "
        f"{impact.leaves} of {bindings} bindings move{share}"
    )


def impact_markdown(
    impact: Any,
    gates: Sequence[Any],
    *,
    note: str = "",
    links: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return a comment of at most 60,000 characters, in which longer tables are folded.

    `links` are addresses of previews by the name of a row.
    """
    lines = [
        "<!-- fleetui-impact -->",
        f"**{headline_of(impact)}**",
        *filter(None, [note]),
        "",
    ]
    marked = {True: "⚠️ **Incomplete:**", False: "⚠️"}
    notes = (
        f"{marked[one.is_incomplete]} {_short(f'{one.file}:{one.line}: {one.message}')}"
        for one in sorted(impact.notes, key=lambda one: not one.is_incomplete)
    )
    failed = [gate for gate in gates if gate.state != "passed"]
    marks = {"broken": "❌", "undetermined": "❔"}
    gate_lines = (
        f"{marks[one.state]} `{one.gate}` {_short(one.message)}" for one in failed
    )
    shown = first_lines(notes, _NOTES_SHOWN) + first_lines(gate_lines, _GATES_SHOWN)
    lines += [f"- {line}" for line in shown]
    if gates and not failed:
        lines.append(f"✅ {len(gates)} gates passed.")
    findings = [
        (row.name, finding) for row in impact.changed for finding in row.findings
    ]
    findings = [
        *(("labels of the fleet", finding) for finding in impact.fleet_findings),
        *findings,
    ]
    if findings:
        lines += ["", "New findings of the checks:", ""]
        texts = (
            f"{one.severity} {one.rule}, {_short(f'{name}: {one.message}')}"
            for name, one in findings
        )
        lines += [f"- {line}" for line in first_lines(texts, _FINDINGS_SHOWN)]
    lines.append("")
    if impact.changed:
        table = [
            "| placement | change | clusters | happens now | a fresh schedule would also | effects |",
            "|---|---|---|---|---|---|",
            *(_table_row(row, links.get(row.name, "")) for row in impact.changed),
        ]
        end = []
        if len(impact.changed) > _NAMES_SHOWN:
            lines += [
                "<details>",
                f"<summary>{len(impact.changed)} placements</summary>",
                "",
            ]
            end = ["", "</details>"]
        room = _LONGEST - sum(len(line) + 1 for line in (*lines, *end)) - 200
        rows: list[str] = []
        for line in table:
            if room < len(line) + 1:
                end = ["", f"… and {len(table) - len(rows)} more placements.", *end]
                break
            room -= len(line) + 1
            rows.append(line)
        lines += [*rows, *end]
    unchanged = len(impact.rows) - len(impact.changed)
    if unchanged:
        words = (
            "placement without any change is"
            if unchanged == 1
            else "placements without any change are"
        )
        lines += ["", f"{unchanged} {words} not listed."]
    return "\n".join(lines) + "\n"


def _table_row(row: Any, link: str) -> str:
    fulfilled = "becomes unfulfilled" if row.becomes_unfulfilled else ""
    fulfilled = "becomes fulfilled" if row.becomes_fulfilled else fulfilled
    skews = "; ".join(
        f"skew of {key} {'none' if before is None else before} → {'none' if after is None else after}"
        for key, before, after in row.skews
        if before != after
    )
    rollout = (
        f"the rollout takes at least {duration_words(timedelta(seconds=row.rollout_seconds))}"
        if row.rollout_seconds
        else ""
    )
    cells = [
        f"{row.name}<br>{row.where.file}:{row.where.line}",
        row.change,
        f"{len(row.placed_before)} → {len(row.placed_now)}",
        _moves(row.joins, row.leaves),
        _moves(row.fresh_joins, row.fresh_leaves),
        "; ".join(part for part in (fulfilled, skews, rollout) if part),
    ]
    texts = list(map(_plain, cells))
    if link:
        texts[0] = f"{texts[0]}<br>[Preview]({link})"
    return f"| {' | '.join(texts)} |"


def _moves(joins: Sequence[str], leaves: Sequence[str]) -> str:
    sides = (("select", joins), ("deselect", leaves))
    return "; ".join(
        f"{words} {names_and_more(names, _NAMES_SHOWN)}"
        for words, names in sides
        if names
    )


def _short(text: str) -> str:
    return _plain(text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…")


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("@", "@\u200b")


def impact_sarif(impact: Any, gates: Sequence[Any], *, version: str) -> str:
    """Return new findings, gates that did not pass and what was not read as SARIF, at their lines."""
    results = labels_sarif(impact.fleet_findings, impact.head.member_files)
    results += notes_sarif(impact.notes)
    results += [
        SarifResult(
            finding.rule,
            SARIF_LEVELS[finding.severity],
            f"{row.name}: {finding.message}",
            row.where.file,
            row.where.line,
        )
        for row in impact.changed
        for finding in row.findings
    ]
    results += [
        SarifResult(
            gate.gate,
            "error" if gate.state == "broken" else "warning",
            gate.message,
            *((gate.row.where.file, gate.row.where.line) if gate.row else (NAME, 1)),
        )
        for gate in gates
        if gate.state == "undetermined"
        or (gate.state == "broken" and gate.gate != "checks")
    ]
    return sarif_text(results, TITLES, version=version)
