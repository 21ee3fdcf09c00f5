"""Starts two member clusters for all tests of this folder, which need the binaries of `make kube`."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.members import SCRIPT, Administrator, Hub, Member

FOLDER = Path(__file__).parent
REQUIRED = "FLEETUI_KUBERNETES_TESTS"
"""Set to `required` where the binaries must be there: then nothing is left out in silence."""
MISSING = "The tests on real Kubernetes clusters are left out: no binaries. `make kube` builds them."


def kube_home() -> Path:
    usual = Path.home() / ".cache" / "fleetui" / "kube"
    return Path(os.environ.get("KUBE_HOME") or usual)


def environment_of(folder: Path) -> dict[str, str]:
    """Return the environment in which `.ci/kube.sh` keeps everything in a folder."""
    return {**os.environ, "S": str(folder), "KUBE_HOME": str(kube_home())}


def is_possible() -> bool:
    return (kube_home() / "bin" / "kube-apiserver").exists() and shutil.which("etcd") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    left_out = None if is_possible() or os.environ.get(REQUIRED) == "required" else pytest.mark.skip(MISSING)
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.kubernetes)
            item.add_marker(pytest.mark.xdist_group("kubernetes"))
            if left_out:
                item.add_marker(left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if any(MISSING in str(one.longrepr) for one in skipped):
        terminalreporter.write_line(MISSING, yellow=True)


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start two clusters; the second one is for faults of the API server."""
    folder = tmp_path_factory.mktemp("kube")
    environment = environment_of(folder)
    subprocess.run([SCRIPT, "start", "2"], check=True, env=environment, timeout=180)
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
def admin(member: Member) -> Administrator:
    return Administrator(member.client())


@pytest.fixture
def hub(member: Member, admin: Administrator) -> Hub:
    """Return a hub of its own, so that no test sees what another one left."""
    return Hub(member, admin)
