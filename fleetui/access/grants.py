"""What a grant of a team includes: its label, and patterns of namespaces, kinds and clusters.

Patterns are stored as one text, separated by white space; `*` stands for any characters, `?` for one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from django.core.exceptions import ValidationError

from fleetui.apimachinery.fields import label_key_problem, label_value_problem

MOST_PATTERNS = 100
LONGEST_PATTERNS = 8_000
_NAMESPACE = re.compile(r"[a-z0-9*?]([-a-z0-9*?]{0,61}[a-z0-9*?])?")
_KIND = re.compile(
    r"([a-z0-9*?]([-.a-z0-9*?]{0,251}[a-z0-9*?])?/)?[A-Za-z*?][A-Za-z0-9*?]{0,62}"
)
_CLUSTER = re.compile(r"[a-z0-9*?]([-.a-z0-9*?]{0,251}[a-z0-9*?])?")
Labels = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Team:
    """A label, the role that a user has for what has it, and the boundary of that role.

    Without clusters it is for all of them; without namespaces and kinds for those only that have the label.
    """

    role: str
    key: str
    value: str
    namespaces: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, role: str, key: str, value: str, namespaces: str, kinds: str, clusters: str
    ) -> "Team":
        """Return a team by the columns of its grant."""
        return cls(
            role,
            key,
            value,
            *(tuple(one.split()) for one in (namespaces, kinds, clusters)),
        )

    def __str__(self) -> str:
        return f"{self.key}={self.value}"

    def has(self, labels: Labels) -> bool:
        return labels.get(self.key) == self.value

    def names_namespace(self, name: str) -> bool:
        return any(fnmatchcase(name, namespace) for namespace in self.namespaces)

    def has_kind(self, group: str, kind: str) -> bool:
        """Return whether a kind is granted; a pattern without a slash is of the core group, except `*`."""
        if self.has_every_kind:
            return True
        pairs = (one.rpartition("/") for one in self.kinds)
        return any(
            fnmatchcase(group, start) and fnmatchcase(kind, end)
            for start, _, end in pairs
        )

    @property
    def has_every_kind(self) -> bool:
        return "*" in self.kinds

    def has_cluster(self, name: str, labels: Labels) -> bool:
        if not self.clusters:
            return True
        patterns = [cluster for cluster in self.clusters if "=" not in cluster]
        pairs = {f"{key}={value}" for key, value in labels.items()}
        return any(
            fnmatchcase(name, pattern) for pattern in patterns
        ) or not pairs.isdisjoint(self.clusters)

    @property
    def cluster_labels(self) -> Mapping[str, frozenset[str]]:
        """Return the values of each label that marks the clusters of the team."""
        pairs = [cluster.partition("=") for cluster in self.clusters if "=" in cluster]
        keys = {key for key, _, _ in pairs}
        return {
            each: frozenset(value for key, _, value in pairs if key == each)
            for each in keys
        }


def check_namespaces(text: str) -> None:
    """Raise ValidationError for what matches no name of a namespace."""
    _check(text, _NAMESPACE.fullmatch, "payments or payments-*")


def check_kinds(text: str) -> None:
    """Raise ValidationError for what matches no kind."""
    _check(text, _KIND.fullmatch, "Kind of the core group, group/Kind, group/*, or *")


def check_clusters(text: str) -> None:
    """Raise ValidationError for what matches neither a name nor a label of a cluster."""
    _check(text, _is_cluster, "a name such as edge-*, or a label such as region=east")


def _is_cluster(text: str) -> bool:
    key, is_label, value = text.partition("=")
    if is_label:
        return bool(key and value) and not (
            label_key_problem(key) or label_value_problem(value)
        )
    return _CLUSTER.fullmatch(text) is not None


def _check(text: str, fits: Callable[[str], object], allowed: str) -> None:
    several = text.split()
    if len(several) > MOST_PATTERNS or len(text) > LONGEST_PATTERNS:
        raise ValidationError(
            f"Too many: {len(several)}: at most {MOST_PATTERNS} patterns."
        )
    for one in several:
        if not fits(one):
            raise ValidationError(f'Invalid value: "{one[:80]}": supported: {allowed}.')
    if len(several) != len(set(several)):
        twice = next(one for one in several if several.count(one) > 1)
        raise ValidationError(f'Duplicate value: "{twice}".')
