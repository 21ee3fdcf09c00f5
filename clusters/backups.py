"""Backups of the database: one file with the data, its checksums and what is needed to restore it.

SQLite is copied by its online backup. PostgreSQL is read table by table with COPY in one snapshot, and not by
pg_dump: its program has to be at least as new as the server, which no image of the console can promise, and
the tables are those of the migrations anyway. No copy has sessions; the encryption keys are in no backup.
"""

import hashlib
import json
import os
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management import call_command
from django.core.management.color import no_style
from django.db import connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from psycopg import sql

from clusters.credentials import CredentialsUnreadable, encryption_keys
from fleetui import __version__
from fleetui.models import WorkerHeartbeat
from fleetui.sealed_rows import counting_statements

FORMAT = 1
FACTS, SQLITE_FILE, TABLES = "backup.json", "fleetui.sqlite3", "tables"
SESSIONS = "django_session"
CREDENTIALS = ("clusters_clustercredential", "clusters_hubcredential")
_PIECE = 1024 * 1024
# Generated columns are computed again; COPY neither writes nor reads them.
_WRITTEN_COLUMNS = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name = %s AND is_generated = 'NEVER' ORDER BY ordinal_position
"""


class BadBackup(Exception):
    """A file that is no backup, or is damaged."""


class BackupRefused(Exception):
    """A backup that does not fit here, or would overwrite something."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup says of itself. `checksums`: SHA-256 by file; `columns`: by table, of PostgreSQL."""

    fleetui: str
    database: str
    created_at: str
    migrations: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    credentials: int
    checksums: Mapping[str, str]
    columns: Mapping[str, Sequence[str]]


def key_ids() -> tuple[str, ...]:
    """Return names of the encryption keys, from which no key can be computed; none without keys."""
    try:
        keys = encryption_keys()
    except CredentialsUnreadable:
        return ()
    return tuple(hashlib.sha256(b"fleetui key id:" + key.encode()).hexdigest()[:12] for key in keys)


def write_backup(path: Path, *, force: bool, now: datetime) -> Backup:
    """Write a backup of the database, complete or not at all. Raise BackupRefused, OSError."""
    if path.exists() and not force:
        raise BackupRefused(f"{path} exists; --force replaces it")
    if not MigrationRecorder(connection).has_table():
        raise BackupRefused("the database is not prepared; nothing to back up")
    # Beside it, so that the file is complete when it gets its name; for its owner only: it has secrets.
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with (
            os.fdopen(handle, "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive,
        ):
            copy_into = COPIES[connection.vendor]
            backup = copy_into(archive, now=now)
            facts = {"format": FORMAT, **{name: getattr(backup, name) for name in Backup.__slots__}}
            archive.writestr(FACTS, json.dumps(facts, indent=2))
            archive.close()
            file.flush()
            os.fsync(file.fileno())
        Path(aside).replace(path)
    finally:
        Path(aside).unlink(missing_ok=True)
    return backup


def _facts_now(*, now: datetime, credentials: int, **files: Mapping[str, Any]) -> Backup:
    applied = MigrationRecorder(connection).applied_migrations()
    return Backup(
        __version__,
        connection.vendor,
        now.isoformat(),
        tuple(sorted(applied)),
        key_ids(),
        credentials,
        files.get("checksums", {}),
        files.get("columns", {}),
    )


def copy_sqlite(archive: zipfile.ZipFile, *, now: datetime) -> Backup:
    """Copy the file while others write, check the copy, and put it into the archive."""
    with tempfile.TemporaryDirectory(dir=_folder_of_database()) as folder:
        copy = Path(folder) / SQLITE_FILE
        connection.ensure_connection()
        with closing(sqlite3.connect(copy)) as target:
            connection.connection.backup(target)
            target.execute("PRAGMA journal_mode=DELETE")
            target.execute(f"DELETE FROM {SESSIONS}")  # noqa: S608  # a constant
            target.commit()
            target.execute("VACUUM")  # what was deleted leaves no trace
            _check_integrity(target)
            counts = [target.execute(statement).fetchone()[0] for statement in _counts_of_encrypted()]
        with copy.open("rb") as source:
            checksum = _write_member(archive, SQLITE_FILE, iter(lambda: source.read(_PIECE), b""))
    return _facts_now(now=now, credentials=sum(counts), checksums={SQLITE_FILE: checksum})


def _counts_of_encrypted() -> list[str]:
    """Return statements that count what needs the encryption keys: credentials and values of Secrets."""
    credentials = [f"SELECT count(*) FROM {name}" for name in CREDENTIALS]  # noqa: S608  # constants
    return [*credentials, *counting_statements()]


def _folder_of_database() -> Path:
    """Return the folder of the SQLite file: a copy beside it has the same protection and room."""
    return Path(str(connection.settings_dict["NAME"])).resolve().parent


def _check_integrity(database: sqlite3.Connection) -> None:
    report = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if report != "ok":
        raise BadBackup(f"the copy of the database is damaged: {report}")
    if broken := database.execute("PRAGMA foreign_key_check").fetchone():
        raise BadBackup(f"the copy of the database is damaged: a row of {broken[0]} refers to none")


def copy_postgresql(archive: zipfile.ZipFile, *, now: datetime) -> Backup:
    """Write each table as COPY writes it, all of one moment, while others write."""
    checksums: dict[str, str] = {}
    columns: dict[str, list[str]] = {}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        for table in sorted(connection.introspection.django_table_names(only_existing=True)):
            cursor.execute(_WRITTEN_COLUMNS, [table])
            columns[table] = [row[0] for row in cursor.fetchall()]
            if table == SESSIONS:
                continue
            query = sql.SQL("COPY {} ({}) TO STDOUT").format(*_identifiers(table, columns[table]))
            with cursor.cursor.copy(query) as copy:
                name = f"{TABLES}/{table}"
                checksums[name] = _write_member(archive, name, (bytes(piece) for piece in copy))
        cursor.execute(" UNION ALL ".join(_counts_of_encrypted()))
        counts = [row[0] for row in cursor.fetchall()]
        return _facts_now(now=now, credentials=sum(counts), checksums=checksums, columns=columns)


def _identifiers(table: str, columns: Sequence[str]) -> tuple[sql.Composable, sql.Composable]:
    return sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))


