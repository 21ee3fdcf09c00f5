"""Whatever is parsed: a value, or InvalidManifest, and never anything else."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.case_manifest import parse_case_cluster, parse_clusters
from clusters.manifest import parse_member
from fleetui.apimachinery.errors import InvalidManifest, format_path, split_path
from fleetui.apimachinery.model import Semantics, parse_semantics
from fleetui.apimachinery.yaml import load_documents
from placements.engine.resource_manifest import parse_hub_object
from placements.manifests.placement import parse_placement, spec_warnings
from placements.manifests.policy import parse_policy
from tests.documents import (
    CODES,
    OURS,
    Document,
    annotated,
    member,
    parse_placement_spec,
    placement,
)
from tests.documents import PARSERS as SMALLER_PARSERS
from tests.hub_objects import manifest

WORDS = """
    placementType PickN PickAll PickFixed numberOfClusters clusterNames affinity clusterAffinity
    requiredDuringSchedulingIgnoredDuringExecution clusterSelectorTerms weight preference labelSelector
    preferredDuringSchedulingIgnoredDuringExecution matchLabels matchExpressions key operator values In Exists
    propertySelector propertySorter name sortOrder Gt Eq topologySpreadConstraints topologyKey maxSkew
    whenUnsatisfiable tolerations effect value kind apiVersion metadata spec status labels annotations taints
    properties resourceUsage capacity eligible agentStatus conditions strategy
