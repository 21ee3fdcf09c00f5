"""A fleet: its order, its columns, and what a policy can see of it."""

import gc

import pytest

from clusters.fleet import (
    Cluster,
    DuplicateClusterError,
    Fleet,
    ResourceUsage,
    collector_paused,
)
from tests.builders import cluster, fleet, taint


def test_sorts_clusters_by_name() -> None:
    one = fleet("charlie", "alpha", "bravo")

    assert one.names == ("alpha", "bravo", "charlie")
    assert [each.name for each in one] == ["alpha", "bravo", "charlie"]
    assert one.positions == {"alpha": 0, "bravo": 1, "charlie": 2}


def test_names_compare_byte_by_byte() -> None:
    assert fleet("b", "a-1", "a", "a.1", "a1", "B").names == (
        "B",
        "a",
        "a-1",
        "a.1",
        "a1",
        "b",
    )


def test_refuses_two_clusters_of_one_name() -> None:
    with pytest.raises(DuplicateClusterError, match="'twin'") as caught:
        fleet("twin", "other", "twin")

    assert caught.value.name == "twin"


def test_an_empty_fleet_has_empty_columns() -> None:
    empty = Fleet()

    assert len(empty) == 0
    assert empty.label("region").codes.tolist() == []
    assert empty.property("cpu").ranks.tolist() == []
    assert empty.is_eligible.tolist() == []
    assert empty.taint_codes.tolist() == []


def test_columns_stand_in_the_order_of_names_whatever_the_order_given() -> None:
    clusters = [
        cluster("a", region="east", properties={"cpu": "2"}),
        cluster("b", taints=[taint("gpu")], not_eligible="noAgent"),
        cluster("c", region="west", properties={"cpu": "1"}),
    ]

    for one in (Fleet(clusters), Fleet(clusters[::-1])):
        assert one.label("region").codes.tolist() == [0, -1, 1]
        assert one.property("cpu").ranks.tolist() == [1, -1, 0]
        assert one.is_eligible.tolist() == [True, False, True]
        assert [one.taint_sets[code] for code in one.taint_codes] == [
            (),
            (taint("gpu"),),
            (),
        ]


def test_a_column_is_made_once() -> None:
    one = fleet(cluster("a", region="east"))

    assert one.label("region") is one.label("region")
    assert one.property("cpu") is one.property("cpu")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("resources.kubernetes-fleet.io/total-cpu", "8"),
        ("resources.kubernetes-fleet.io/allocatable-cpu", "7"),
        ("resources.kubernetes-fleet.io/available-cpu", "3"),
        ("resources.kubernetes-fleet.io/available-nvidia.com/gpu", "1"),
        ("resources.kubernetes-fleet.io/total-memory", None),
        ("resources.kubernetes-fleet.io/odd-cpu", "property"),
        ("cpu", "property"),
        ("memory", None),
    ],
)
def test_resource_names_read_the_usage_and_others_the_properties(
    name: str, text: str | None
) -> None:
    usage = ResourceUsage(
        {"cpu": "8"}, {"cpu": "7"}, {"cpu": "3", "nvidia.com/gpu": "1"}
    )
    properties = {
        "cpu": "property",
        "resources.kubernetes-fleet.io/odd-cpu": "property",
    }

    one = cluster("a", usage=usage, properties=properties)

    assert fleet(one).property(name).texts == (text,)


def test_without_gives_the_fleet_that_one_cluster_left() -> None:
    one = fleet("a", "b", "c")

    assert one.without("b").names == ("a", "c")
    assert one.names == ("a", "b", "c")


def test_with_cluster_replaces_or_adds() -> None:
    one = fleet("a", cluster("b", region="east"))

    assert one.with_cluster(cluster("b", region="west")).label("region").values == (
        "west",
    )
    assert one.with_cluster(cluster("c")).names == ("a", "b", "c")


def test_a_fleet_without_some_clusters_is_the_one_that_would_have_been_made_so() -> (
    None
):
    cpus = {"a": "4", "b": "2", "c": "x", "d": "4"}
    one = fleet(
        *(
            cluster(name, labels={"region": name}, properties={"cpu": cpus[name]})
            for name in "cabd"
        )
    )

    after = one.with_clusters((), gone=["b", "none"])

    assert _columns_of(after) == _columns_of(
        Fleet(each for each in one if each.name != "b")
    )


