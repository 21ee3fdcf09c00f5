"""Resilience reports: runs in chunks, what they keep, and placements that changed."""

from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from clusters.operations.edit import leave
from fleetui.apimachinery.errors import InvalidManifest
from placements.engine.loss import level_rank
from placements.explain.loss import loss_name, what_if_query
from placements.models import (
    Placement,
    PlacementResilience,
    ResilienceLoss,
    ResilienceReport,
)
from placements.services.loss import report
from placements.services.loss.evaluation import chosen_clusters, losses
from placements.services.loss.report import (
    CHANGED_EVERY,
    EVERY,
    cells_of,
    evaluate_due,
    is_due,
    latest_report,
    start_report,
    update_changed,
)
from placements.services.placements import save_placement
from tests.rows import NOW, joined, load_nine, pick_n_spec, placement_document, run_due

pytestmark = pytest.mark.django_db


def completed(**chosen: Any) -> ResilienceReport:
    """Start a report, and return it completed."""
    row = start_report(**chosen, by=None, now=NOW)
    while ResilienceReport.objects.filter(evaluate_at__isnull=False).exists():
        evaluate_due(now=NOW)
    row.refresh_from_db()
    return row


def content(row: ResilienceReport) -> tuple[Any, ...]:
    """Return everything that a report says."""
    losses = {
        (loss.level, loss.value, loss.variant): cells_of(loss)
        for loss in row.losses.all()
    }
    columns = (
        "placement",
        "survives",
        "weakest_level",
        "weakest_value",
        "decisions_made",
    )
    return losses, row.totals, sorted(PlacementResilience.objects.values_list(*columns))


@pytest.mark.nightly
def test_the_report_says_what_the_what_if_analysis_says() -> None:
    load_nine()
    row = completed()
    assert row.completed_at
    assert row.done == row.losses_count
    names = dict(Placement.objects.values_list("full_name", "pk"))
    for value in ("east", "west"):
        impacts = losses(chosen_clusters([], [f"region:{value}"]))
        for variant, impact in impacts.items():
            loss = row.losses.get(level="region", value=value, variant=variant)
            cells = cells_of(loss)
            inside = [
                placement_loss
                for placement_loss in impact.rows
                if placement_loss.inside
            ]
            assert {
                names[placement_loss.placement]: placement_loss.counts
                for placement_loss in inside
            } == cells
            assert loss.lost == sum(cell.lost for cell in cells.values())
            assert loss.unfulfilled == sum(
                cell.is_unfulfilled for cell in cells.values()
            )


def test_a_run_that_was_killed_resumes_with_the_same_result() -> None:
    load_nine()
    whole = content(completed())
    with patch.object(report, "CHUNK", 2), patch.object(report, "AT_ONCE", 0):
        row = start_report(by=None, now=NOW)
        assert 0 < row.done < row.losses_count
        assert row.evaluate_at
        ResilienceReport.objects.filter(pk=row.pk).update(
            evaluate_at=NOW + timedelta(seconds=60)
        )
        assert not is_due(now=NOW)
        assert not evaluate_due(now=NOW)
        later = NOW + timedelta(seconds=61)
        with patch.object(report, "PIECE", 0):
            while evaluate_due(now=later):
                pass
    row.refresh_from_db()
    assert row.completed_at
    assert content(row) == whole
    assert set(ResilienceLoss.objects.values_list("report", flat=True)) == {row.pk}
    assert ResilienceReport.objects.count() == 2, "totals are kept"


def test_a_changed_placement_is_evaluated_alone_as_in_a_full_run() -> None:
    load_nine()
    row = completed()
    placement = Placement.objects.filter(placement_type="PickN").earliest("name")
    document = placement.document
    document["spec"]["policy"]["numberOfClusters"] = 2
    save_placement(document, by=None, now=NOW)
    save_placement(placement_document("extra", pick_n_spec(1)), by=None, now=NOW)
    Placement.objects.filter(placement_type="PickAll").first().delete()  # type: ignore[union-attr]
    run_due()
    later = NOW + timedelta(minutes=2)
    assert not is_due(now=NOW)
    assert is_due(now=later)
    assert update_changed(row, now=NOW) == 2
    row.refresh_from_db()
    assert not is_due(now=later)
    partly = content(row)
    assert partly == content(completed())


def test_a_change_of_the_fleet_starts_a_run_each_minute_and_an_hour_keeps_one() -> None:
    load_nine()
    first = completed()
    leave(["bravelion"], by=None, now=NOW)
    assert not is_due(now=NOW)
    with patch.object(report, "SMALL_FLEET", 0):
        assert not is_due(now=NOW + CHANGED_EVERY), "a large fleet"
        assert is_due(now=NOW + EVERY)
    for number, name in enumerate(("jumpingcat", "nimblefox", "smartfish"), start=1):
        assert evaluate_due(now=NOW + number * CHANGED_EVERY)
        leave([name], by=None, now=NOW)
    latest = latest_report()
    assert latest is not None
    assert ResilienceReport.objects.count() == 2
    assert first in ResilienceReport.objects.all()


def test_pairs_of_domains_are_losses_of_both() -> None:
    load_nine()
    row = completed(keys=["region", "region+region"])
    assert list(row.totals) == ["cluster", "region", "region+region"]
    losses = row.losses.filter(level="region+region", variant="leave")
    assert {loss.value for loss in losses} == {
        *(
            "east+north",
            "east+south",
            "east+west",
            "north+south",
            "north+west",
            "south+west",
        )
    }
    for pair in losses:
        singles = [
            cells_of(row.losses.get(level="region", variant="leave", value=part))
            for part in pair.value.split("+")
        ]
        for key, cell in cells_of(pair).items():
            alone = [single[key] for single in singles if key in single]
            assert cell.kept <= min(counts.kept for counts in alone)
            assert cell.is_bad >= any(counts.is_empty for counts in alone)
    assert loss_name("region+region", "east+west") == "region=east and region=west"
    assert (
        what_if_query("region+region", "east+west", "leave")["label"]
        == "region:east region:west"
    )
    assert level_rank("region+region") > level_rank("env")


@pytest.mark.nightly
def test_unknown_keys_and_variants_are_refused() -> None:
    load_nine()
    with pytest.raises(InvalidManifest) as refused:
        start_report(keys=["nowhere"], variants=["explode"], by=None, now=NOW)
    assert [error.path for error in refused.value.errors] == ["variants[0]", "keys[0]"]
    for at in range(22):
        joined(f"more{at}", rack=f"r{at}")
    with pytest.raises(InvalidManifest) as refused:
        start_report(keys=["rack", "rack+rack", "region+rack"], by=None, now=NOW)
    assert [(error.path, error.code) for error in refused.value.errors] == [
        ("keys[1]", "too-many"),
        ("keys[2]", "unsatisfiable"),
    ]
    assert not ResilienceReport.objects.exists()
