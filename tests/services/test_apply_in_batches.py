"""A large apply: checked first, then written in batches between which others write."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Group
from django.core.management import CommandError
from django.db import OperationalError, connection, connections
from rest_framework.test import APIClient

from clusters.models import MemberCluster
from fleetui import transactions
from fleetui.access.models import TeamGrant
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import Document, dump_yaml
from fleetui.models import Event
from fleetui.permissions import NotOfTeamError
from placements.models import Override, Placement, Resource
from placements.services import apply
from placements.services.apply import (
    PartlyApplied,
    Result,
    apply_documents,
    preview_documents,
)
from placements.services.placements import UnschedulesEverything
from tests.commands import call_command
from tests.rows import (
    NOW,
    api_token,
    config_map,
    decided,
    joined,
    member_document,
    namespace,
    person,
    pick_n_spec,
    placement_document,
)
from tests.services.test_unscheduling_everything import PICK_NONE

pytestmark = pytest.mark.django_db(transaction=True)
LONGEST_WAIT = 2.0
"""Seconds that another writer may wait."""


def config_maps(number: int, value: str = "1") -> list[dict[str, Any]]:
    """Return ConfigMaps and, at the end, the namespace that they are in."""
    return [
        *(config_map(f"m{at}", data={"v": value}) for at in range(number)),
        namespace("shop"),
    ]


def override(name: str) -> dict[str, Any]:
    rule = {"clusterSelector": {}, "overrideType": "Delete"}
    selector = {"group": "", "version": "v1", "kind": "Namespace", "name": f"of-{name}"}
    return {
        "apiVersion": "placement.kubernetes-fleet.io/v1",
        "kind": "ClusterResourceOverride",
        "metadata": {"name": name},
        "spec": {
            "clusterResourceSelectors": [selector],
            "policy": {"overrideRules": [rule]},
        },
    }


def apply_all(*documents: dict[str, Any], **options: Any) -> list[Result]:
    numbered = [Document(document, at) for at, document in enumerate(documents, 1)]
    return apply_documents(numbered, **{"by": None, "now": NOW, **options})


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """Return how many resources, clusters and other objects are committed at each pause."""
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite needs pauses")
    seen: list[tuple[int, int, int]] = []

    def note(seconds: float) -> None:
        assert seconds > 0.1  # the longest that a writer sleeps before it tries again
        assert not connection.in_atomic_block
        others = Override.objects.count() + Placement.objects.count()
        seen.append((Resource.objects.count(), MemberCluster.objects.count(), others))

    monkeypatch.setattr(transactions.time, "sleep", note)
    return seen


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "MOST_AT_ONCE", 20)
    monkeypatch.setattr(apply, "BATCH", 10)
    monkeypatch.setattr(transactions, "PAUSE", 0)


def test_no_transaction_writes_more_than_a_batch(
    pauses: list[tuple[int, int, int]],
) -> None:
    clusters = [member_document(f"c{at}") for at in range(300)]
    placements = [placement_document(f"p{at}", pick_n_spec(1)) for at in range(25)]

    results = apply_all(*placements, *clusters, *config_maps(700))

    assert [result.kind for result in results[24:26]] == ["placement", "cluster"]
    assert results[-1].name == "/Namespace//shop"
    before = (0, 0, 0)
    for committed in [*pauses, (701, 300, 25)]:
        grown = [now - earlier for now, earlier in zip(committed, before, strict=True)]
        assert grown[0] <= 250
        assert grown[1] <= 250
        assert grown[2] <= 10
        before = committed
    assert len(pauses) == 3 + 2 + 3 - 1


def test_up_to_500_documents_are_one_transaction(
    pauses: list[tuple[int, int, int]],
) -> None:
    apply_all(*config_maps(499))

    assert pauses == []
    assert Resource.objects.count() == 500


def test_unchanged_documents_do_not_count(pauses: list[tuple[int, int, int]]) -> None:
    apply_all(*config_maps(700))
    pauses.clear()

    apply_all(*config_maps(700)[400:], *config_maps(400, "2")[:400])

    assert pauses == []
    assert set(
        Resource.objects.filter(kind="ConfigMap").values_list("revision", flat=True)
    ) == {1, 2}


@pytest.mark.usefixtures("small")
def test_a_changed_resource_keeps_its_identity() -> None:
    apply_all(*config_maps(30))
    rows = dict(Resource.objects.values_list("name", "pk"))
    created = Resource.objects.values_list("created_at", flat=True).distinct().get()

    results = apply_all(*config_maps(30, "2"))

    assert {result.did for result in results} == {"changed", "unchanged"}
    assert dict(Resource.objects.values_list("name", "pk")) == rows
    assert (
        Resource.objects.values_list("created_at", flat=True).distinct().get()
        == created
    )
    assert Event.objects.filter(verb="changed", kind="resource").count() == 30


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            [config_map("lost", in_="nowhere")],
            "the namespace nowhere is not on the hub",
        ),
        ([config_map("m1")], "Duplicate value"),
        ([placement_document("new", pick_n_spec(1))], "new is a reserved name"),
        (
            [placement_document("web", {"policy": {"placementType": "PickSome"}})],
            "PickSome",
        ),
        ([member_document("bulk")], "bulk is a reserved name"),
    ],
)
def test_what_is_invalid_is_found_before_anything_is_written(
    more: list[Any], message: str
) -> None:
    with pytest.raises(InvalidManifest, match=message):
        apply_all(*config_maps(30), *more)

    assert Resource.objects.count() == 0


@pytest.mark.usefixtures("small")
def test_a_missing_confirmation_or_permission_is_found_before_anything_is_written() -> (
    None
):
    joined("a")
    decided("web", pick_n_spec(1))
    empties = placement_document("web", PICK_NONE)

    with pytest.raises(UnschedulesEverything):
        apply_all(*config_maps(30), empties)
    ben = person("ben")
    group = Group.objects.create(name="blue")
    ben.groups.add(group)
    TeamGrant.objects.create(group=group, key="team", value="blue", role="operator")
    with pytest.raises(NotOfTeamError):
        apply_all(*config_maps(30), by=ben)
    with pytest.raises(NotOfTeamError):
        apply_all(*[member_document(f"c{at}") for at in range(30)], by=ben)

    assert Resource.objects.count() == 0
    apply_all(*config_maps(30), empties, confirmed=True)
    assert Resource.objects.count() == 31


@pytest.mark.usefixtures("small")
def test_an_error_names_what_was_written_and_the_same_apply_again_completes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, calls = apply.apply_resources, list[int]()

    def fail_once(*arguments: Any, **options: Any) -> Any:
        calls.append(len(arguments[0]))
        if len(calls) == 3:
            raise OperationalError("database or disk is full")
        return real(*arguments, **options)

    monkeypatch.setattr(apply, "apply_resources", fail_once)
    with pytest.raises(
        PartlyApplied, match=r"20 of 31 documents are applied, and stay so\."
    ) as stopped:
        apply_all(*config_maps(30))

    written = {result.name for result in stopped.value.results}
    assert written == {
        f"/{row.kind}/{row.namespace}/{row.name}" for row in Resource.objects.all()
    }
    assert "/Namespace//shop" in written
    again = apply_all(*config_maps(30))
    assert [result.did for result in again].count("unchanged") == 20
    assert Resource.objects.count() == 31
    assert Event.objects.filter(kind="resource").count() == 31


def too_many_overrides() -> list[dict[str, Any]]:
    """Return documents of which the last override is refused only when it is saved."""
    return [*config_maps(30), *(override(f"o{at:03}") for at in range(101))]


@pytest.mark.usefixtures("small")
def test_rest_answers_with_what_was_written() -> None:
    client = APIClient()
    client.credentials(
        HTTP_AUTHORIZATION=f"Token {api_token(person('ada', 'operator'))}"
    )

    answer = client.post("/api/v1/apply", too_many_overrides(), format="json")

    problem = answer.json()
    assert answer.status_code == 422
    assert problem["detail"].startswith("131 of 132 documents are applied")
    assert problem["faults"][0]["message"].startswith(
        "ClusterResourceOverride o100: there are 100"
    )
    assert len(problem["applied"]) == 131
    assert problem["applied"][0]["did"] == "created"


@pytest.mark.usefixtures("small")
def test_the_command_prints_what_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "all.yaml"
    path.write_text("---\n".join(map(dump_yaml, too_many_overrides())))

    with pytest.raises(CommandError, match="there are 100 of this kind") as refused:
        call_command("apply", "-f", str(path))

    out, err = capsys.readouterr()
    assert refused.value.returncode == 2
    assert out.count(" created\n") == 131
    assert "131 of 132 documents are applied" in err


@pytest.mark.usefixtures("small")
def test_a_dry_run_is_one_transaction_that_writes_nothing() -> None:
    preview = preview_documents(
        [Document(one, at) for at, one in enumerate(config_maps(30))], by=None, now=NOW
    )

    assert len(preview.results) == 31
    assert Resource.objects.count() == 0


class Statements:
    """Counts the statements of transactions; each takes 0.01 s of a clock that the transactions look at."""

    def __init__(self) -> None:
        self.original = connections["default"]
        self.now = 0.0
        self.held: list[int] = []
        """Statements of each transaction of the database, which is the only one that writes meanwhile."""
        self.elsewhere = 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _seconds: float) -> None:
        assert not self.original.in_atomic_block

    def execute(
        self, execute: Any, sql: Any, params: Any, many: bool, context: Any
    ) -> Any:
        self.now += 0.01
        if context["connection"] is not self.original:
            self.elsewhere += 1
        elif str(sql).startswith("BEGIN"):
            self.held.append(0)
        elif self.original.in_atomic_block:
            self.held[-1] += 1
        return execute(sql, params, many, context)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[Statements]:
    if connection.vendor != "sqlite":
        pytest.skip("one writer at a time is a matter of SQLite")
    counted = Statements()
    monkeypatch.setattr(transactions, "time", counted)
    with connection.execute_wrapper(counted.execute):
        yield counted


MOST_STATEMENTS = 155
"""In 1.5 s of that clock, with the one that is refused and those that end savepoints."""


def many_placements(number: int, clusters: int = 1) -> list[dict[str, Any]]:
    return [
        placement_document(f"p{at:03}", pick_n_spec(clusters)) for at in range(number)
    ]


def test_placements_that_take_long_are_written_in_parts_of_bounded_length(
    statements: Statements,
) -> None:
    joined("a")
    apply_all(namespace("shop"))
    statements.held.clear()

    results = apply_all(*many_placements(60))

    assert {result.did for result in results} == {"created"}
    assert Placement.objects.count() == 60
    assert len(statements.held) > 3
    assert max(statements.held) <= MOST_STATEMENTS

    statements.held.clear()
    apply_all(*many_placements(60, clusters=2))

    assert set(Placement.objects.values_list("revision", flat=True)) == {2}
    assert len(statements.held) > 3
    assert max(statements.held) <= MOST_STATEMENTS


def test_documents_that_are_written_quickly_are_all_or_none(
    statements: Statements,
) -> None:
    taken = override("one")
    apply_all(namespace("shop"), taken)
    statements.held.clear()

    with pytest.raises(InvalidManifest, match="is selected by one already"):
        apply_all(*many_placements(5), {**taken, "metadata": {"name": "two"}})

    assert len(statements.held) == 1
    assert Placement.objects.count() == 0


def test_a_part_that_takes_too_long_is_halved(
    statements: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "OTHERS_AT_ONCE", 40)

    apply_all(*many_placements(40))

    assert Placement.objects.count() == 40
    assert max(statements.held) <= MOST_STATEMENTS


def test_a_long_dry_run_goes_on_in_a_copy_of_the_database(
    statements: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined("a")
    apply_all(namespace("shop"))
    statements.held.clear()
    documents = [
        Document(placement, at) for at, placement in enumerate(many_placements(60))
    ]
    connection_of_impact = []
    impact_on = apply.impact_on

    def impact(*arguments: Any, **options: Any) -> Any:
        connection_of_impact.append(connections["default"])
        assert not statements.original.in_atomic_block
        return impact_on(*arguments, **options)

    monkeypatch.setattr(apply, "impact_on", impact)
    long = preview_documents(documents, by=None, now=NOW)

    assert statements.held == [pytest.approx(MOST_STATEMENTS, abs=5)]
    assert statements.elsewhere > 3 * MOST_STATEMENTS
    assert connection_of_impact != [statements.original]
    assert connections["default"] is statements.original
    assert list(settings.VAR_DIR.glob("tried-*")) == []
    assert Placement.objects.count() == 0
    monkeypatch.setattr(apply, "impact_on", impact_on)
    monkeypatch.setattr(transactions, "MOST_HELD", 1e6)
    assert long == preview_documents(documents, by=None, now=NOW)
    assert len(long.impact.rows) == 60


@pytest.mark.parametrize("run", [apply_documents, preview_documents])
def test_a_hundred_thousand_documents_are_refused_with_the_limit(run: Any) -> None:
    documents = [Document(namespace("one"), 1)] * 100_000

    with pytest.raises(
        InvalidManifest, match=r"100,000 documents \(allowed: at most 50,000"
    ):
        run(documents, by=None, now=NOW)


@pytest.mark.nightly
@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="about the one writer of SQLite"
)
def test_another_process_writes_while_20_000_objects_are_applied(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "FLEETUI_VAR_DIR": str(tmp_path)}
    environment.pop("DATABASE_URL", None)

    def manage(*arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)

    path = tmp_path / "all.json"
    path.write_text("---\n".join(map(dump_yaml, config_maps(19_999))))
    assert manage("migrate").wait() == 0
    other = sqlite3.connect(
        tmp_path / "fleetui.sqlite3", timeout=60, isolation_level=None
    )
    worst, writes = 0.0, 0
    applying = manage("apply", "-f", str(path))
    while applying.returncode is None:
        started = time.monotonic()
        other.execute("UPDATE clusters_fleetstate SET readings = readings")
        worst, writes = max(worst, time.monotonic() - started), writes + 1
        with suppress(subprocess.TimeoutExpired):
            applying.wait(0.05)
    [count] = other.execute("SELECT count(*) FROM placements_resource").fetchone()
    other.close()

    sys.stdout.write(
        f"{writes} writes of another process, the longest wait {worst:.2f} s\n"
    )
    assert applying.returncode == 0
    assert count == 20_000
    assert worst < LONGEST_WAIT
