"""The resilience report on pages, over REST and as a command."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.test import Client
from rest_framework.test import APIClient

from clusters.models import MemberCluster
from clusters.operations.edit import change_labels
from placements.engine.loss import LossCounts
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import (
    Binding,
    Placement,
    PlacementResilience,
    ResilienceLoss,
    ResilienceReport,
)
from placements.services.loss import report as runs
from placements.services.loss.queries import survival_by_group
from placements.services.loss.report import cells_of, start_report
from placements.services.metrics import metrics_registry
from tests.commands import call_command
from tests.database import compare_all
from tests.rows import NOW, load_nine

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]


@pytest.fixture
def report() -> ResilienceReport:
    """Compute the report of the demo, rolled out."""
    load_nine()
    Binding.objects.update(state=BindingState.BOUND, phase=Phase.AVAILABLE)
    compare_all(now=NOW)
    return start_report(by=None, now=NOW)


def test_a_viewer_computes_a_report_and_reads_it(
    viewer: Client, text_of: Fetch
) -> None:
    load_nine()
    assert "No report yet" in text_of(viewer, "/what-if/resilience/")
    assert viewer.post("/what-if/resilience/").status_code == 302
    page = text_of(viewer, "/what-if/resilience/?variant=leave")
    assert "Loss of any single cluster" in page
    assert "Loss of any region" in page
    assert re.search(r"up to \d+ \w+ [\w ]+, if cluster \w+ is lost\.", page)
    assert 'href="/what-if/?label=region%3Aeast&amp;variant=leave"' in page
    assert "Outdated" not in page
    down = text_of(viewer, "/what-if/resilience/?variant=down&level=region")
    assert "Unfulfilled</th>" not in down
    losses = down.partition('id="losses"')[2].partition("</section>")[0]
    assert "cluster bravelion" not in losses
    refused = viewer.post("/what-if/resilience/", {"keys": "nowhere"})
    assert refused.status_code == 422
    assert "no cluster has this label" in refused.content.decode()


@pytest.mark.nightly
@pytest.mark.usefixtures("report")
def test_placements_and_the_overview_show_the_report(
    viewer: Client, text_of: Fetch
) -> None:
    card = text_of(viewer, "/")
    assert 'href="/what-if/resilience/"' in card
    assert "Loss of any single cluster" in card
    row = PlacementResilience.objects.filter(survives__contains="|cluster|").first()
    assert row is not None
    others = Placement.objects.exclude(pk__in=_surviving("region"))
    listed = text_of(viewer, "/placements/?survives=region").partition('id="list"')[2]
    assert all(f"/placements/{other.full_name}/" not in listed for other in others)
    assert all(
        f"/placements/{name}/" in listed for name in _names(_surviving("region"))
    )
    page = text_of(viewer, f"/placements/{row.placement.full_name}/")
    assert "the loss of any cluster" in page


@pytest.mark.usefixtures("report")
def test_a_report_is_outdated_wherever_it_is_shown_and_gone_with_its_clusters(
    viewer: Client, text_of: Fetch
) -> None:
    changed = "Computed for an earlier version of the fleet."
    before = "(before the last change)"
    card, listed = (text_of(viewer, one) for one in ("/", "/placements/"))
    ledger = text_of(viewer, "/placements/ledger/")
    words = " ".join(re.sub(r"<[^>]*>", " ", ledger).split())
    assert "does not survive the loss of a cluster" in words, "it has too few already"
    assert "4 clusters are wanted, 3 selected." in words
    assert "the loss of any cluster: the placement stays fulfilled." in text_of(
        viewer, "/placements/web/"
    )
    assert "Loss of any" in card
    assert changed not in card
    assert listed.count("<span>Survives the loss of any cluster") == 2
    assert listed.count("<span>Does not survive the loss of a cluster</span>") == 3
    assert before not in listed
    assert "Loss of any" in text_of(viewer, "/inbox/"), "the list of the overview"
    assert advice_counts(card) == advice_counts(text_of(viewer, "/inbox/")) != set()

    change_labels(["bravelion"], put={"region": "north"}, by=None, now=NOW)

    listed = text_of(viewer, "/placements/").partition("<tbody>")[2]
    assert listed.count(f"{before}</span>") == 5
    assert "Outdated" not in listed
    compare_all(now=datetime.now(UTC))
    assert changed in text_of(viewer, "/")
    assert changed in text_of(viewer, "/what-if/resilience/")

    MemberCluster.objects.update(
        joined_at=NOW + timedelta(minutes=1)
    )  # others of the same names
    change_labels(["bravelion"], put={"region": "south"}, by=None, now=NOW)
    compare_all(now=datetime.now(UTC))

    assert "Loss of any" not in text_of(viewer, "/")
    assert "Loss of any" not in text_of(viewer, "/inbox/")


def advice_counts(page: str) -> set[str]:
    """Return what the chips All and Advice of a list of attention count."""
    return set(re.findall(r"(?:All|Advice) <b>(\d+)</b>", page))


def test_what_is_not_available_survives_nothing(viewer: Client, text_of: Fetch) -> None:
    load_nine()
    start_report(by=None, now=NOW)

    assert "the loss of any" not in text_of(viewer, "/placements/web/")
    assert 'title="Survives' not in text_of(viewer, "/placements/")


@pytest.mark.nightly
def test_the_map_of_losses_has_the_cells_of_the_report(
    report: ResilienceReport, viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, "/what-if/resilience/?variant=leave")
    assert 'id="chart-survival"' in page
    assert (
        "cluster bravelion"
        not in page.partition('id="chart-survival"')[2].partition("</figure>")[0]
    )
    table = text_of(
        viewer, "/what-if/resilience/?variant=leave&level=region&table=survival"
    )
    names = dict(Placement.objects.values_list("pk", "full_name"))
    losses = report.losses.filter(variant="leave", level="region")
    wanted = {
        (f"region={loss.value}", names[key], int(cell.is_bad))
        for loss in losses
        for key, cell in cells_of(loss).items()
    }
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in rows]
    drawn_cells = {
        (row[0].strip(), row[1].strip(), int(row[3]))
        for row in cells
        if row[3:] and row[3].strip().isdigit()
    }
    assert drawn_cells == wanted
    assert viewer.get("/what-if/resilience/?table=other").status_code == 404


def test_many_placements_are_grouped_by_team_or_namespace() -> None:
    losses = [_packed({1: (True, 3), 2: (False, 0), 3: (True, 1)})]
    teams = [(key, f"p{key}", "", {"team": "ab"[key % 2]}) for key in range(1, 60)]
    assert survival_by_group(losses, teams) == ("team", [{"b": (2, 2), "a": (1, 0)}])
    spaces: list[tuple[int, str, str, dict[str, str]]] = [
        (key, f"p{key}", "shop" if key > 1 else "", {}) for key in range(1, 60)
    ]
    assert survival_by_group(losses, spaces) == (
        "namespace",
        [{"no namespace": (1, 1), "shop": (2, 1)}],
    )
    assert survival_by_group(losses, teams[:2]) == (
        "placement",
        [{"p1": (1, 1), "p2": (1, 0)}],
    )


def _packed(cells: dict[int, tuple[bool, int]]) -> ResilienceLoss:
    report = ResilienceReport(variants=["leave"])
    results = {
        key: LossCounts(1, 0, lost, is_bad) for key, (is_bad, lost) in cells.items()
    }
    row = runs._loss(report, "region", "east", "leave", 1, results)
    assert row is not None
    return row


def _surviving(level: str) -> list[int]:
    rows = PlacementResilience.objects.filter(survives__contains=f"|{level}|")
    return list(rows.values_list("placement", flat=True))


def _names(keys: list[int]) -> list[str]:
    return list(
        Placement.objects.filter(pk__in=keys).values_list("full_name", flat=True)
    )


@pytest.fixture
def reader(viewer: Client) -> APIClient:
    """Return a caller with the role viewer."""
    caller = APIClient()
    caller.force_authenticate(User.objects.get(pk=viewer.session["_auth_user_id"]))
    return caller


@pytest.mark.usefixtures("report")
def test_the_report_over_rest(reader: APIClient) -> None:
    started = reader.post(
        "/api/v1/what-if/resilience", {"keys": ["region"]}, format="json"
    )
    assert started.status_code == 202
    latest = reader.get("/api/v1/what-if/resilience?level=region&variant=leave").json()
    assert {loss["level"] for loss in latest["losses"]} == {"region"}
    assert latest["report"]["keys"] == ["region"]
    table = reader.get(
        "/api/v1/what-if/resilience?variant=cordon", headers={"Accept": "text/csv"}
    )
    assert table.content.decode().startswith(
        "level,value,variant,clusters,placements,lost"
    )
    name = Placement.objects.filter(placement_type="PickN").earliest("name").full_name
    document = reader.get(f"/api/v1/what-if/resilience/placements/{name}").json()
    assert {loss["variant"] for loss in document["losses"]} == {
        "down",
        "cordon",
        "leave",
    }
    assert max(loss["skew"] for loss in document["losses"]) > 0
    refused = reader.post(
        "/api/v1/what-if/resilience", {"variants": ["explode"]}, format="json"
    )
    assert refused.status_code == 400


def test_without_a_report_rest_says_so(reader: APIClient) -> None:
    assert reader.get("/api/v1/what-if/resilience").status_code == 404


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("unfulfilled>100 of region", 0),
        ("lost>0 of cluster", 1),
        ("lost>0 of nowhere", 2),
    ],
)
def test_the_command_fails_on_a_condition(condition: str, status: int) -> None:
    load_nine()
    out = StringIO()
    arguments: list[Any] = ["--keys", "region", "--fail-on", condition, "-o", "json"]
    try:
        call_command("what_if", *arguments, stdout=out)
        exit_status = 0
    except CommandError as error:
        exit_status = error.returncode
    assert exit_status == status
    assert set(json.loads(out.getvalue())["totals"]) == {"cluster", "region"}


@pytest.mark.nightly
def test_the_metric_has_the_worst_domain(report: ResilienceReport) -> None:
    labels = {"hub": "local", "level": "region", "variant": "leave"}
    registry = metrics_registry(now=datetime.now(UTC))
    sample = registry.get_sample_value(
        "fleetui_resilience_unfulfilled_placements", labels
    )
    assert (
        sample
        == report.totals["region"]["leave"].get("unfulfilled", {"count": 0})["count"]
    )