"""
TEXTS = st.sampled_from(
    [*WORDS.split(), "", "1", "1Gi", "25%", "a" * 300, "\ud800"]
) | st.text(max_size=5)
NUMBERS = st.integers() | st.floats()
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS | st.binary(max_size=2)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXTS | st.integers(0, 1), inner, max_size=5)
    ),
    max_leaves=25,
)

PARSERS: list[Callable[[Any], object]] = [
    parse_policy,
    parse_placement,
    parse_placement_spec,
    parse_case_cluster,
    parse_clusters,
    parse_hub_object,
    parse_semantics,
    *SMALLER_PARSERS.values(),
]

FULL_POLICY: Document = {
    "placementType": "PickN",
    "numberOfClusters": 3,
    "affinity": {
        "clusterAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "clusterSelectorTerms": [
                    {
                        "labelSelector": {
                            "matchLabels": {"a": "b"},
                            "matchExpressions": [
                                {"key": "c", "operator": "In", "values": ["d", "e"]}
                            ],
                        },
                        "propertySelector": {
                            "matchExpressions": [
                                {"name": "f", "operator": "Gt", "values": ["1"]},
                                {"name": "f", "operator": "Lt", "values": ["1Gi"]},
                            ]
                        },
                    }
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 5,
                    "preference": {
                        "propertySorter": {"name": "g", "sortOrder": "Ascending"}
                    },
                }
            ],
        }
    },
    "topologySpreadConstraints": [
        {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "tolerations": [
        {"key": "h", "operator": "Equal", "value": "i", "effect": "NoSchedule"}
    ],
}
FULL_PLACEMENT = {
    **annotated(semantics="kubefleet", spread_options="{}"),
    "spec": placement(
        policy=FULL_POLICY,
        strategy={
            "type": "RollingUpdate",
            "rollingUpdate": {
                "maxUnavailable": 1,
                "maxSurge": "25%",
                "unavailablePeriodSeconds": 5,
            },
            "applyStrategy": {
                "type": "ServerSideApply",
                "serverSideApplyConfig": {"force": True},
            },
            "deleteStrategy": {"propagationPolicy": "Abandon"},
        },
        revisionHistoryLimit=5,
        statusReportingScope="NamespaceAccessible",
    )["spec"],
}
FULL_MEMBER = member(
    metadata={"labels": {"a": "b"}, "deletionTimestamp": "2026-08-20T12:00:00Z"},
    taints=[{"key": "a", "value": "b", "effect": "NoSchedule"}],
    status={
        "agentStatus": [
            {
                "type": "MemberAgent",
                "lastReceivedHeartbeat": "2026-08-20T12:00:00Z",
                "conditions": [{"type": "Joined", "status": "True"}],
            }
        ],
        "properties": {"a": {"value": "1"}},
        "resourceUsage": {"capacity": {"cpu": 1}},
    },
)
FULL_CASE = {
    "name": "a",
    "labels": {"b": "c"},
    "taints": [{"key": "d", "value": "e", "effect": "NoSchedule"}],
    "properties": {"f": "1"},
    "resourceUsage": {"available": {"cpu": "1"}},
    "eligible": {"value": False, "kind": "unhealthy", "reason": "ill"},
}

FULL_MANIFEST = manifest(
    *("Service", "web", "shop"),
    labels={"a": "b"},
    annotations={"example.com/c": "d"},
    ownerReferences=[{"kind": "e"}],
    spec={"ports": [{"port": 80}]},
)

SMALLER = [
    (SMALLER_PARSERS[document.data["kind"]], document.data)
    for name in ("staged-update", "overrides", "budget-and-evictions")
    for document in load_documents((OURS / f"{name}.yaml").read_bytes())
]


def outcome(parse: Callable[[Any], object], raw: object) -> str:
    """Return what a parser makes of raw data, written out as a page would."""
    try:
        return repr(parse(raw))
    except InvalidManifest as errors:
        odd = {error.code for error in errors.errors} - CODES
        return "" if odd else str(errors)


@pytest.mark.nightly
@given(ANYTHING)
@pytest.mark.parametrize("parse", PARSERS)
def test_parsing_returns_a_value_or_faults(
    parse: Callable[[Any], object], raw: object
) -> None:
    assert outcome(parse, raw)


def places(value: Any) -> Iterator[tuple[str | int, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inner:
        yield (key,)
        yield from ((key, *deeper) for deeper in places(item))


@given(st.data())
@pytest.mark.parametrize(
    ("parse", "good"),
    [
        (parse_policy, FULL_POLICY),
        (lambda raw: parse_policy(raw, semantics=Semantics.KUBERNETES), FULL_POLICY),
        (parse_placement, FULL_PLACEMENT),
        (parse_member, FULL_MEMBER),
        (parse_case_cluster, FULL_CASE),
        (parse_hub_object, FULL_MANIFEST),
        *SMALLER,
    ],
    ids=["policy", "policy under kubernetes", "placement", "member", "case", "manifest"]
    + [f"{document['kind']} {document['metadata']['name']}" for _, document in SMALLER],
)
def test_a_good_document_spoilt_in_one_place_is_a_value_or_faults(
    parse: Callable[[Any], object], good: Document, data: st.DataObject
) -> None:
    keys = data.draw(st.sampled_from(list(places(good))))
    spoilt = copy.deepcopy(good)
    inner: Any = spoilt
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = data.draw(ANYTHING)

    assert outcome(parse, spoilt)


@pytest.mark.parametrize(
    ("parse", "good"),
    [
        (parse_policy, FULL_POLICY),
        (parse_placement, FULL_PLACEMENT),
        (parse_hub_object, FULL_MANIFEST),
    ],
)
def test_the_good_documents_are_good(
    parse: Callable[[Any], object], good: Document
) -> None:
    assert parse(good)


def test_a_value_always_has_its_warnings() -> None:
    assert [
        warning.code for warning in spec_warnings(parse_placement(FULL_PLACEMENT).spec)
    ] == [
        "not-acted-on-yet",
        "not-acted-on-yet",
    ]


@given(st.lists(st.text() | st.integers(0), max_size=6))
def test_paths_can_be_read_back(keys: list[str | int]) -> None:
    assert split_path(format_path(keys)) == tuple(keys)


@pytest.mark.nightly
@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "keys",
    [("name",), ("labels", "a"), ("properties", "a"), ("numberOfClusters",), ("kind",)],
)
def test_numbers_too_long_to_print_are_refused(
    parse: Callable[[Any], object], keys: tuple[str, ...]
) -> None:
    raw: Any = 10**5000
    for key in reversed(keys):
        raw = {key: raw}

    assert outcome(parse, {"name": "a", **raw})


def test_data_that_contains_itself_is_too_deep() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(InvalidManifest, match="nested too deeply"):
        parse_policy({"tolerations": endless})


def test_a_flood_of_faults_is_cut() -> None:
    with pytest.raises(InvalidManifest) as raised:
        parse_policy(
            {"tolerations": [], "x": 1} | {f"unknown{i}": i for i in range(10_000)}
        )

    assert 100 <= len(raised.value.errors) < 1000
