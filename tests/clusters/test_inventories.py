"""Clusters of other systems: every value is used, left out for a stated reason, or in a note."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.importing import read_members
from clusters.inventories import (
    ANY,
    BELOW,
    INVENTORIES,
    InventoryKind,
    InventoryRule,
    leaves_of,
    read_inventory,
)
from fleetui.apimachinery.errors import InvalidManifest, Keys, format_path
from fleetui.apimachinery.yaml import dump_yaml
from tests.documents import SHARED, Document

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "inventories.md"
ARRIVAL = SHARED / "faults" / "arrival"
HEAD = "| field | becomes | rule | from the API type |\n|---|---|---|---|"


def table_of(inventory: InventoryKind) -> str:
    """Return the table of a kind as the page has it; rules of one kind that say the same are one row."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for rule in inventory.rules:
        target = f"`{rule.target}`" if rule.target else "none"
        rows.setdefault((target, rule.words, rule.basis), []).append(rule.source)
    lines = [HEAD]
    for (target, words, basis), sources in rows.items():
        places = ", ".join(f"`{source}`" for source in sources)
        lines.append(f"| {places} | {target} | {words} | {basis} |")
    version = f"## {inventory.system}: `{inventory.kind}`\n\n"
    origin = f"`{inventory.group}`; the types are in `{inventory.origin}`.\n\n"
    return version + origin + "\n".join(lines) + "\n"


@pytest.mark.parametrize("inventory", INVENTORIES, ids=lambda one: one.system)
def test_the_reference_has_the_table(inventory: InventoryKind) -> None:
    assert table_of(inventory) in PAGE.read_text()


WORDS = st.sampled_from(["a", "b1", "True", "NoSelect", "NoSchedule", "region", "x y"])
UNKNOWN = st.dictionaries(
    st.sampled_from(["newField", "other"]),
    WORDS | st.lists(WORDS, max_size=2) | st.dictionaries(WORDS, WORDS, max_size=2),
    max_size=1,
)


def put(document: Any, keys: Keys, value: Any) -> None:
    """Put a value at a place; a number adds to a list."""
    for key, following in pairwise(keys):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(document, list):
            if len(document) <= int(key):
                document.append(empty)
            document = document[-1]
        else:
            document = document.setdefault(key, empty)
        if not isinstance(document, dict | list):
            return
    if isinstance(document, list):
        document.append(value)
    else:
        document[keys[-1]] = value


LISTS = {
    *("taints", "clusterClaims", "conditions", "properties", "variables"),
    *("zones", "failureDomains", "finalizers", "managedFields", "ownerReferences"),
}


def places_of(rule: InventoryRule) -> list[Keys]:
    """Return places of values that a rule reads."""
    keys: list[str | int] = []
    for key in rule.pattern:
        if key in (ANY, BELOW):
            keys.append(0 if keys[-1] in LISTS else "k")
        else:
            keys.append(key)
    return [(*keys, name) for name in rule.fields] or [tuple(keys)]


@st.composite
def objects(draw: st.DrawFn, inventory: InventoryKind) -> Document:
    document: Document = {
        "apiVersion": f"{inventory.group}/v1",
        "kind": inventory.kind,
        "metadata": {"name": "a"},
    }
    for rule in draw(st.lists(st.sampled_from(inventory.rules), unique=True)):
        for keys in places_of(rule):
            if keys[0] in document and len(keys) == 1:
                continue
            put(document, keys, draw(WORDS))
    for level in ("metadata", "spec", "status"):
        document.setdefault(level, {}).update(draw(UNKNOWN))
    for entries in (document["spec"].get("taints"),):
        for entry in entries or ():
            entry.update(draw(UNKNOWN))
    return document


@pytest.mark.parametrize("inventory", INVENTORIES, ids=lambda one: one.system)
def test_every_value_is_used_left_out_by_a_rule_or_in_a_note(
    inventory: InventoryKind,
) -> None:
    @given(objects(inventory))
    def check(document: Document) -> None:
        draft = read_inventory(inventory, document)
        noted = [note.path for note in draft.notes]
        taken = {format_path(keys) for keys in draft.places.values()}

        for keys, _ in leaves_of(document):
            ways = {format_path(keys[:end]) for end in range(1, len(keys) + 1)}
            is_ruled = any(fits(rule, keys) and not rule.convert for rule in rules)
            is_health = "conditions" in keys and keys[-1] in HEALTH_FIELDS
            accepted = ("spec", "hubAcceptsClient")
            assert (
                ways & {*noted, *taken}
                or is_ruled
                or is_health
                or (keys == accepted and document["spec"]["hubAcceptsClient"] is True)
            ), keys

    rules = inventory.rules
    check()


