"""What holds of every selection: no order of objects matters, and no change that matters goes unnoticed."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.secrets import HubObject, ObjectKey
from placements.engine.selection import Selection, concerns, select
from placements.manifests.placement import ResourceSelector
from tests.documents import parse_placement_spec
from tests.effort import examples
from tests.hub_objects import manifest

Draw = st.DrawFn
Hub = dict[ObjectKey, HubObject]
Selectors = tuple[ResourceSelector, ...]

NAMESPACES = ["one", "two", "default"]
INSIDE = ["ConfigMap", "Deployment", "Endpoints", "Event", "ReplicaSet", "Service"]
OUTSIDE = ["ClusterRole", "Node"]
GROUPS = {
    "ClusterRole": "rbac.authorization.k8s.io",
    "Deployment": "apps",
    "ReplicaSet": "apps",
    "Widget": "example.com",
}
LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), max_size=2)
NAMES = st.sampled_from(["n", "m", "kube-root-ca.crt"])
MARKS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {}, {}, {"deletionTimestamp": "now"}, {"ownerReferences": [{}]}, {"spec": 1}]
)


@st.composite
def hub_objects(draw: Draw) -> HubObject:
    kind = draw(st.sampled_from(["Namespace", "Widget", *INSIDE, *OUTSIDE]))
    is_inside = kind in INSIDE or (kind == "Widget" and draw(st.booleans()))
    namespace = draw(st.sampled_from(NAMESPACES)) if is_inside else ""
    name = draw(st.sampled_from(NAMESPACES) if kind == "Namespace" else NAMES)
    version = draw(st.sampled_from(["v1", "v1", "v1", "v2"]))
    api_version = f"{GROUPS[kind]}/{version}" if kind in GROUPS else version
    labels = draw(LABELS)
    return HubObject.of(
        manifest(
            kind, name, namespace, version=api_version, labels=labels, **draw(MARKS)
        )
    )


@st.composite
def selections(draw: Draw, kinds: list[str]) -> dict[str, Any]:
    """Write a selector by name, by labels, or of all."""
    kind = draw(st.sampled_from(kinds))
    found: dict[str, Any] = {
        "group": GROUPS.get(kind, ""),
        "version": "v1",
        "kind": kind,
    }
    names = st.sampled_from(["one", "two", "gone"]) if kind == "Namespace" else NAMES
    if kind == "Namespace" and draw(st.booleans()):
        found["selectionScope"] = "NamespaceOnly"
    match draw(st.sampled_from(["name", "labels", "all"])):
        case "name":
            found["name"] = draw(names)
        case "labels":
            operator = draw(st.sampled_from(["Exists", "DoesNotExist"]))
            requirement = {"key": draw(st.sampled_from("ab")), "operator": operator}
            labels = draw(st.sampled_from([{}, {"a": "x"}]))
            found["labelSelector"] = {
                "matchLabels": labels,
                "matchExpressions": [requirement],
            }
    return found


@st.composite
def selector_lists(draw: Draw) -> Selectors:
    own = {"group": "", "version": "v1", "kind": "Namespace", "name": "one"}
    if draw(st.booleans()):
        raw = draw(st.lists(selections([*INSIDE, *OUTSIDE, "Widget"]), max_size=3))
        raw.append({**own, "selectionScope": "NamespaceWithResourceSelectors"})
    else:
        raw = draw(
            st.lists(
                selections(["Namespace", "Namespace", "Widget", *OUTSIDE]),
                min_size=1,
                max_size=3,
            )
        )
    return parse_placement_spec({"resourceSelectors": raw}).resource_selectors


def hub_of(objects: Iterable[HubObject]) -> Hub:
    return {hub_object.key: hub_object for hub_object in objects}


@st.composite
def hubs(draw: Draw) -> Hub:
    """Fill a hub; the namespaces that selectors name are mostly there."""
    there = draw(st.lists(st.sampled_from(["one", "two"]), unique=True)) or [
        "one",
        "two",
    ]
    namespaces = [
        HubObject.of(manifest("Namespace", name, labels=draw(LABELS))) for name in there
    ]
    return hub_of([*namespaces, *draw(st.lists(hub_objects(), max_size=8))])


@st.composite
def changes(draw: Draw) -> tuple[Hub, Hub]:
    """Return a hub before and after one object came, went or was changed."""
    before = draw(hubs())
    chosen = draw(st.sampled_from(list(before.values())) | hub_objects())
    match draw(st.sampled_from(["come", "go", "relabel", "upgrade"])):
        case "come":
            return {
                key: hub_object
                for key, hub_object in before.items()
                if key != chosen.key
            }, {
                **before,
                chosen.key: chosen,
            }
        case "go":
            return {**before, chosen.key: chosen}, {
                key: hub_object
                for key, hub_object in before.items()
                if key != chosen.key
            }
        case "relabel":
            labels = draw(LABELS)
            other = replace(chosen, labels=labels)
        case _:
            other = replace(chosen, version="v1" if chosen.version == "v2" else "v2")
    return {**before, chosen.key: chosen}, {**before, chosen.key: other}


def outcome(selectors: Selectors, objects: Iterable[HubObject]) -> Selection | str:
    try:
        return select(selectors, objects)
    except InvalidManifest as errors:
        return str(errors)


@examples(400)
@given(selector_lists(), hubs(), st.randoms(use_true_random=False))
def test_the_order_of_objects_does_not_matter(
    selectors: Selectors, hub: Hub, chance: Any
) -> None:
    shuffled = list(hub.values())
    chance.shuffle(shuffled)

    assert outcome(selectors, shuffled) == outcome(selectors, hub.values())


@given(selector_lists(), hubs())
def test_no_object_is_selected_twice_or_from_a_namespace_of_the_hub(
    selectors: Selectors, hub: Hub
) -> None:
    found = outcome(selectors, hub.values())

    if isinstance(found, Selection):
        assert len({hub_object.key for hub_object in found.objects}) == len(
            found.objects
        )
        assert not [
            hub_object
            for hub_object in found.objects
            if "default" in (hub_object.namespace, hub_object.name)
        ]


@examples(1_500)
@given(selector_lists(), changes())
def test_no_change_that_matters_goes_unnoticed(
    selectors: Selectors, change: tuple[Hub, Hub]
) -> None:
    before, after = change
    if outcome(selectors, before.values()) == outcome(selectors, after.values()):
        return

    keys = [key for key in {*before, *after} if before.get(key) != after.get(key)]

    assert concerns(
        selectors, [hub[key] for hub in change for key in keys if key in hub]
    )
