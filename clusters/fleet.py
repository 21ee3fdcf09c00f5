"""The member clusters of a fleet, and the columns over them that all placements share."""

import gc
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property, partial
from itertools import compress
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from weakref import ref

import msgspec
import numpy as np

from clusters.columns import (
    ABSENT,
    Bools,
    Codes,
    LabelColumn,
    PropertyColumn,
    label_column,
    name_order,
    property_column,
)

NO_SCHEDULE = "NoSchedule"
CORDON_KEY, CORDON_VALUE = "cordon-key", "cordon-value"
"""The taint of the released drain tool (`rules/lifecycle.md#evictions`)."""
RESOURCE_PREFIX = "resources.kubernetes-fleet.io/"
SCORE_PREFIX = "AddOnPlacementScore/"
"""Before the name of an add-on: among the names that a policy reads, its scores."""
ANY_NAME = "*"
"""Among the names that a policy reads: all."""
_NOTHING: Mapping[str, str] = MappingProxyType({})


def is_cordon(taint: Mapping[str, str]) -> bool:
    return (taint["key"], taint.get("value")) == (CORDON_KEY, CORDON_VALUE)


class EligibilityKind(StrEnum):
    """Why a cluster is not eligible, in the order in which the reasons are looked for (spec 2)."""

    LEAVING = "leaving"
    NO_AGENT = "noAgent"
    STALE_HEARTBEAT = "staleHeartbeat"
    NOT_JOINED = "notJoined"
    NO_HEALTH = "noHealth"
    UNHEALTHY = "unhealthy"
    UNSPECIFIED = "unspecified"


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Whether a cluster may be picked at all; without a kind it may."""

    kind: EligibilityKind | None = None
    reason: str = ""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> "Eligibility":
        """Return the eligibility of a cluster in a case, which has it where the cluster is ineligible."""
        if plain is None or plain["value"]:
            return cls()
        kind = EligibilityKind(plain.get("kind") or EligibilityKind.UNSPECIFIED)
        return cls(kind, plain.get("reason") or "")


ELIGIBLE = Eligibility()


@dataclass(frozen=True, slots=True)
class Taint:
    """A cluster repels placements that do not tolerate this."""

    key: str
    value: str = ""
    effect: str = NO_SCHEDULE
    time_added: datetime | None = None
    """Known of clusters of Open Cluster Management only."""


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Quantities by resource name, as the member agent reports them."""

    capacity: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    allocatable: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    available: Mapping[str, str] = field(default_factory=lambda: _NOTHING)


NO_USAGE = ResourceUsage()


class SeenNamespaces(NamedTuple):
    """What a cluster that collects its namespaces reports of them; None: nothing yet."""

    names: frozenset[str] | None = None


class AddOnScores(NamedTuple):
    """The scores of one AddOnPlacementScore by name, and when they expire."""

    values: Mapping[str, int]
    valid_until: datetime | None = None


class ManagedObject(NamedTuple):
    """What a hub of Open Cluster Management has of a cluster: its object, and its scores by resource name.

    Without an object the document is empty. `taints` are those of the object, with their effects and times.
    """

    document: Mapping[str, Any]
    scores: Mapping[str, AddOnScores] = MappingProxyType({})
    taints: tuple[Taint, ...] = ()

    @property
    def is_leaving(self) -> bool:
        return bool(self.document.get("metadata", {}).get("deletionTimestamp"))


class Cluster(msgspec.Struct, frozen=True, gc=False):
    """One member cluster as the scheduler sees it.

    It is made in a third of the time of a named tuple. The garbage collector need not walk it: nothing that
    a cluster refers to refers to a cluster.
    """

    name: str
    labels: Mapping[str, str] = _NOTHING
    taints: tuple[Taint, ...] = ()
    properties: Mapping[str, str] = _NOTHING
    usage: ResourceUsage = NO_USAGE
    eligibility: Eligibility = ELIGIBLE
    namespaces: SeenNamespaces | None = None
    """None: the cluster does not collect its namespaces."""
    managed: ManagedObject | None = None
    """None: not a cluster of Open Cluster Management, or only its labels and claims are known."""

    @property
    def is_leaving(self) -> bool:
        return self.eligibility.kind is EligibilityKind.LEAVING

    def with_changes(self, **changes: Any) -> "Cluster":
        return msgspec.structs.replace(self, **changes)


