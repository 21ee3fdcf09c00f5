"""The loss of clusters in each variant, over all placements; nothing is written."""

from collections.abc import Collection
from unittest.mock import Mock

import pytest

from clusters.operations.edit import change_labels, leave
from fleetui.apimachinery.errors import InvalidManifest
from placements.engine.loss import LossVariant, PlacementLoss
from placements.explain.loss import difference_note, emptied_domains
from placements.manifests.placement import SEMANTICS_ANNOTATION
from placements.models import Binding, Decision, Placement
from placements.services.loss import evaluation
from placements.services.loss.evaluation import chosen_clusters, losses, losses_at
from placements.services.loss.queries import worst_domain
from placements.services.loss.report import start_report
from placements.services.placements import save_placement
from tests.builders import fleet, grouped, spread
from tests.rows import (
    NOW,
    all_joined,
    decided,
    joined,
    load_nine,
    pick_n_spec,
    placed,
    run_due,
    spec,
)

pytestmark = pytest.mark.django_db


def fates(clusters: Collection[str]) -> dict[tuple[str, str], tuple[str, int]]:
    """Return fate and number of clusters by placement and variant."""
    return {
        (row.placement, variant): (row.impact, row.placed_after)
        for variant, impact in losses(clusters).items()
        for row in impact.rows
    }


def outcome(clusters: Collection[str], placement: str, variant: str) -> PlacementLoss:
    """Return what one placement would do."""
    rows = losses(clusters)[LossVariant(variant)].rows
    [row] = [row for row in rows if row.placement == placement]
    return row


@pytest.fixture
def east() -> tuple[str, ...]:
    """Load the demo fleet of nine clusters; return those of region east."""
    load_nine()
    return chosen_clusters([], ["region:east"])


def test_w6_region_east_goes_down_on_the_demo_of_nine(east: tuple[str, ...]) -> None:
    impacts = fates(east)

    assert (impacts["web", "leave"], impacts["web", "cordon"]) == (
        ("moves", 5),
        ("moves", 5),
    )
    assert (impacts["ledger", "leave"], impacts["ledger", "cordon"]) == (
        ("stuck", 2),
        ("stuck", 2),
    )
    assert (impacts["batch", "leave"], impacts["batch", "cordon"]) == (
        ("shrinks", 6),
        ("shrinks", 6),
    )
    assert (impacts["config", "leave"], impacts["config", "cordon"]) == (
        ("stuck", 2),
        ("cannot", 3),
    )
    assert {fate for (_, variant), fate in impacts.items() if variant == "down"} == {
        ("down", 2),
        ("down", 4),
        ("down", 6),
    }


@pytest.mark.nightly
def test_w6_under_kubefleet_a_cordoned_east_leaves_web_stuck_at_four_of_five(
    east: tuple[str, ...],
) -> None:
    for placement in Placement.objects.all():
        document = placement.document
        annotations = document["metadata"].get("annotations") or {}
        document["metadata"]["annotations"] = {
            **annotations,
            SEMANTICS_ANNOTATION: "kubefleet",
        }
        save_placement(document, by=None, now=NOW, is_demo=True)
    run_due()

    cordoned = outcome(east, "web", "cordon")
    left = outcome(east, "web", "leave")

    assert (left.impact, left.placed_after) == ("moves", 5)
    assert (cordoned.impact, cordoned.placed_after) == ("stuck", 4)
    assert (cordoned.leaves, cordoned.joins) == (("smartfish",), ())
    [joining] = left.scores
    assert left.leaves == ("smartfish",)
    assert (joining.cluster, joining.topology_spread_score, joining.affinity_score) == (
        "flyingpenguin",
        1,
        -10,
    )
    assert cordoned.message == (
        "No replacement: region=east stays at 0 (no candidates)."
        " Out of balance: region skew 2 with north 2 and east 0, max skew 1."
    )
    assert difference_note(left, cordoned) == (
        "domains are counted over all member clusters, so a cordoned region=east stays a domain with 0"
    )


def test_names_the_empty_domains_that_hold_a_placement_back(
    east: tuple[str, ...],
) -> None:
    assert outcome(east, "ledger", "leave").message == (
        "No replacement: region=south stays at 0 (no candidates)."
    )
    assert outcome(east, "ledger", "cordon").message.startswith(
        "No replacement: region=east and region=south stay at 0 (no candidates)."
    )


def test_changes_nothing(east: tuple[str, ...]) -> None:
    before = (
        list(Placement.objects.values()),
        list(Binding.objects.values()),
        Decision.objects.count(),
    )

    losses(east)

    after = (
        list(Placement.objects.values()),
        list(Binding.objects.values()),
        Decision.objects.count(),
    )
    assert after == before


