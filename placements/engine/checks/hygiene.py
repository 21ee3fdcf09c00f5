"""Rules about the labels of a fleet: misspelt keys and values, missing labels, zones in the wrong region."""

from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import NamedTuple

import numpy as np

from clusters.columns import ABSENT, Bools, Ints
from clusters.fleet import Fleet
from fleetui.apimachinery.grouping import grouped
from placements.engine.checks.findings import (
    Finding,
    Fix,
    Needs,
    Rule,
    Severity,
    counted,
    digits,
    distance,
    key_counts,
    normalised,
    some,
)
from placements.engine.scheduling.warnings import property_warnings


def _names_where(fleet: Fleet, which: Bools) -> list[str]:
    return [fleet.names[at] for at in np.nonzero(which)[0].tolist()]


def misspelt_keys(fleet: Fleet) -> Iterator[Finding]:
    counts = key_counts(fleet)
    for key, count in counts.items():
        if count > max(3, 0.05 * len(fleet)):
            continue
        for other, often in counts.items():
            most = 2 if min(len(key), len(other)) >= 6 else 1
            is_near = distance(key, other) <= most and digits(key) == digits(other)
            if (
                key == other
                or often < 10 * count
                or not (normalised(key) == normalised(other) or is_near)
            ):
                continue
            column, present = fleet.label(key), fleet.label(other).is_present
            if (column.is_present & present).any():
                continue
            labels: list[tuple[str, str, str | None]] = [
                (name, key, None) for name in _names_where(fleet, column.is_present)
            ]
            labels += [
                (fleet.names[at], other, column.value_at(at))
                for at in np.nonzero(column.is_present)[0].tolist()
            ]
            message = f"{counted(count)} with the label {key}, {often:,} with {other}."
            fix = Fix(f"Rename the label {key} to {other}.", labels=tuple(labels))
            yield H01.finding(f"labels.{key}", message, (key, ""), fix=fix)
            break


