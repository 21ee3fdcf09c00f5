"""Starts three member clusters for the tests of this folder, which need the binaries of `make kube`."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.faults import FaultWorld, fault_world
from tests.kubernetes.members import (
    MISSING,
    SCRIPT,
    Administrator,
    Hub,
    Member,
    environment_of,
    is_possible,
)

FOLDER = Path(__file__).parent
REQUIRED = "FLEETUI_KUBERNETES_TESTS"
"""Set to `required` where the binaries must be there: then nothing is left out in silence."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    left_out = (
        None
        if is_possible() or os.environ.get(REQUIRED) == "required"
        else pytest.mark.skip(MISSING)
    )
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.kubernetes)
            # Most tests wait for controllers and restarts, so those of hubs, with their own API servers, run
            # beside the others. With a third process the machine was too slow for tests of deadlines.
            group = "hubs" if item.path.name.startswith("test_hub_") else "members"
            item.add_marker(pytest.mark.xdist_group(group))
            if left_out:
                item.add_marker(left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if any(MISSING in str(one.longrepr) for one in skipped):
        terminalreporter.write_line(MISSING, yellow=True)


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start three clusters; all but the first one are for faults of the API server."""
    folder = tmp_path_factory.mktemp("kube")
    environment = environment_of(folder)
    subprocess.run([SCRIPT, "start", "3"], check=True, env=environment, timeout=180)
    yield folder
    subprocess.run([SCRIPT, "stop"], check=True, env=environment, timeout=60)


@pytest.fixture(scope="session")
def member(clusters: Path) -> Iterator[Member]:
    member = Member(clusters, 1)
    yield member
    member.close()


@pytest.fixture(scope="session")
def second_member(clusters: Path) -> Iterator[Member]:
    member = Member(clusters, 2)
    yield member
    member.close()


@pytest.fixture(scope="session")
def third_member(clusters: Path) -> Iterator[Member]:
    member = Member(clusters, 3)
    yield member
    member.close()


@pytest.fixture
def members(
    member: Member, second_member: Member, third_member: Member
) -> dict[str, Member]:
    return {"one": member, "two": second_member, "three": third_member}


@pytest.fixture
def two_clusters(
    members: dict[str, Member], monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultWorld]:
    with fault_world(
        {name: members[name] for name in ("one", "two")}, monkeypatch
    ) as world:
        yield world


@pytest.fixture
def three_clusters(
    members: dict[str, Member], monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultWorld]:
    with fault_world(members, monkeypatch) as world:
        yield world


@pytest.fixture(scope="session")
def admin(member: Member) -> Administrator:
    return Administrator(member.client())


@pytest.fixture
def hub(member: Member, admin: Administrator) -> Hub:
    """Return a hub of its own, so that no test sees what another one left."""
    return Hub(member, admin)
