"""Two people make the same placement at the same moment: one makes it, the other finds it made."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections

from fleetui.hub_scope import LOCAL_HUB, in_hub
from placements.models import Placement, PolicySnapshot
from placements.services import placements as operations
from placements.services.placements import save_placement
from placements.services.resources.operations import apply_resources
from placements.services.results import OperationResult
from tests.rows import NOW, namespace, pick_n_spec, placement_document

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.servers]
PEOPLE = 4


def _at_once(operation: Callable[[], str]) -> list[str]:
    """Run the operation four times at the same moment."""
    start = threading.Barrier(PEOPLE)

    @in_hub(LOCAL_HUB)
    def one(_number: int) -> str:
        try:
            start.wait(timeout=60)
            return operation()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(PEOPLE) as people:
        return list(people.map(one, range(PEOPLE)))


@pytest.fixture(autouse=True)
def _needs_a_shared_database() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time; run again on PostgreSQL")


def test_one_placement_is_made() -> None:
    document = placement_document("web", pick_n_spec(2))

    did = _at_once(lambda: save_placement(document, by=None, now=NOW).result)

    assert sorted(did) == [
        OperationResult.CREATED,
        *[OperationResult.UNCHANGED] * (PEOPLE - 1),
    ]
    assert (Placement.objects.count(), PolicySnapshot.objects.count()) == (1, 1)


def test_one_resource_is_made() -> None:
    did = _at_once(
        lambda: apply_resources([namespace("shop")], by=None, now=NOW)[0].result
    )

    assert sorted(did) == ["created", *["unchanged"] * (PEOPLE - 1)]


def test_beaten_by_a_moment_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    document = placement_document("web", pick_n_spec(2))
    real = operations.placement_columns
    beaten: list[bool] = []

    def create(*arguments: Any, **options: Any) -> dict[str, Any]:
        if not beaten:
            beaten.append(True)
            with ThreadPoolExecutor(1) as other:
                other.submit(_save_elsewhere, document).result()
        return real(*arguments, **options)

    monkeypatch.setattr(operations, "placement_columns", create)

    assert (
        save_placement(document, by=None, now=NOW).result is OperationResult.UNCHANGED
    )


@in_hub(LOCAL_HUB)
def _save_elsewhere(document: dict[str, Any]) -> None:
    try:
        save_placement(document, by=None, now=NOW)
    finally:
        connections.close_all()