def _write_member(archive: zipfile.ZipFile, name: str, pieces: Iterator[bytes]) -> str:
    """Write pieces as a file of the archive and return their checksum."""
    digest = hashlib.sha256()
    with archive.open(name, "w", force_zip64=True) as member:
        for piece in pieces:
            digest.update(piece)
            member.write(piece)
    return digest.hexdigest()


@contextmanager
def open_backup(path: Path) -> Iterator[tuple[zipfile.ZipFile, Backup]]:
    """Open a backup and check that it is complete. Raise BadBackup, OSError."""
    try:
        with zipfile.ZipFile(path) as archive:
            facts = json.loads(archive.read(FACTS))
            if facts["format"] != FORMAT:
                raise BadBackup(f"{path} has the format {facts['format']}; this version reads {FORMAT}")
            backup = Backup(**{name: facts[name] for name in Backup.__slots__})
            for name, checksum in backup.checksums.items():
                digest = hashlib.sha256()
                with archive.open(name) as member:
                    for piece in iter(lambda: member.read(_PIECE), b""):  # used at once
                        digest.update(piece)
                if digest.hexdigest() != checksum:
                    raise BadBackup(f"{path} is damaged: {name} differs from its checksum")
            yield archive, backup
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, EOFError) as error:
        raise BadBackup(f"{path} is no backup of FleetUI, or is damaged: {error}") from error


def check_fit(backup: Backup) -> None:
    """Raise BackupRefused if the backup is of another database or of a newer version."""
    if backup.database != connection.vendor:
        message = f"the backup is of {backup.database}, DATABASE_URL names {connection.vendor}"
        raise BackupRefused(f"{message}; guides/postgresql-redis.md describes how to move")
    known = MigrationExecutor(connection).loader.disk_migrations.keys()
    if unknown := [one for one in map(tuple, backup.migrations) if one not in known]:
        newest = ".".join(unknown[0])
        raise BackupRefused(f"the backup was made by FleetUI {backup.fleetui}: {newest} is unknown here")


