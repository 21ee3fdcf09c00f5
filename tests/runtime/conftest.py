"""Tests that start consoles take turns: one worker of several runs all of them, beside other tests."""

import shutil
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of this folder into one group of `--dist loadgroup`."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("consoles"))
            if "console_folder" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.django_db)  # for the tables of `empty_hub`


@pytest.fixture
def console_folder(
    tmp_path: Path, collected_static: Path, empty_hub: Path | None
) -> Path:
    """Return a folder for a console with static files and empty tables, which take seconds to make."""
    shutil.copytree(collected_static, tmp_path / "static")
    shutil.copy2(collected_static.parent / "static.stamp", tmp_path)
    if empty_hub:
        shutil.copy2(empty_hub, tmp_path / "fleetui.sqlite3")
    return tmp_path