def _value_counts(fleet: Fleet) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the keys that are no identifiers, each with the number of clusters of each value."""
    for key in key_counts(fleet):
        column = fleet.label(key)
        if 1 < len(column.values) <= len(fleet) / 2:
            counts = np.bincount(
                column.codes[column.codes != ABSENT], minlength=len(column.values)
            ).tolist()
            yield key, dict(zip(column.values, counts, strict=True))


def _relabel(
    rule: Rule, fleet: Fleet, key: str, value: str, other: str, message: str
) -> Finding:
    clusters = _names_where(fleet, fleet.label(key).is_any_of([value]))
    fix = Fix(
        f"Set {key}={other} on {some(clusters)}.",
        labels=tuple((name, key, other) for name in clusters),
    )
    return rule.finding(f"labels.{key}", message, (key, value), fix=fix)


def case_of_values(fleet: Fleet) -> Iterator[Finding]:
    for key, counts in _value_counts(fleet):
        for value, count in counts.items():
            alike = [
                (often, other)
                for other, often in counts.items()
                if other != value
                and often >= 5 * count
                and normalised(other) == normalised(value)
            ]
            if alike:
                often, other = max(alike)
                message = (
                    f"{key}={value} on {counted(count)}, {key}={other} on {often:,}."
                )
                yield _relabel(H02, fleet, key, value, other, message)


def misspelt_values(fleet: Fleet) -> Iterator[Finding]:
    for key, counts in _value_counts(fleet):
        frequent = {value: count for value, count in counts.items() if count >= 20}
        for value, count in counts.items():
            if len(value) < 4 or count > max(2, 0.01 * len(fleet)):
                continue
            near = [
                (often, other)
                for other, often in frequent.items()
                if often >= 20 * count
                and digits(other) == digits(value)
                and distance(value, other, most=1) == 1
            ]
            if near and all(
                normalised(other) != normalised(value) for _, other in near
            ):
                often, other = max(near)
                message = f"{key}={value} on {counted(count)}. Did you mean {other} ({counted(often)})?"
                yield _relabel(H03, fleet, key, value, other, message)


def missing_labels(fleet: Fleet) -> Iterator[Finding]:
    """Yield one finding for each set of clusters: those without a region have no zone either."""
    lacking = grouped(
        (fleet.label(key).is_present.tobytes(), key)
        for key, count in key_counts(fleet).items()
        if 0.9 * len(fleet) <= count < len(fleet)
    )
    pairs = list(_pairs(fleet)) if lacking else []
    for keys in lacking.values():
        is_bare = ~fleet.label(keys[0]).is_present
        clusters = _names_where(fleet, is_bare)
        what = f"label{'s' * (len(keys) > 1)} {' and '.join(keys)}"
        message = f"{len(clusters):,} of {counted(len(fleet))} without the {what}: {some(clusters)}."
        implied = [
            implied_labels(fleet, key, np.nonzero(is_bare)[0], pairs) for key in keys
        ]
        words = f"Set the {what} on {some(clusters)} as on all clusters alike."
        fix = Fix(words, labels=tuple(one for several in implied for one in several))
        evidence = [(key, "(absent)") for key in keys]
        yield H04.finding(
            f"labels.{keys[0]}", message, *evidence, fix=fix if all(implied) else None
        )


def implied_labels(
    fleet: Fleet, key: str, bare: Ints, pairs: Iterable["_Pair"]
) -> list[tuple[str, str, str | None]]:
    """Return the label that another one implies for each of these clusters; none unless for all of them."""
    for inner, outer, _, table in pairs:
        codes = fleet.label(inner).codes[bare]
        majority, total = table.max(axis=1)[codes], table.sum(axis=1)[codes]
        if (
            outer == key
            and ((codes != ABSENT) & (majority == total) & (total >= 4)).all()
        ):
            values = fleet.label(key).values
            usual = table.argmax(axis=1)[codes].tolist()
            return [
                (fleet.names[at], key, values[to])
                for at, to in zip(bare.tolist(), usual, strict=True)
            ]
    return []


class _Pair(NamedTuple):
    """Two labels of which the value of the inner one almost always implies that of the outer one.

    `both` are the clusters that have both labels, `table` their number by inner and outer value.
    """

    inner: str
    outer: str
    both: Bools
    table: Ints


def _pairs(fleet: Fleet) -> Iterator[_Pair]:
    counts = key_counts(fleet)
    columns = {
        key: fleet.label(key)
        for key, count in counts.items()
        if count > len(fleet) / 2 and 1 < len(fleet.label(key).values) <= len(fleet) / 5
    }
    for inner, outer in permutations(columns, 2):
        small, large = columns[inner], columns[outer]
        both = small.is_present & large.is_present
        if (
            len(small.values) <= len(large.values)
            or len(set(small.codes[both].tolist())) < 3
        ):
            continue
        table = np.zeros((len(small.values), len(large.values)), dtype=np.int64)
        np.add.at(table, (small.codes[both], large.codes[both]), 1)
        if table.max(axis=1).sum() >= 0.985 * table.sum():
            yield _Pair(inner, outer, both, table)


def exceptional_pairs(fleet: Fleet) -> Iterator[Finding]:
    for inner, outer, both, table in _pairs(fleet):
        small, large = fleet.label(inner), fleet.label(outer)
        majority, total = table.max(axis=1), table.sum(axis=1)
        for code in np.nonzero(
            (total > majority) & (majority >= 4 * (total - majority))
        )[0].tolist():
            usual = int(table[code].argmax())
            is_other = both & (small.codes == code) & (large.codes != usual)
            clusters, right = _names_where(fleet, is_other), large.values[usual]
            wrong = sorted(
                {large.values[one] for one in large.codes[is_other].tolist()}
            )
            value = small.values[code]
            message = (
                f"{inner}={value} has {outer}={right} on {counted(int(majority[code]))} and "
                f"{outer}={some(wrong)} on {len(clusters):,}: {some(clusters)}."
            )
            labels = tuple((name, outer, right) for name in clusters)
            fix = Fix(f"Set {outer}={right} on {some(clusters)}.", labels=labels)
            yield H06.finding(
                f"labels.{outer}", message, (f"{inner}={value}", outer), fix=fix
            )


def malformed_properties(fleet: Fleet) -> Iterator[Finding]:
    for warning in property_warnings(fleet):
        message = (
            f"The property has {warning.message}: no policy can compare these values."
        )
        yield H07.finding(warning.path, message, (warning.path, ""))


H01 = Rule("H01", Severity.WARNING, Needs.LABELS, "Misspelt label key", misspelt_keys)
H02 = Rule(
    "H02", Severity.WARNING, Needs.LABELS, "Value in another spelling", case_of_values
)
H03 = Rule("H03", Severity.INFO, Needs.LABELS, "Misspelt label value", misspelt_values)
H04 = Rule(
    "H04",
    Severity.INFO,
    Needs.LABELS,
    "Label missing on a few clusters",
    missing_labels,
)
H06 = Rule(
    "H06",
    Severity.WARNING,
    Needs.LABELS,
    "Exception to a pair of labels",
    exceptional_pairs,
)
H07 = Rule(
    "H07",
    Severity.WARNING,
    Needs.LABELS,
    "Property without a quantity",
    malformed_properties,
)
HYGIENE = (H01, H02, H03, H04, H06, H07)