def test_a_newer_version_evaluates_only_what_has_other_inputs(
    east: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    losses_at("1", east)
    counted = Mock(wraps=evaluation.loss)
    monkeypatch.setattr(evaluation, "loss", counted)
    Placement.objects.filter(name="web").update(number_of_clusters=4)

    impacts = losses_at("2", east)

    assert {call.args[0].name for call in counted.call_args_list} == {"web"}
    assert impacts == losses(east)


@pytest.mark.nightly
def test_foretells_what_leaving_then_does() -> None:
    for name, region in {"a": "east", "b": "west", "c": "west", "d": "north"}.items():
        joined(name, region=region)
    decided("web", pick_n_spec(2, topologySpreadConstraints=[spread("region")]))
    decided("all", spec())
    there = set(
        Binding.objects.filter(placement__name="web").values_list(
            "cluster_name", flat=True
        )
    )
    row = outcome(there, "web", "leave")
    assert outcome(there, "all", "leave").placed_after == 2

    leave(sorted(there), by=None, now=NOW)
    Placement.objects.update(generation=99)
    run_due()

    assert list(row.joins) == placed(Placement.objects.get(name="web"))


def test_a_placement_that_tolerates_the_cordon_stays_where_it_is() -> None:
    all_joined("a", "b")
    decided(
        "daemon",
        spec({"placementType": "PickAll", "tolerations": [{"operator": "Exists"}]}),
    )

    assert fates(["a"]) == {
        ("daemon", "down"): ("down", 1),
        ("daemon", "cordon"): ("cannot", 2),
        ("daemon", "leave"): ("shrinks", 1),
    }


def test_objects_are_out_of_service_where_no_cluster_is_left() -> None:
    joined("a")
    decided("web", pick_n_spec(1))
    Placement.objects.update(selected_count=3)

    rows = [outcome(["a"], "web", variant) for variant in LossVariant]

    assert [(row.is_empty, row.objects_out_of_service) for row in rows] == [
        (True, 3)
    ] * 3
    assert (
        rows[0].message
        == "1 cluster does not work; nothing moves yet. 3 objects out of service."
    )


def test_who_is_not_concerned_is_not_listed() -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))
    decided("odd", spec())
    Placement.objects.filter(name="odd").update(
        selection_faults=[{"path": "", "code": "", "message": ""}]
    )

    assert fates(["a"]) == {}


@pytest.mark.parametrize(
    ("names", "labels", "path", "code"),
    [
        (["a", "missing"], [], "clusters[1]", "unknown-cluster"),
        ([], ["region:moon"], "labels", "unsatisfiable"),
        ([], [], "clusters", "required"),
    ],
)
def test_refuses_a_choice_without_clusters(
    names: list[str], labels: list[str], path: str, code: str
) -> None:
    joined("a", region="east")

    with pytest.raises(InvalidManifest) as refusal:
        chosen_clusters(names, labels)

    assert [(error.path, error.code) for error in refusal.value.errors] == [
        (path, code)
    ]


def test_clusters_are_chosen_by_name_and_by_label_together() -> None:
    joined("a", region="east", env="prod")
    joined("b", region="east", env="canary")
    joined("c", region="west", env="prod")

    assert chosen_clusters(["c"], ["region:east", "env:prod"]) == ("a", "c")


def test_a_domain_is_emptied_when_all_of_its_clusters_are_gone() -> None:
    before = fleet(*grouped("region", east="e1 e2", west="w1"))
    after = before.with_clusters([], gone=["e1", "w1"])

    assert emptied_domains(after, before, ["region", "region", "env"]) == [
        "region=west"
    ]


def test_a_loss_that_leaves_a_hard_limit_exceeded_says_so() -> None:
    for name, region in {"a": "east", "b": "east", "c": "west"}.items():
        joined(name, region=region)
    decided("web", pick_n_spec(3, topologySpreadConstraints=[spread("region")]))

    assert outcome(["c"], "web", "cordon").message == (
        "No replacement: no other cluster passes its filters."
        " Out of balance: region skew 2 with east 2 and west 0, max skew 1."
    )
    assert "Out of balance" not in outcome(["c"], "web", "leave").message


def test_the_worst_domain_is_that_of_the_latest_report_or_the_largest() -> None:
    assert worst_domain() is None
    load_nine()
    all_joined("x1", "x2", "x3")
    change_labels(["x1", "x2", "x3"], put={"region": "south"}, by=None, now=NOW)
    assert worst_domain() == ("region", "south")

    start_report(by=None, now=NOW)

    assert worst_domain() == ("env", "prod")
