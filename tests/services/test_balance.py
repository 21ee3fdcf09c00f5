"""Balance of `ocm` reads what other placements have, and the decision keeps what it read."""

from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from clusters.queries import current_fleet
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.placement import parse_placement
from placements.models import Decision, Placement
from placements.services.decisions.records import decision_of
from placements.services.disruption.restore import fresh_schedule
from placements.services.editor.preview import preview
from placements.services.placements import save_placement
from placements.services.snapshots import cycles_of
from tests.ocm_documents import NAMESPACE, ocm_document, with_resources
from tests.rows import (
    NOW,
    all_joined,
    decided,
    joined,
    pick_n_spec,
    placed,
    run_due,
    spec,
)

pytestmark = [pytest.mark.django_db, pytest.mark.servers]


@pytest.fixture(autouse=True)
def _used() -> None:
    """Place others on c1 once and on c2 twice."""
    all_joined("c1", "c2", "c3")
    decided("both", spec({"placementType": "PickFixed", "clusterNames": ["c1", "c2"]}))
    decided("second", spec({"placementType": "PickFixed", "clusterNames": ["c2"]}))


def wanted(number: int = 1, **more: Any) -> dict[str, Any]:
    """Write an OCM Placement that wants so many clusters."""
    return with_resources(
        ocm_document("mine", numberOfClusters=number, **more), NAMESPACE
    )


def saved(document: dict[str, Any]) -> Placement:
    """Save an OCM Placement and decide it."""
    save_placement(document, by=None, now=NOW)
    run_due()
    return Placement.objects.get(name="mine")


def read(placement: Placement) -> object:
    """Return the counts that the last decision of a placement read."""
    return last(placement).cycle.options.get("balance")


def last(placement: Placement) -> Any:
    """Return the last decision of a placement, as it was stored."""
    return decision_of(Decision.objects.filter(placement=placement).latest("number"))


def test_the_cluster_that_others_use_least_is_chosen() -> None:
    placement = saved(wanted())

    assert placed(placement) == ["c3"]
    assert read(placement) == {"c1": 1, "c2": 2}


def test_the_preview_decides_what_saving_decides_and_its_replay_too() -> None:
    document = wanted(2)

    previewed = preview(parse_placement(document)).decision
    placement = saved(document)

    stored = last(placement)
    assert previewed.picked_names == stored.picked_names == ("c3", "c1")
    assert previewed.id == stored.id == schedule(stored.cycle).id


def test_what_a_placement_has_itself_is_not_counted() -> None:
    placement = saved(wanted(2))
    [(_, cycle)] = cycles_of([placement], current_fleet().fleet)

    assert cycle.options["balance"] == {"c1": 1, "c2": 2}
    assert (
        preview(parse_placement(placement.document)).decision.cycle.options
        == cycle.options
    )
    assert fresh_schedule(placement).leaves == ()


def test_nothing_is_read_where_balance_weighs_nothing() -> None:
    exact = {"mode": "Exact"}

    placement = saved(wanted(prioritizerPolicy=exact))

    assert placed(placement) == ["c1"]
    assert read(placement) is None


def test_counts_that_the_placement_names_come_first() -> None:
    document = spec({"placementType": "PickN", "numberOfClusters": 1})
    text = '{"balance": {"c3": 5}}'

    placement = decided("mine", document, semantics="ocm", spread_options=text)

    assert placed(placement) == ["c1"]
    assert read(placement) == {"c3": 5}


@pytest.mark.nightly
def test_many_placements_are_counted_at_once(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    joined("c4")
    saved(wanted(2))
    decided("other", pick_n_spec(1), semantics="ocm")
    placements, fleet = list(Placement.objects.order_by("name")), current_fleet().fleet

    with django_assert_num_queries(3):
        balances = {
            placement.name: cycle.options.get("balance")
            for placement, cycle in cycles_of(placements, fleet)
        }

    assert balances["both"] is None
    assert balances["mine"] == {"c1": 2, "c2": 2}
    assert balances["other"] == {"c1": 1, "c2": 2, "c3": 1, "c4": 1}


@pytest.mark.nightly
def test_what_others_get_later_makes_no_cycle_run_and_counts_in_the_next() -> None:
    placement = saved(wanted())

    decided("third", spec({"placementType": "PickFixed", "clusterNames": ["c3"]}))
    placement.refresh_from_db()

    assert not placement.is_due
    assert read(placement) == {"c1": 1, "c2": 2}
    [(_, cycle)] = cycles_of([placement], current_fleet().fleet)
    assert cycle.options["balance"] == {"c1": 1, "c2": 2, "c3": 1}
