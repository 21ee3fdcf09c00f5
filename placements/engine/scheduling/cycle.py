"""One scheduling cycle: all inputs of a decision, and nothing else."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import numpy as np

from clusters.columns import Bools, Codes
from clusters.fleet import Fleet
from fleetui.apimachinery.model import DEFAULT_SEMANTICS, Semantics
from placements.manifests.binding import (
    BindingsByClass,
    PlacedBinding,
    classify_bindings,
)
from placements.manifests.ocm_options import OcmOptions, parse_ocm_options
from placements.manifests.policy import PlacementPolicy

NO_CLUSTERS: Codes = np.zeros(0, dtype=np.int32)
_OF_FLEET = ("binding_classes", "placed", "was_here", "is_active", "is_placed")
_OF_BINDINGS = ("live_bindings", "placed_before", *_OF_FLEET)
NO_OPTIONS: Mapping[str, object] = MappingProxyType({})


class DuplicateBindingError(ValueError):
    def __init__(self, cluster: str) -> None:
        super().__init__(f"two bindings name the cluster {cluster!r}")
        self.cluster = cluster


@dataclass(frozen=True, slots=True)
class Batch:
    """The clusters that leave and join together when a placement is rescheduled with few moves."""

    leaves: tuple[str, ...]
    joins: tuple[str, ...]

    def to_plain(self) -> dict[str, list[str]]:
        return {"leaves": list(self.leaves), "joins": list(self.joins)}


@dataclass(frozen=True)
class Cycle:
    """The inputs of one run of the scheduler for one placement. Raise DuplicateBindingError.

    `namespace` is that of the placement, "" for one that is cluster-scoped. With a `batch` the cycle applies
    it and selects nothing itself. `moment` is when it runs: without it scores and tolerations never expire.
    `cluster_sets` are the selectors of the sets of a hub that it may use, by name; None: no sets are known,
    so that every cluster counts.
    """

    fleet: Fleet
    policy: PlacementPolicy = field(default_factory=PlacementPolicy)
    bindings: tuple[PlacedBinding, ...] = ()
    semantics: Semantics = DEFAULT_SEMANTICS
    options: Mapping[str, object] = field(default_factory=lambda: NO_OPTIONS)
    namespace: str = ""
    batch: Batch | None = None
    moment: datetime | None = None
    cluster_sets: Mapping[str, Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        clusters = [binding.cluster for binding in self.live_bindings]
        if len(set(clusters)) < len(clusters):
            raise DuplicateBindingError(
                next(name for name, other in pairwise(clusters) if name == other)
            )

    @cached_property
    def ocm_options(self) -> OcmOptions:
        """Return the options of `ocm`. Raise InvalidManifest for invalid ones."""
        return parse_ocm_options(dict(self.options))

    def with_balance(self, counts: Mapping[str, int]) -> "Cycle":
        """Return the cycle with the counts of other placements among its options, which stay validated."""
        options = self.ocm_options.model_copy(update={"balance": counts})
        return self._with(
            (), options={**self.options, "balance": counts}, ocm_options=options
        )

    def on(self, fleet: Fleet) -> "Cycle":
        """Return the cycle on another fleet: its bindings are sorted and its options are read already."""
        if fleet is self.fleet:
            return self
        return self._with(_OF_FLEET, fleet=fleet)

    def with_bindings(self, bindings: tuple[PlacedBinding, ...]) -> "Cycle":
        """Return the cycle with other bindings, one for a cluster: its options are read already."""
        return self._with(_OF_BINDINGS, bindings=bindings)

    def _with(self, outdated: Collection[str], **changes: Any) -> "Cycle":
        """Return the cycle with these changes and what is computed already, without what is outdated."""
        cycle = Cycle.__new__(Cycle)
        kept = {key: one for key, one in self.__dict__.items() if key not in outdated}
        cycle.__dict__.update(kept, **changes)
        return cycle

    def rescheduled(self) -> "Cycle":
        """Return the cycle as rescheduling runs it: no cluster is kept, each counts as placed before."""
        obsolete = tuple(
            binding._replace(is_current=False) for binding in self.bindings
        )
        return self._with(_OF_BINDINGS, bindings=obsolete, batch=None)

    @cached_property
    def live_bindings(self) -> tuple[PlacedBinding, ...]:
        """Return the bindings that are not being deleted, by cluster name."""
        live = (binding for binding in self.bindings if not binding.is_deleting)
        return tuple(sorted(live, key=itemgetter(0)))

    @cached_property
    def placed_before(self) -> frozenset[str]:
        """Return the clusters with an active binding."""
        return frozenset(
            binding.cluster for binding in self.live_bindings if binding.is_active
        )

    @cached_property
    def binding_classes(self) -> BindingsByClass:
        if not self.live_bindings:
            return classify_bindings((), staying=())
        return classify_bindings(self.live_bindings, staying=self.fleet.staying)

    @cached_property
    def placed(self) -> Codes:
        """Return the positions of the clusters with a current scheduled or bound binding."""
        return self._positions(self.binding_classes.current)

    @cached_property
    def was_here(self) -> Bools:
        return self._mask(self._positions(self.binding_classes.obsolete))

    @cached_property
    def is_active(self) -> Bools:
        """Return the clusters with a scheduled or bound binding, whatever policy made it."""
        return self._mask(
            self._positions(
                (*self.binding_classes.current, *self.binding_classes.obsolete)
            )
        )

    @cached_property
    def is_placed(self) -> Bools:
        return self._mask(self.placed)

    def _positions(self, bindings: tuple[PlacedBinding, ...]) -> Codes:
        if not bindings:
            return NO_CLUSTERS
        positions = self.fleet.positions
        return np.array(
            [positions[binding.cluster] for binding in bindings], dtype=np.int32
        )

    def _mask(self, positions: Codes) -> Bools:
        mask = np.zeros(len(self.fleet), dtype=np.bool_)
        mask[positions] = True
        return mask
