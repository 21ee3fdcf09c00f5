"""Which other placements put the same objects on the same clusters, and what is said of them."""

from placements.engine.overlaps import (
    Overlap,
    Placed,
    all_overlaps,
    keys_of,
    overlaps_of,
)

SHOP = ("", "Namespace", "", "shop")
WEB = ("apps", "Deployment", "shop", "web")


def placed(
    name: str,
    *objects: tuple[str, str, str, str],
    on: str = "abc",
    is_shared: bool = False,
) -> Placed:
    """Make what a placement applies to clusters with names of one letter."""
    return Placed(name, frozenset(objects), frozenset(on), is_shared)


def test_an_overlap_has_a_common_object_on_a_common_cluster() -> None:
    mine = placed("web", SHOP, WEB)
    others = [
        placed("web", SHOP, WEB),
        placed("same", SHOP, WEB, on="bcd"),
        placed("elsewhere", SHOP, on="xyz"),
        placed("different", ("", "ConfigMap", "shop", "web")),
        placed("one", WEB, on="a"),
    ]

    assert overlaps_of(mine, others) == (
        Overlap("one", (WEB,), 1),
        Overlap("same", (SHOP, WEB), 2),
    )


def test_an_overlap_is_one_of_both_placements() -> None:
    both = all_overlaps(
        [placed("a", SHOP), placed("b", SHOP, on="c"), placed("c", WEB)]
    )

    assert both == {
        "a": (Overlap("b", (SHOP,), 1),),
        "b": (Overlap("a", (SHOP,), 1),),
        "c": (),
    }


def test_objects_of_two_versions_of_an_api_are_one_object() -> None:
    assert keys_of(
        [["apps/v1", *WEB[1:]], ["apps/v1beta1", *WEB[1:], "ResourceEnvelope", "box"]]
    ) == {WEB}


def test_the_sentence_names_placement_objects_and_clusters() -> None:
    assert Overlap("api", (SHOP, WEB), 1).sentence == (
        "api places these too, on 1 cluster: Namespace shop, Deployment shop/web. "
        "A cluster refuses what belongs to the other placement: select other resources, or allow co-ownership"
        " in both placements."
    )


def test_placements_share_only_where_both_allow_it() -> None:
    mine = placed("web", SHOP, is_shared=True)
    others = [placed("a", SHOP), placed("b", SHOP, is_shared=True)]

    assert [overlap.is_shared for overlap in overlaps_of(mine, others)] == [False, True]
    assert "simulated clusters share them" in overlaps_of(mine, others)[1].sentence