_beside_taints = attrgetter(
    *(name for name in Cluster.__struct_fields__ if name != "taints")
)


class DuplicateClusterError(ValueError):
    """Two clusters of one fleet have the same name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"two clusters are named {name!r}")
        self.name = name


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector, which would walk a growing fleet repeatedly; nothing here makes cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Fleet:
    """All member clusters, sorted by name: a cluster's position is the rank of its name.

    Names compare by code point, which is the byte order of their UTF-8 form. Columns are created on first use
    and kept, so one fleet serves many placements. Raise DuplicateClusterError.
    """

    def __init__(self, clusters: Iterable[Cluster] = ()) -> None:
        # Columns are read in the order given, which is that of memory, and sorted as numbers.
        with collector_paused():
            self._unsorted = tuple(clusters)
        names = [cluster.name for cluster in self._unsorted]
        self._order = name_order(names)
        ordered = np.array(names, dtype=np.object_)[self._order]
        self.names: tuple[str, ...] = tuple(ordered.tolist())
        is_repeated = ordered[1:] == ordered[:-1]
        if is_repeated.any():
            raise DuplicateClusterError(self.names[is_repeated.argmax()])
        self._origin: _Origin = (None, {}, {})
        self._texts: dict[_Read, LabelColumn] = {}
        self._properties: dict[str, PropertyColumn] = {}
        self._names_digest = b""
        self.tested: dict[tuple[str, ...], dict[int, bool]] = {}
        """Results of expressions by position, kept since they take long."""

    @cached_property
    def clusters(self) -> tuple[Cluster, ...]:
        return tuple(map(self._unsorted.__getitem__, self._order.tolist()))

    @cached_property
    def _labels(self) -> list[Mapping[str, str]]:
        return [cluster.labels for cluster in self._unsorted]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self.clusters)

    @cached_property
    def positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    @cached_property
    def staying(self) -> frozenset[str]:
        leaves = self._text_column(_ELIGIBILITY).is_any_of([EligibilityKind.LEAVING])
        return frozenset(compress(self.names, (~leaves).tolist()))

    def label(self, key: str) -> LabelColumn:
        return self._text_column((_Sort.LABEL, key))

    def _text_column(self, read: "_Read") -> LabelColumn:
        """Return a column, patched where the fleet that this one was made from is still there."""
        if read in self._texts:
            return self._texts[read]
        reader, column = _texts_reader(*read), None
        origin, before, after = self._origin
        fleet = origin() if origin else None
        if fleet is not None:
            column = fleet._text_column(read)
            if after:
                patched = _patched({read: column}, before, after, lambda _: reader)
                column = patched.get(read)
            else:
                column = column.without(list(before))
        if column is None and read[0] is _Sort.LABEL:
            column = label_column(_values_at(read[1], self._labels), self._order)
        if column is None:
            column = label_column([*reader(self._unsorted)], self._order)
        self._texts[read] = column
        return column

    def topology(self, key: str, key_type: str | None) -> LabelColumn:
        """Return the column of a topology key: a label, or for the type `Claim` a property as text."""
        if key_type == "Claim":
            return self._text_column((_Sort.CLAIM, key))
        return self._text_column((_Sort.LABEL, key))

    def claim(self, name: str) -> LabelColumn:
        """Return the column of one property as text, which Open Cluster Management calls a claim."""
        return self._text_column((_Sort.CLAIM, name))

    def property(self, name: str) -> PropertyColumn:
        column = self._properties.get(name)
        if column is None:
            origin, before, after = self._origin
            fleet = origin() if origin else None
            if fleet is not None and not after:
                column = fleet.property(name).without(list(before))
            else:
                texts = [*_property_reader(name)(self._unsorted)]
                order = self._order.tolist()
                column = property_column([*map(texts.__getitem__, order)])
            self._properties[name] = column
        return column

    @cached_property
    def is_eligible(self) -> Bools:
        return np.equal(self._text_column(_ELIGIBILITY).codes, ABSENT)

    @cached_property
    def taint_sets(self) -> tuple[tuple[Taint, ...], ...]:
        """Return the distinct lists of taints in this fleet, in order of first appearance."""
        return tuple(dict.fromkeys([cluster.taints for cluster in self._unsorted]))

    @cached_property
    def taint_codes(self) -> Codes:
        """Return for each cluster the index of its list of taints in `taint_sets`."""
        if len(self.taint_sets) == 1:
            return np.zeros(len(self), dtype=np.int32)
        code_of = {taints: code for code, taints in enumerate(self.taint_sets)}
        codes = [code_of[cluster.taints] for cluster in self._unsorted]
        return np.array(codes, dtype=np.int32)[self._order]

    @cached_property
    def of_hub(self) -> "Fleet":
        """Return the fleet as Open Cluster Management reads it: with all effects and times of taints.

        A taint that the object of a cluster has, too, is read from there.
        """
        changed = []
        for cluster in self._unsorted:
            if cluster.managed is None or not cluster.managed.taints:
                continue
            names = {(taint.key, taint.value) for taint in cluster.taints}
            known = [
                taint
                for taint in cluster.managed.taints
                if (taint.key, taint.value) in names
            ]
            names -= {(taint.key, taint.value) for taint in known}
            taints = (
                *known,
                *(
                    taint
                    for taint in cluster.taints
                    if (taint.key, taint.value) in names
                ),
            )
            if taints != cluster.taints:
                changed.append(cluster.with_changes(taints=taints))
        if not changed:
            return self
        fleet = self.with_clusters(changed)
        fleet.__dict__["of_hub"] = fleet
        return fleet

    def without(self, name: str) -> "Fleet":
        return Fleet(cluster for cluster in self.clusters if cluster.name != name)

    def with_cluster(self, changed: Cluster) -> "Fleet":
        return self.with_clusters([changed])

    def with_clusters(
        self, changed: Iterable[Cluster], gone: Collection[str] = ()
    ) -> "Fleet":
        """Return the fleet with these clusters replaced, by name, or added, and without those that left.

        While the names stay the same, columns are shared where nothing changed and patched where it did.
        """
        by_name = {cluster.name: cluster for cluster in changed}
        if gone or not self.positions.keys() >= by_name.keys():
            kept = {
                cluster.name: cluster
                for cluster in self._unsorted
                if cluster.name not in gone
            }
            fleet = Fleet({**kept, **by_name}.values())
            if not by_name:
                lost = [self.positions[name] for name in gone if name in self.positions]
                fleet._origin = (
                    ref(self),
                    {position: self.clusters[position] for position in lost},
                    {},
                )
            return fleet
        after = {self.positions[name]: cluster for name, cluster in by_name.items()}
        before = {position: self.clusters[position] for position in after}

        fleet = Fleet.__new__(Fleet)
        fleet._origin = ref(self), before, after
        fleet.names, fleet.positions = self.names, self.positions
        clusters = list(self.clusters)
        for position, cluster in after.items():
            clusters[position] = cluster
        fleet._unsorted = fleet.clusters = tuple(
            clusters
        )  # one copy: two take most of the time
        fleet._order = np.arange(len(clusters))

        # No column is read from taints, and a cordon of many clusters changes nothing else.
        moved = {
            position: cluster
            for position, cluster in after.items()
            if _beside_taints(cluster) != _beside_taints(before[position])
        }
        fleet._texts = _patched(
            self._texts, before, moved, lambda read: _texts_reader(*read)
        )
        fleet._properties = _patched(self._properties, before, moved, _property_reader)
        fleet._names_digest = self._names_digest
        if "taint_codes" in self.__dict__:
            sets = tuple(
                dict.fromkeys(
                    [*self.taint_sets, *[cluster.taints for cluster in after.values()]]
                )
            )
            codes = self.taint_codes.copy()
            codes[list(after)] = [
                sets.index(cluster.taints) for cluster in after.values()
            ]
            if np.bincount(codes, minlength=len(sets)).all():
                fleet.taint_sets, fleet.taint_codes = sets, codes
        fleet.tested = {
            texts: {at: one for at, one in results.copy().items() if at not in after}
            for texts, results in self.tested.copy().items()
        }
        return fleet

    @cached_property
    def _taints_digest(self) -> bytes:
        """Return the hash of the lists of taints, without their times.

        The codes of the lists depend on the order of the clusters.
        """
        texts = [
            json.dumps([(taint.key, taint.value, taint.effect) for taint in taints])
            for taints in self.taint_sets
        ]
        distinct = sorted(set(texts))
        places = {text: place for place, text in enumerate(distinct)}
        codes = np.array([places[text] for text in texts], dtype=np.int32)
        return LabelColumn(tuple(distinct), codes[self.taint_codes]).digest

    def digest(
        self,
        label_keys: tuple[str, ...],
        property_names: tuple[str, ...],
        namespace: str = "",
    ) -> str:
        """Return a hash of what a policy that reads these labels and properties depends on.

        It is made of hashes of columns, which a fleet shares with the one that it was made from
        (`rules/scheduler.md#record-of-a-decision`). `namespace` is that of the placement; where it has none,
        namespaces of clusters do not count.
        """
        if not self._names_digest:
            self._names_digest = hashlib.sha256("\0".join(self.names).encode()).digest()
        reads = [(_Sort.LABEL, key) for key in sorted(set(label_keys))]
        reads += [(_Sort.PROPERTY, name) for name in sorted(set(property_names))]
        reads.append(_ELIGIBILITY)
        if namespace:
            reads.append((_Sort.NAMESPACE, namespace))
        whole = hashlib.sha256(self._names_digest + self._taints_digest)
        for read in reads:
            column = self._text_column(read)
            # A key that no cluster has is one that the policy does not see.
            if column.values:
                whole.update(json.dumps(read).encode() + column.digest)
        return whole.hexdigest()


class _Sort(StrEnum):
    """What a column of texts is read from."""

    LABEL = "label"
    CLAIM = "claim"
    PROPERTY = "property"
    ELIGIBILITY = "eligibility"
    NAMESPACE = "namespace"


_Read = tuple[_Sort, str]
"""Where the texts of a column come from, and the key there."""
_ELIGIBILITY: _Read = (_Sort.ELIGIBILITY, "")
_Origin = tuple["ref[Fleet] | None", Mapping[int, Cluster], Mapping[int, Cluster]]
"""A fleet, and what differs from it by position: the clusters before and after; without these, those gone."""
_MOST_PATCHES = 64
"""With more changes a column is created again when it is next used."""
_Reader = Callable[[Iterable[Cluster]], Iterable[str | None]]
_Column = TypeVar("_Column", LabelColumn, PropertyColumn)
_Key = TypeVar("_Key")


def _patched(
    columns: Mapping[_Key, _Column],
    before: Mapping[int, Cluster],
    after: Mapping[int, Cluster],
    reader_of: Callable[[_Key], _Reader],
) -> dict[_Key, _Column]:
    patched = {}
    for key, column in dict(columns).items():
        read = reader_of(key)
        former = read(map(before.__getitem__, after))
        texts = {
            position: text
            for position, text, was in zip(
                after, read(after.values()), former, strict=True
            )
            if text != was
        }
        if len(texts) <= _MOST_PATCHES:
            patched[key] = column.patched(texts) if texts else column
    return patched


def lacks_namespace(cluster: Cluster, namespace: str) -> str | None:
    """Return how a cluster lacks a namespace, "unknown" or "missing"; None if it may be placed there."""
    if cluster.namespaces is None:
        return None
    if cluster.namespaces.names is None:
        return "unknown"
    return None if namespace in cluster.namespaces.names else "missing"


def _texts_reader(sort: _Sort, key: str) -> _Reader:
    if sort is _Sort.LABEL:
        return partial(_values_of, "labels", key)
    if sort is _Sort.CLAIM:
        return partial(_values_of, "properties", key)
    if sort is _Sort.PROPERTY:
        return _property_reader(key)
    if sort is _Sort.NAMESPACE:
        return lambda clusters: (lacks_namespace(cluster, key) for cluster in clusters)
    return lambda clusters: [cluster.eligibility.kind for cluster in clusters]


def _property_reader(name: str) -> _Reader:
    sort, _, resource = name.removeprefix(RESOURCE_PREFIX).partition("-")
    usage = {
        "total": "capacity",
        "allocatable": "allocatable",
        "available": "available",
    }
    if name.startswith(RESOURCE_PREFIX) and sort in usage:
        return partial(_values_of, f"usage.{usage[sort]}", resource)
    return partial(_values_of, "properties", name)


def _values_of(
    attribute: str, key: str, clusters: Iterable[Cluster]
) -> list[str | None]:
    return _values_at(key, [*map(attrgetter(attribute), clusters)])


def _values_at(key: str, mappings: list[Mapping[str, str]]) -> list[str | None]:
    """Read a key, which takes half the time where all have it."""
    try:
        return [*map(itemgetter(key), mappings)]
    except KeyError:
        return [mapping.get(key) for mapping in mappings]
