"""All objects on the hub, to be found by name, by kind and by namespace without looking at all of them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from placements.scheduling.door.builtin_kinds import KindScope, scope_of
from placements.scheduling.hub.objects import HubObject, ObjectKey


class Inventory:
    """An index over objects of which no two have the same key."""

    def __init__(self, objects: Iterable[HubObject]) -> None:
        self.by_key: dict[ObjectKey, HubObject] = {each.key: each for each in objects}
        self._by_place: defaultdict[tuple[str, str, str], list[HubObject]] = defaultdict(list)
        self._by_namespace: defaultdict[str, list[HubObject]] = defaultdict(list)
        self._namespaced: set[tuple[str, str]] = set()
        for each in self.by_key.values():
            self._by_place[each.group, each.kind, each.namespace].append(each)
            self._by_namespace[each.namespace].append(each)
            if each.namespace:
                self._namespaced.add((each.group, each.kind))

    def is_namespaced(self, group: str, kind: str) -> bool:
        """Tell whether a kind lives inside namespaces; of kinds that are not built in, the objects tell."""
        scope = scope_of(group, kind)
        return (group, kind) in self._namespaced if scope is None else scope is KindScope.NAMESPACED

    def of_kind(self, group: str, kind: str, *, namespace: str = "", name: str = "") -> Sequence[HubObject]:
        """Give the objects of a kind in a namespace, or outside all; with a name, that one if it is there."""
        if name:
            found = self.by_key.get((group, kind, namespace, name))
            return () if found is None else (found,)
        return self._by_place.get((group, kind, namespace), ())

    def inside(self, namespace: str) -> Sequence[HubObject]:
        """Give everything in a namespace."""
        return self._by_namespace.get(namespace, ())