def has_data() -> bool:
    """Return whether there is a user already: restoring would overwrite something."""
    users = "auth_user"
    if users not in connection.introspection.table_names():
        return False
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM {users} LIMIT 1")  # noqa: S608  # a constant
        return cursor.fetchone() is not None


def restore_data(archive: zipfile.ZipFile, backup: Backup) -> None:
    """Replace the data by that of a backup, bring it to the present version, and void what processes held.

    The data is replaced in one transaction; a backup of an older version in several, with its own tables.
    Raise BadBackup, BackupRefused.
    """
    check_fit(backup)
    RESTORES[connection.vendor](archive, backup)
    call_command("migrate", interactive=False, verbosity=0)
    void_leases()


def restore_sqlite(archive: zipfile.ZipFile, _backup: Backup) -> None:
    """Check the file, then copy it into that of the console in one transaction."""
    name = Path(str(connection.settings_dict["NAME"]))
    with tempfile.TemporaryDirectory(dir=_folder_of_database()) as folder:
        archive.extract(SQLITE_FILE, folder)
        connections.close_all()
        name.touch(mode=0o600)
        with (
            closing(sqlite3.connect(Path(folder) / SQLITE_FILE)) as source,
            closing(sqlite3.connect(name, timeout=20)) as target,
        ):
            _check_integrity(source)
            source.backup(target)


def restore_postgresql(archive: zipfile.ZipFile, backup: Backup) -> None:
    """Restore the tables to the shape that they had then, and replace their rows in one transaction."""
    executor = MigrationExecutor(connection)
    applied = {(app, name) for app, name in backup.migrations}
    if applied != executor.loader.applied_migrations.keys():
        # Apart from the transaction below: a migration that follows one with data needs one of its own.
        if tables := connection.introspection.django_table_names(only_existing=True):
            _truncate(tables)
        nodes = executor.loader.graph.node_map
        last = [key for key in applied if not any(one.key in applied for one in nodes[key].children)]
        executor.migrate(sorted(last))
    missing = backup.columns.keys() - set(connection.introspection.table_names())
    if missing:
        raise BackupRefused(f"the backup has tables that are unknown here: {', '.join(sorted(missing))}")
    with transaction.atomic(), connection.cursor() as cursor:
        _truncate(list(backup.columns))
        for table, columns in backup.columns.items():
            if table == SESSIONS:
                continue
            query = sql.SQL("COPY {} ({}) FROM STDIN").format(*_identifiers(table, columns))
            with archive.open(f"{TABLES}/{table}") as member, cursor.cursor.copy(query) as copy:
                while piece := member.read(_PIECE):
                    copy.write(piece)
        models = apps.get_models(include_auto_created=True)
        for statement in connection.ops.sequence_reset_sql(no_style(), models):
            cursor.execute(statement)


def _truncate(tables: Sequence[str]) -> None:
    with connection.cursor() as cursor:
        names = ", ".join(map(connection.ops.quote_name, tables))
        cursor.execute(f"TRUNCATE {names} CASCADE")


def void_leases() -> None:
    """End every lease in the database: no process of before the restore may finish what it held.

    Their tokens match no row any more, and workers take the work up at once. Heartbeats are of then, too.
    """
    quote = connection.ops.quote_name
    with transaction.atomic(), connection.cursor() as cursor:
        for model in apps.get_models():
            ends = {
                field.attname: "NULL" if field.null else "''"
                for field in model._meta.concrete_fields
                if field.attname.endswith(("lease_expires_at", "lease_token"))
            }
            if ends:
                values = ", ".join(f"{quote(column)} = {value}" for column, value in ends.items())
                cursor.execute(f"UPDATE {quote(model._meta.db_table)} SET {values}")  # noqa: S608
        cursor.execute(f"DELETE FROM {quote(WorkerHeartbeat._meta.db_table)}")  # noqa: S608


COPIES: dict[str, Callable[..., Backup]] = {"sqlite": copy_sqlite, "postgresql": copy_postgresql}
RESTORES: dict[str, Callable[[zipfile.ZipFile, Backup], None]] = {
    "sqlite": restore_sqlite,
    "postgresql": restore_postgresql,
}
"""By the kind of database."""
