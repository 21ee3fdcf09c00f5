"""Tests that start consoles take turns: one worker of several runs all of them, beside other tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.processes import ROOT


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of this folder into one group of `--dist loadgroup`."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("consoles"))


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the database of a console with its empty tables, to be copied for each test."""
    folder = tmp_path_factory.mktemp("migrated")
    variables = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    variables["FLEETUI_VAR_DIR"] = str(folder)
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=variables, check=True)
    return folder / "fleetui.sqlite3"


@pytest.fixture
def console_folder(tmp_path: Path, collected_static: Path, request: pytest.FixtureRequest) -> Path:
    """Return a folder for a console with static files and empty tables, which take seconds to make."""
    shutil.copytree(collected_static, tmp_path / "static")
    shutil.copy2(collected_static.parent / "static.stamp", tmp_path)
    if "DATABASE_URL" not in os.environ:
        shutil.copy2(request.getfixturevalue("migrated"), tmp_path / "fleetui.sqlite3")
    return tmp_path
