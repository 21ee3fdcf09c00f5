"""Rows with encrypted manifests, of all hubs: how many there are, and their encryption with another key."""

import json
from collections.abc import Iterator
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from django.apps import apps
from django.db import connection

from fleetui.encryption import SEALED, KeysUnreadable, cipher, encryption_keys, unsealed
from fleetui.fields import ManifestField

_IS_SEALED = f"CAST({{column}} AS text) LIKE '%{SEALED}%'"
_COUNT = f"SELECT count(*) FROM {{table}} WHERE {_IS_SEALED}"  # noqa: S608  # names of columns
_PAGE = (
    f"SELECT id, CAST({{column}} AS text) FROM {{table}} WHERE {_IS_SEALED} AND id > {{after}} "  # noqa: S608
    "ORDER BY id LIMIT 200"
)
_UPDATE = "UPDATE {table} SET {column} = CAST(%s AS {type}) WHERE id = %s AND CAST({column} AS text) = %s"


def manifest_columns() -> Iterator[dict[str, str]]:
    """Yield the names of every column with manifests and of its table, and what the rows are."""
    for model in apps.get_models():
        for column in model._meta.concrete_fields:
            if isinstance(column, ManifestField):
                quote = connection.ops.quote_name
                names = {"table": quote(model._meta.db_table), "column": quote(str(column.column))}
                yield {**names, "noun": model.__name__}


def counting_statements() -> list[str]:
    return [_COUNT.format(**names) for names in manifest_columns()]


def check_manifests(*, reencrypt: bool = False) -> list[str]:
    """Return the rows that no key decrypts; encrypt all others with the first key, if wanted.

    Rows that change meanwhile are left: they have the first key. Raise KeysUnreadable without keys.
    """
    first, unreadable = Fernet(encryption_keys()[0]), []
    kind = "json" if connection.vendor == "postgresql" else "text"
    for names in manifest_columns():
        after = 0
        with connection.cursor() as cursor:
            while True:
                cursor.execute(_PAGE.format(after=after, **names))
                rows = cursor.fetchall()
                if not rows:
                    break
                for pk, text in rows:
                    stored = json.loads(text)
                    try:
                        unsealed(stored)
                    except KeysUnreadable:
                        unreadable.append(f"{names['noun']} {pk}")
                        continue
                    again = _rotated(stored, first)
                    if reencrypt and again != stored:
                        cursor.execute(_UPDATE.format(type=kind, **names), [json.dumps(again), pk, text])
                after = rows[-1][0]
    return unreadable


def _rotated(stored: Any, first: Fernet) -> Any:
    """Return a stored manifest, or a list of them, encrypted with the first key; as it is if it is that."""
    if isinstance(stored, list):
        return [_rotated(one, first) for one in stored]
    if SEALED not in stored:
        return stored
    try:
        first.decrypt(stored[SEALED].encode())
    except InvalidToken:
        return {**stored, SEALED: cipher().rotate(stored[SEALED].encode()).decode()}
    return stored