HEALTH_FIELDS = next(
    rule.fields for rule in INVENTORIES[0].rules if rule.source == "status.conditions.*"
)


def fits(rule: InventoryRule, keys: Keys) -> bool:
    """Return whether a rule reads the value at a place, told from its text alone."""
    pattern = [*rule.pattern]
    if pattern[-1] == BELOW:
        pattern = pattern[:-1]
        keys = keys[: len(pattern)]
    pairs = list(zip(pattern, keys, strict=False))
    return len(keys) == len(pattern) and all(one in (ANY, key) for one, key in pairs)


def read(text: str) -> Any:
    return read_members(text.encode(), name="file.yaml")


@pytest.mark.skipif(not ARRIVAL.exists(), reason="no shared inputs")
@pytest.mark.parametrize(
    ("name", "labels", "properties", "usage"),
    [
        (
            "mc",
            {
                "region": "east",
                "cluster.open-cluster-management.io/clusterset": "default",
            },
            {"id.k8s.io": "abc", "region.open-cluster-management.io": "east"},
            {
                "capacity": {"cpu": "12", "memory": "24Gi"},
                "allocatable": {"cpu": "10", "memory": "20Gi"},
            },
        ),
        (
            "karmada",
            {
                "region": "east",
                "cluster.karmada.io/provider": "aws",
                "topology.kubernetes.io/region": "us-east",
                "topology.kubernetes.io/zone": "a",
            },
            {},
            None,
        ),
        ("cp", {"region": "east", "x-k8s.io/cluster-manager": "kubefleet"}, {}, None),
    ],
)
def test_the_arrivals_are_read(
    name: str, labels: Document, properties: Document, usage: Document | None
) -> None:
    found = read((ARRIVAL / f"{name}.yaml").read_text())

    (member, *_) = [one.member for one in found.members]
    assert member.metadata.labels == labels
    status = member.status
    assert (status.properties if status else {}) == properties
    assert (
        status.resource_usage.to_plain() if status and status.resource_usage else None
    ) == usage


def ocm(name: str = "a", **spec: Any) -> Document:
    return {
        "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster",
        "metadata": {"name": name},
        "spec": {"hubAcceptsClient": True, **spec},
    }


def test_taints_that_have_no_equal_are_left_out_with_a_note() -> None:
    effects = ("NoSelect", "PreferNoSelect", "NoSelectIfNew")
    taints = [{"key": f"k{at}", "effect": effect} for at, effect in enumerate(effects)]

    found = read(dump_yaml(ocm(taints=taints)))

    (member,) = found.members
    assert [taint.key for taint in member.member.spec.taints] == ["k0", "k2"]
    assert [str(note) for note in found.notes] == [
        "spec.taints[0]: NoSelect becomes NoSchedule: what is placed already stays (a)",
        'spec.taints[1]: Taint left out: "PreferNoSelect" has no equal here (a)',
    ]


def test_an_error_has_the_place_of_the_source() -> None:
    document = ocm(taints=[{"key": "not a key", "effect": "NoSelect"}])
    with pytest.raises(InvalidManifest) as raised:
        read(dump_yaml(document))

    (error,) = raised.value.errors
    assert (error.path, error.line) == ("spec.taints[0].key", 8)


def cluster_api(**parts: Any) -> Document:
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "Cluster",
        "metadata": {"name": "a", "namespace": "fleet"},
        **parts,
    }


@pytest.mark.parametrize(
    "domains",
    [
        {"eu-1a": {"controlPlane": True}, "eu-1b": {"controlPlane": False}},
        [{"name": "eu-1b"}, {"name": "eu-1a", "controlPlane": True}],
    ],
    ids=["v1beta1", "v1beta2"],
)
def test_several_failure_domains_are_one_property(domains: Any) -> None:
    topology = {
        "class": "small",
        "version": "v1.35.0",
        "variables": [{"name": "region", "value": "eu-1"}],
    }
    document = cluster_api(
        spec={"topology": topology}, status={"failureDomains": domains}
    )

    found = read(dump_yaml(document))

    (member,) = [one.member for one in found.members]
    assert member.metadata.labels == {"topology.kubernetes.io/region": "eu-1"}
    assert member.status
    assert member.status.properties == {
        "k8s.io/k8s-version": "v1.35.0",
        "topology.kubernetes.io/zones": "eu-1a,eu-1b",
    }
    assert [note.warning.path for note in found.notes] == ["status.failureDomains"]
