"""Objects that two placements put on the same clusters, where only one of them can own each."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fleetui.apimachinery.errors import ManifestWarning
from fleetui.apimachinery.secrets import ObjectKey
from fleetui.apimachinery.words import names_and_more
from placements.engine.envelopes import Identity, applied_identities, wrapped_identities
from placements.engine.selection import Selection
from placements.manifests.placement import ClusterResourcePlacement

_MOST_NAMES = 3
PATH = "spec.resourceSelectors"


class Placed(NamedTuple):
    """What a placement applies, and where; `is_shared`: it allows co-ownership."""

    placement: str
    objects: frozenset[ObjectKey]
    clusters: frozenset[str]
    is_shared: bool = False


class Overlap(NamedTuple):
    """The objects that another placement applies, too, to a number of the same clusters."""

    placement: str
    objects: tuple[ObjectKey, ...]
    clusters: int
    is_shared: bool = False

    @property
    def sentence(self) -> str:
        names = [
            f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
            for _, kind, namespace, name in self.objects
        ]
        where = "1 cluster" if self.clusters == 1 else f"{self.clusters:,} clusters"
        text = f"{self.placement} places these too, on {where}: {names_and_more(names, _MOST_NAMES)}."
        if self.is_shared:
            return f"{text} Both allow co-ownership: simulated clusters share them, others refuse the second."
        return (
            f"{text} A cluster refuses what belongs to the other placement: "
            "select other resources, or allow co-ownership in both placements."
        )

    @property
    def warning(self) -> ManifestWarning:
        return ManifestWarning("overlap", PATH, self.sentence)


def keys_of(identities: Iterable[Identity]) -> frozenset[ObjectKey]:
    """Return the keys of objects, which are the same in all versions of their API."""
    return frozenset(
        (api_version.rpartition("/")[0], kind, namespace, name)
        for api_version, kind, namespace, name, *_ in identities
    )


def to_place(
    manifest: ClusterResourcePlacement,
    name: str,
    selection: Selection,
    clusters: Iterable[str],
) -> Placed:
    """Return what a manifest that selects these objects would apply to these clusters."""
    identities = [
        [hub_object.api_version, hub_object.kind, hub_object.namespace, hub_object.name]
        for hub_object in selection.objects
    ]
    keys = keys_of(
        applied_identities(identities, wrapped_identities(selection.objects))
    )
    is_shared = manifest.spec.strategy.apply_strategy.allow_co_ownership
    return Placed(name, keys, frozenset(clusters), is_shared)


def overlaps_of(mine: Placed, others: Iterable[Placed]) -> tuple[Overlap, ...]:
    """Return one overlap for each other placement with a common object on a common cluster, by name."""
    found = []
    for other in others:
        if other.placement == mine.placement or mine.objects.isdisjoint(other.objects):
            continue
        if clusters := len(mine.clusters & other.clusters):
            objects = tuple(sorted(mine.objects & other.objects))
            is_shared = mine.is_shared and other.is_shared
            found.append(Overlap(other.placement, objects, clusters, is_shared))
    return tuple(sorted(found))


def all_overlaps(several: Sequence[Placed]) -> dict[str, tuple[Overlap, ...]]:
    return {placed.placement: overlaps_of(placed, several) for placed in several}
