"""Content that many tests start from is made once, and put back as it was."""

import pytest
from django.db import connection

from clusters.models import MemberCluster
from placements.models import Placement
from placements.services.demo.load import load_demo
from tests.database import load_once, rolled_back
from tests.rows import NOW, joined, placed

pytestmark = pytest.mark.django_db


@pytest.mark.nightly
def test_what_is_loaded_once_is_the_same_the_next_time_and_can_be_added_to() -> None:
    loads = []

    def load() -> None:
        loads.append("demo")
        load_demo(9, by=None, now=NOW)

    def content() -> dict[str, object]:
        return {
            placement.name: (placement.pk, placement.document, placed(placement))
            for placement in Placement.objects.all()
        }

    with rolled_back():
        load_once("a test of it", load)
        first = content()
    with rolled_back():
        load_once("a test of it", load)
        second = content()
        added = joined("another")

    assert first
    assert second == first
    assert loads == ["demo"] or connection.vendor != "sqlite"
    assert added.pk > 9


def test_where_something_is_there_already_it_is_loaded_in_earnest() -> None:
    for _ in range(2):
        with rolled_back():
            joined("first")
            load_once("a second test of it", lambda: joined("second"))

            assert MemberCluster.objects.count() == 2

    load_once("a second test of it", lambda: joined("third"))

    assert MemberCluster.objects.get().name == "third"