@pytest.mark.parametrize("has_columns", [True, False])
@pytest.mark.parametrize(
    "changed",
    [
        cluster(
            "b", labels={"region": "west", "tier": "gold"}, properties={"cpu": "4"}
        ),
        cluster("b", labels={"region": "east"}, properties={"cpu": "8"}),
        cluster(
            "b",
            labels={"region": "east"},
            properties={"cpu": "4"},
            taints=[taint("gpu")],
        ),
        cluster("b", labels={"tier": "gold"}),
        cluster("d", labels={"region": "north"}, properties={"cpu": "1"}),
    ],
)
def test_a_changed_fleet_is_the_one_that_would_have_been_made_so(
    changed: Cluster, has_columns: bool
) -> None:
    labels, properties = ("region", "tier"), ("cpu",)
    one = fleet(
        *(
            cluster(name, labels={"region": "east"}, properties={"cpu": "4"})
            for name in "cab"
        )
    )
    if has_columns:
        _columns_of(one)

    after = one.with_clusters([changed])

    expected = Fleet({each.name: each for each in (*one, changed)}.values())
    assert after.clusters == expected.clusters
    assert _columns_of(after) == _columns_of(expected)
    assert after.digest(labels, properties) == expected.digest(labels, properties)
    assert _columns_of(one) == _columns_of(Fleet(one.clusters))


def test_columns_in_which_nothing_changed_are_shared() -> None:
    one = fleet(
        *(
            cluster(name, labels={"region": "east"}, properties={"cpu": "4"})
            for name in "ab"
        )
    )
    region, cpu = one.label("region"), one.property("cpu")

    cordoned = one.with_clusters(
        [one.clusters[0].with_changes(taints=(taint("cordon"),))]
    )

    assert cordoned.label("tier") is one.label("tier")
    assert cordoned.label("region") is region
    assert cordoned.property("cpu") is cpu


def _columns_of(one: Fleet) -> list[object]:
    columns = [one.label(key) for key in ("region", "tier")] + [one.claim("cpu")]
    cpu = one.property("cpu")
    return [
        one.names,
        one.positions,
        one.is_eligible.tolist(),
        [one.taint_sets[code] for code in one.taint_codes],
        [(column.values, column.codes.tolist()) for column in columns],
        (
            cpu.texts,
            [cpu.parsed[text] for text in cpu.texts],
            cpu.distinct,
            cpu.ranks.tolist(),
            cpu.is_malformed.tolist(),
        ),
    ]


def test_digest_does_not_depend_on_the_order_of_clusters_or_keys() -> None:
    one, other = (
        cluster("a", x="1", y="2", properties={"p": "1", "q": "2"}),
        cluster("b"),
    )

    digests = {
        fleet(one, other).digest(("x", "y"), ("p", "q")),
        fleet(other, one).digest(("y", "x", "x"), ("q", "p")),
        fleet(
            other, cluster("a", y="2", x="1", properties={"q": "2", "p": "1"})
        ).digest(("x", "y"), ("p", "q")),
    }

    assert len(digests) == 1


def test_digest_sees_only_the_labels_and_properties_that_are_read() -> None:
    plain = fleet(cluster("a", x="1"))
    more = fleet(cluster("a", x="1", y="2", properties={"p": "1"}))

    assert plain.digest(("x",), ()) == more.digest(("x",), ())
    assert plain.digest(("x", "y"), ()) != more.digest(("x", "y"), ())
    assert plain.digest(("x",), ("p",)) != more.digest(("x",), ("p",))


@pytest.mark.parametrize(
    "changed",
    [
        cluster("b", x="1", properties={"p": "1"}),
        cluster("a", x="2", properties={"p": "1"}),
        cluster("a", x="1", properties={"p": "2"}),
        cluster("a", properties={"p": "1"}),
        cluster("a", x="1", properties={"p": "1"}, taints=[taint("gpu")]),
        cluster("a", x="1", properties={"p": "1"}, not_eligible="noAgent"),
    ],
    ids=["name", "label", "property", "label gone", "taint", "eligibility"],
)
def test_digest_changes_with_all_that_a_policy_can_see(changed: Cluster) -> None:
    before = fleet(cluster("a", x="1", properties={"p": "1"}))

    assert fleet(changed).digest(("x",), ("p",)) != before.digest(("x",), ("p",))


def test_a_change_hashes_only_the_columns_that_it_changes() -> None:
    before = fleet(cluster("a", x="1", y="1"), cluster("b", x="1", y="2"))
    before.digest(("x", "y"), ())

    after = before.with_clusters([cluster("a", x="2", y="1")])

    assert "digest" in after.label("y").__dict__
    assert "digest" not in after.label("x").__dict__


def test_digest_distinguishes_an_empty_label_from_none() -> None:
    assert fleet(cluster("a", x="")).digest(("x",), ()) != fleet("a").digest(("x",), ())


def test_collector_is_paused_only_inside() -> None:
    with collector_paused():
        assert not gc.isenabled()

    assert gc.isenabled()
