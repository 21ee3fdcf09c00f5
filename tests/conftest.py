"""What every test starts from: how hard Hypothesis tries, no broker, and nothing kept from the last test."""

import fcntl
import gc
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models.signals import post_migrate
from django.dispatch import receiver
from django.template import Context, Template
from django.test import override_settings
from django.test.signals import template_rendered
from django.utils.safestring import SafeString
from pytest_django import DjangoDbBlocker
from pytest_django.plugin import blocking_manager_key
from whitenoise import WhiteNoise

from clusters.observation import counts_until
from clusters.operations import heartbeat
from fleetui import task_queue
from fleetui.bootstrap import collect_static_files
from fleetui.env import new_encryption_key
from fleetui.hub_scope import LOCAL_HUB, in_hub
from tests.database import forget_caches, restore_migrated_rows
from tests.effort import load_profile

load_profile()
gc.disable()  # until everything is collected: what is imported stays

OUR_APPS = ("fleetui", "clusters", "placements")

pytest_plugins = ["tests.clusters.kubernetes.local_members"]


def pytest_collection_finish() -> None:
    """Collect garbage less often, and not among what is imported by now: that takes a sixth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True)
def woken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keep wake-ups from a broker, and return the names of the tasks that would have been sent."""
    sent: list[str] = []

    def send(task: str, arguments: dict[str, Any]) -> None:
        assert not arguments
        sent.append(task)

    monkeypatch.setattr(task_queue, "send_now", send)
    return sent


@pytest.fixture(scope="session", autouse=True)
def _local_hub() -> Iterator[None]:
    """Run all tests in the scope of the local hub; a thread that a test starts has none."""
    with in_hub(LOCAL_HUB):
        yield


@pytest.fixture(scope="session", autouse=True)
def _quick_passwords() -> Iterator[None]:
    """Hash passwords quickly: nearly every test of a page makes a user, at 0.25 s for a production hash."""
    with override_settings(
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]
    ):
        yield


@pytest.fixture(scope="session", autouse=True)
def _encryption_keys() -> Iterator[None]:
    """Encrypt the credentials of clusters with a key of the tests: the key file is not theirs."""
    with override_settings(CREDENTIAL_KEYS=(new_encryption_key(),)):
        yield


@pytest.fixture(scope="session", autouse=True)
def _contexts_of_pages(django_test_environment: None) -> Iterator[None]:
    """Keep the context of a page for `response.context`, and no copy for each template that it includes."""
    del django_test_environment

    def render(template: Template, context: Context) -> SafeString:
        if context.template is template:
            template_rendered.send(sender=template, template=template, context=context)
        return template.nodelist.render(context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Template, "_render", render)
        yield


@pytest.fixture(scope="session")
def migrated_file(pytestconfig: pytest.Config) -> Path | None:
    """Return a SQLite file with the migrated tables; None on another database.

    It stays in pytest's cache for all processes and later runs, and is made again when the code or the lock
    changes: the migrations take every process 4 s otherwise.
    """
    if connection.vendor != "sqlite":
        return None
    root = pytestconfig.rootpath
    sources = sorted(path for app in OUR_APPS for path in (root / app).rglob("*.py"))
    digest = sha256(
        b"".join(path.read_bytes() for path in [root / "requirements.lock", *sources])
    ).hexdigest()
    folder = pytestconfig.cache.mkdir("database")
    file = folder / f"{digest}.sqlite3"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            for former in folder.glob("*.sqlite3*"):
                former.unlink()
            made = folder / "made"
            made.unlink(missing_ok=True)
            environment = os.environ | {
                "DATABASE_URL": f"sqlite:///{made}",
                "PYTHONWARNINGS": "",
            }
            command = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
            subprocess.run(command, cwd=root, env=environment, check=True)
            made.rename(file)
    return file


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings: None, migrated_file: Path | None
) -> Iterator[None]:
    """Make pytest-django create the tables without migrations where `django_db_setup` replaces them."""
    del django_db_modify_db_settings
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(
            connection.settings_dict["TEST"], "MIGRATE", migrated_file is None
        )
        yield


@pytest.fixture(scope="session")
def django_db_setup(
    django_db_setup: None,
    migrated_file: Path | None,
    django_db_blocker: DjangoDbBlocker,
) -> None:
    """Put the migrated tables and rows into the database of this process."""
    del django_db_setup
    if migrated_file:
        with (
            django_db_blocker.unblock(),
            closing(sqlite3.connect(migrated_file)) as source,
        ):
            connection.ensure_connection()
            source.backup(connection.connection)
            restore_migrated_rows()


@pytest.fixture(scope="session")
def empty_hub(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path | None:
    """Return a file with the tables, the roles and the local hub, to be copied; None without SQLite."""
    del django_db_setup  # makes the tables
    if connection.vendor != "sqlite":
        return None
    made = tmp_path_factory.mktemp("hub") / "empty.sqlite3"
    gc.collect()  # a query that a former test did not read to its end keeps VACUUM from running
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        restore_migrated_rows()
        cursor.execute("VACUUM INTO %s", [str(made)])
    return made


@pytest.fixture(scope="session")
def collected_static(pytestconfig: pytest.Config) -> Iterator[Path]:
    """Serve the static files as in production: hashed and compressed.

    They stay in pytest's cache for all processes and later runs, and are collected again when one changes.
    WhiteNoise reads the folder once too, and not for each of a thousand test clients, at 0.1 s.
    """
    folder = pytestconfig.cache.mkdir("static")
    read_folder = WhiteNoise.update_files_dictionary
    files: dict[str, object] = {}

    def read_once(server: WhiteNoise, root: str, prefix: str) -> None:
        if Path(root) != folder:
            read_folder(server, root, prefix)
            return
        if not files:
            read_folder(server, root, prefix)
            files.update(server.files)
        server.files.update(files)

    with override_settings(STATIC_ROOT=folder):
        with (folder.parent / "static.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            collect_static_files(root=folder, stamp=folder.parent / "static.stamp")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(WhiteNoise, "update_files_dictionary", read_once)
            yield folder


flushed: set[str] = set()
"""The databases that a test of this process left empty; empty where none did."""


@receiver(post_migrate)
def _remember_flush(using: str, **_signal: object) -> None:
    """Note that Django's `flush` ran, after a test with real transactions."""
    flushed.add(using)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Iterator[None]:
    """Make the roles and the local hub of the migrations again where they were deleted.

    A test with real transactions ends with an empty database, and on several cores any test may come next.
    After the last one the tables are removed.
    """
    yield
    if flushed and nextitem:
        with item.config.stash[blocking_manager_key].unblock():
            restore_migrated_rows()
        flushed.clear()


@pytest.fixture(autouse=True)
def _observations_count(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make an observation at a fictional time count until now: pages compare it with the real time.

    A test that has the mark `real_silence` is about observations that become too old.
    """

    def until(observed_at: datetime, *, period: timedelta) -> datetime:
        return counts_until(max(observed_at, datetime.now(UTC)), period=period)

    if not request.node.get_closest_marker("real_silence"):
        monkeypatch.setattr(heartbeat, "counts_until", until)


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    """Drop what the process keeps of the database, as each test has a database of its own."""
    forget_caches()
