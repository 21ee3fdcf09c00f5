"""Updates of many rows with one statement, and writes that share a transaction with those beside them."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event
from time import sleep
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from fleetui.bulk import GroupedWrites, OfEachRow, update_each
from placements.models import Binding
from tests.rows import spec
from tests.services.rollouts.world import World

WRITERS = 20


@contextmanager
def grouped(
    *others: Callable[[], int],
) -> Iterator[tuple[list[Future[int]], list[int]]]:
    """Write while a first write is under way; yield the results, the first one's last, and transactions."""
    is_writing, others_wait, groups = Event(), Event(), list[int]()

    @contextmanager
    def begin() -> Iterator[None]:
        groups.append(1)
        yield

    def write_first() -> int:
        is_writing.set()
        return int(others_wait.wait(10))

    writes = GroupedWrites[int](begin)
    with ThreadPoolExecutor(WRITERS) as pool:
        first = pool.submit(writes.run, write_first)
        is_writing.wait(10)
        running = [pool.submit(writes.run, other) for other in others]
        while len(writes._waiting) < len(others):
            sleep(0.001)
        others_wait.set()
        yield [*running, first], groups


def test_writes_that_arrive_during_another_share_a_transaction() -> None:
    with grouped(*[partial(int, number) for number in range(2, WRITERS)]) as (
        running,
        groups,
    ):
        assert [future.result() for future in running] == [*range(2, WRITERS), 1]
    assert len(groups) == 1


def test_one_that_fails_leaves_the_others_alone() -> None:
    def fail() -> int:
        raise IntegrityError

    with grouped(fail, partial(int, 2)) as ((bad, good, first), _):
        assert (first.result(), good.result()) == (1, 2)
        with pytest.raises(IntegrityError):
            bad.result()


@pytest.fixture
def bindings() -> list[int]:
    """Return the bindings of a placement on three clusters, by cluster."""
    World(3).place("web", spec())
    return list(Binding.objects.order_by("cluster_name").values_list("pk", flat=True))


@pytest.mark.django_db
@pytest.mark.servers
def test_rows_with_values_of_their_own_are_written_with_one_statement(
    bindings: list[int],
) -> None:
    own: list[dict[str, Any]] = [
        {"message": "a", "repairs": [1], "failed_override": {"path": "/spec"}},
        {"message": "b", "repairs": [2], "failed_override": None},
        {"message": "b", "repairs": [], "failed_override": None},
    ]

    with CaptureQueriesContext(connection) as statements:
        written = update_each(
            Binding.objects.all(), dict(zip(bindings, own, strict=True)), attempts=7
        )

    assert (written, len(statements)) == (3, 1)
    assert list(Binding.objects.order_by("cluster_name").values(*own[0])) == own
    assert set(Binding.objects.values_list("attempts", flat=True)) == {7}
    assert Binding.objects.filter(failed_override__isnull=True).count() == 2


@pytest.mark.django_db
@pytest.mark.servers
def test_a_row_of_which_the_condition_does_not_hold_is_left_alone(
    bindings: list[int],
) -> None:
    Binding.objects.filter(pk=bindings[1]).update(
        message="kept", call_lease_token="another"
    )
    own = {pk: {"message": str(pk)} for pk in bindings[:2]}

    written = update_each(Binding.objects.exclude(call_lease_token="another"), own)

    assert written == 1
    messages = list(
        Binding.objects.order_by("cluster_name").values_list("message", flat=True)
    )
    assert messages[:2] == [str(bindings[0]), "kept"]
    assert messages[2] not in own


@pytest.mark.django_db
@pytest.mark.servers
def test_a_condition_with_a_value_for_each_row_is_about_that_row(
    bindings: list[int],
) -> None:
    expected = {pk: f"text {pk}" for pk in bindings}
    update_each(
        Binding.objects.all(), {pk: {"message": text} for pk, text in expected.items()}
    )
    swapped = dict(zip(bindings, reversed(expected.values()), strict=True))
    text = Binding._meta.get_field("message")
    of_placement = Binding.objects.filter(
        placement__deleting_since=None
    )  # a join: the table gets an alias

    assert (
        of_placement.filter(message=OfEachRow(text, expected)).update(attempts=7) == 3
    )
    assert of_placement.filter(message=OfEachRow(text, swapped)).update(attempts=8) == 1
    assert Binding.objects.get(attempts=8).pk == bindings[1]
