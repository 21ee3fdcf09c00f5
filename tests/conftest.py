"""What every test starts from: how hard Hypothesis tries, no broker, and nothing kept from the last test."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.test import override_settings
from hypothesis import settings

from clusters import queries as cluster_queries
from fleetui import wake
from fleetui.roles import Role
from fleetui.sharing import forget_shared
from fleetui.unchanged import forget_unchanged
from placements.queries.records import forget_cached_records

# The same examples on every run and no clock: a build that was green stays green on a slower machine.
settings.register_profile("ci", deadline=None, derandomize=True, database=None)
# For a developer: new examples each time, and many of them.
settings.register_profile("dev", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True)
def woken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keep wake-ups from a broker, and give the names of the tasks that would have been sent."""
    sent: list[str] = []

    def send(task: str, arguments: dict[str, Any]) -> None:
        assert not arguments
        sent.append(task)

    monkeypatch.setattr(wake, "send", send)
    return sent


@pytest.fixture(scope="session")
def collected_static(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Collect the static files once: hashed and compressed, as they are served."""
    with override_settings(STATIC_ROOT=tmp_path_factory.mktemp("static")):
        call_command("collectstatic", interactive=False, verbosity=0)
        yield


@pytest.fixture(autouse=True)
def _roles(request: pytest.FixtureRequest) -> None:
    """Make the roles of the migration again where they are gone.

    A test with real transactions ends with an empty database, and on several cores any test may come next.
    """
    wants_database = {"db", "transactional_db"} & set(request.fixturenames)
    if wants_database or request.node.get_closest_marker("django_db"):
        request.getfixturevalue("db")
        there = set(Group.objects.values_list("name", flat=True))
        Group.objects.bulk_create([Group(name=role.value) for role in Role if role.value not in there])


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    """Drop what the process keeps of the database, as each test has a database of its own."""
    cluster_queries.forget_cached_fleet()
    forget_cached_records()
    forget_shared()
    forget_unchanged()
