"""Before the parts start: the database is waited for, static files are collected when they changed."""

import json
from pathlib import Path

import pytest
from django.db import connections
from pytest_django import Settings

from fleetui.bootstrap import (
    DatabaseMissingError,
    collect_static_files,
    migrate,
    one_at_a_time,
    wait_for_database,
)
from fleetui.env import parse_database, sqlite_database

pytestmark = pytest.mark.django_db

UNREACHABLE = "postgres://user:hunter2@127.0.0.1:1/fleet"


def test_a_database_that_never_answers_is_reported_once_and_without_its_password() -> (
    None
):
    messages: list[str] = []
    settings = connections.settings["default"] | parse_database(UNREACHABLE)

    with pytest.raises(
        DatabaseMissingError, match=r"did not answer within 0\.7 s: .*port 1 failed"
    ) as missing:
        wait_for_database(settings, seconds=0.7, say=messages.append)

    assert len(messages) == 1
    assert messages[0].startswith("waiting up to 0.7 s for the database: ")
    assert "hunter2" not in messages[0] + str(missing.value)


def test_goes_on_as_soon_as_the_database_answers(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    settings = connections.settings["default"] | sqlite_database(
        folder / "fleet.sqlite3"
    )

    wait_for_database(settings, say=lambda _reason: folder.mkdir())

    assert folder.is_dir()


@pytest.mark.servers
def test_the_database_of_this_run_answers_and_can_be_prepared(tmp_path: Path) -> None:
    messages: list[str] = []

    wait_for_database(connections.settings["default"], say=messages.append)
    with one_at_a_time(tmp_path):
        migrate()

    assert messages == []


def test_static_files_are_collected_only_when_one_changed(
    tmp_path: Path, settings: Settings
) -> None:
    source, root, stamp = tmp_path / "source", tmp_path / "static", tmp_path / "stamp"
    source.mkdir()
    (source / "a.css").write_text("a {}")
    settings.STATICFILES_FINDERS = [
        "django.contrib.staticfiles.finders.FileSystemFinder"
    ]
    settings.STATICFILES_DIRS = [source]
    settings.STATIC_ROOT = root

    first = collect_static_files(root=root, stamp=stamp)
    again = collect_static_files(root=root, stamp=stamp)
    (source / "a.css").write_text("a { color: red }")
    changed = collect_static_files(root=root, stamp=stamp)

    assert (first, again, changed) == (True, False, True)
    paths = json.loads((root / "staticfiles.json").read_text())["paths"]
    assert (root / paths["a.css"]).read_text() == "a { color: red }"
    assert not (root / "a.css").exists(), "pages have the address with the hash"
