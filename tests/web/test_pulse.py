"""A worker that no longer answers is told of where people wait for it."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from fleetui.models import Pulse
from fleetui.pulse import beat, silence
from placements.tasks import sweep
from tests.rows import NOW

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]


def test_is_silent_after_forty_seconds() -> None:
    assert silence(now=NOW) is None

    beat(now=NOW)

    assert silence(now=NOW + timedelta(seconds=40)) is None
    assert silence(now=NOW + timedelta(seconds=41)) == timedelta(seconds=41)


def test_writes_at_most_every_five_seconds(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    beat(now=NOW)

    with django_assert_num_queries(1):
        beat(now=NOW + timedelta(seconds=4))
    beat(now=NOW + timedelta(seconds=6))

    assert Pulse.objects.get().at == NOW + timedelta(seconds=6)


def test_the_sweep_is_the_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placements.tasks.carry_out_due.apply_async", lambda **_: None)

    sweep()

    assert datetime.now(UTC) - Pulse.objects.get().at < timedelta(seconds=30)


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("address", ["/", "/rollouts/"])
def test_pages_that_wait_for_it_say_so(viewer: Client, text_of: Fetch, address: str) -> None:
    beat(now=datetime.now(UTC) - timedelta(minutes=3))
    silent = text_of(viewer, address)

    beat(now=datetime.now(UTC))

    assert re.search(r"no worker has answered for 1[89]\d s", silent)
    assert "no worker has answered" not in text_of(viewer, address)
