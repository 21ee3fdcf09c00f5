"""The fleet by one or two of its labels: how many clusters, how they stand, and labels that look misspelt."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter

from django.db.models import Count

from clusters.listing import Standing, label_of, standing
from clusters.models import MemberCluster


@dataclass(frozen=True, slots=True)
class Group:
    """The clusters with the same values of the labels asked for; None: they lack the label."""

    values: tuple[str | None, ...]
    counts: dict[Standing, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Count its clusters."""
        return sum(self.counts.values())


def groups_by(*keys: str) -> list[Group]:
    """Give the groups of one label or of two, by their values, those without a label last; one query."""
    names = [f"label_{place}" for place in range(len(keys))]
    labelled = {name: label_of(key) for name, key in zip(names, keys, strict=True)}
    rows = MemberCluster.objects.annotate(**labelled, standing=standing())
    counted = rows.values_list(*names, "standing").annotate(count=Count("pk")).order_by()
    found: dict[tuple[str | None, ...], dict[Standing, int]] = {}
    for *values, state, count in counted:
        found.setdefault(tuple(values), {})[Standing(state)] = count
    return [Group(values, found[values]) for values in sorted(found, key=_place)]


def _place(values: tuple[str | None, ...]) -> list[tuple[bool, str]]:
    return [(value is None, value or "") for value in values]


def members_by(key: str) -> dict[str | None, list[tuple[str, Standing]]]:
    """Give every cluster with how it stands, by its value of one label, both by name; one query.

    They are sorted here: the database would fetch thousands of rows by name, one here and one there.
    """
    rows = MemberCluster.objects.annotate(label=label_of(key), standing=standing())
    standings = {state.value: state for state in Standing}
    found: dict[str | None, list[tuple[str, Standing]]] = {}
    facts = rows.order_by().values_list("name", "label", "standing")
    for name, value, state in sorted(facts, key=itemgetter(0)):
        found.setdefault(value, []).append((name, standings[state]))
    return {value: found[value] for value in sorted(found, key=lambda one: (one is None, one or ""))}


def near_duplicates(words: Iterable[str]) -> list[tuple[str, ...]]:
    """Give the words that differ in capitals, spaces and punctuation only, together."""
    alike: dict[str, list[str]] = {}
    for word in sorted(set(words)):
        alike.setdefault("".join(one for one in word.casefold() if one.isalnum()), []).append(word)
    return [tuple(several) for several in alike.values() if len(several) > 1]
