"""Rows with encrypted manifests, of all hubs: how many there are, and their encryption with another key."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from django.apps import apps
from django.db import connection

from fleetui.encryption import (
    SEALED,
    SEALED_TEXT,
    KeysUnreadable,
    cipher,
    decrypted,
    encryption_keys,
    sealed_text,
    without_values,
)
from fleetui.fields import ManifestField, SealedTextField

_IS_SEALED = f"CAST({{column}} AS text) LIKE '%{SEALED}%'"
_PAGE = "SELECT id, CAST({column} AS text) FROM {table} WHERE {condition} AND id > {after} ORDER BY id LIMIT 200"
_UPDATE = "UPDATE {table} SET {column} = CAST(%s AS {type}) WHERE id = %s AND CAST({column} AS text) = %s"


def sealed_columns(registry: Any = apps) -> Iterator[dict[str, str]]:
    """Yield the names of every column with ciphertext and of its table, its type, and what the rows are.

    `registry` has the models. In a migration the texts are missing: they are plain ones there.
    """
    document = "json" if connection.vendor == "postgresql" else "text"
    quote = connection.ops.quote_name
    for model in registry.get_models():
        for column in model._meta.concrete_fields:
            if isinstance(column, ManifestField | SealedTextField):
                names = {
                    "table": quote(model._meta.db_table),
                    "column": quote(str(column.column)),
                }
                kind = document if isinstance(column, ManifestField) else "text"
                yield {**names, "type": kind, "noun": model.__name__}


def check_manifests(*, reencrypt: bool = False) -> list[str]:
    """Return the rows that no key decrypts; encrypt all others with the first key, if wanted.

    Rows that change meanwhile are left: they have the first key. Raise KeysUnreadable without keys.
    """
    first, unreadable = Fernet(encryption_keys()[0]), list[str]()
    for names in sealed_columns():
        for pk, text in _rows(names):
            try:
                again = _rotated(text, first)
            except KeysUnreadable:
                unreadable.append(f"{names['noun']} {pk}")
                continue
            if reencrypt and again != text:
                _write(names, pk, again, before=text)
    return unreadable


def hide_again(registry: Any) -> None:
    """Hide what the readable part of sealed manifests shows of Secrets.

    For a migration, after the rule was extended: no ciphertext is read.
    """
    for names in sealed_columns(registry):
        for pk, text in _rows(names):
            stored = json.loads(text)
            again = (
                list(map(_hidden_again, stored))
                if isinstance(stored, list)
                else _hidden_again(stored)
            )
            if again != stored:
                _write(names, pk, json.dumps(again), before=text)


def seal_texts(table: str, column: str) -> None:
    """Encrypt the texts of a column that was not encrypted before, for a migration."""
    quote = connection.ops.quote_name
    names = {"table": quote(table), "column": quote(column), "type": "text"}
    condition = (
        f"{names['column']} != '' AND {names['column']} NOT LIKE '{SEALED_TEXT}%'"
    )
    for pk, text in _rows(names, condition):
        _write(names, pk, sealed_text(text), before=text)


def unseal_texts(table: str, column: str) -> None:
    """Write the texts of a column as the release before reads them; the reverse of `seal_texts`."""
    quote = connection.ops.quote_name
    names = {"table": quote(table), "column": quote(column), "type": "text"}
    for pk, text in _rows(names, f"{names['column']} LIKE '{SEALED_TEXT}%'"):
        _write(
            names,
            pk,
            decrypted(text.removeprefix(SEALED_TEXT), f"{table} {pk}"),
            before=text,
        )


def _rows(
    names: dict[str, str], condition: str = _IS_SEALED
) -> Iterator[tuple[int, str]]:
    after = 0
    with connection.cursor() as cursor:
        while True:
            cursor.execute(
                _PAGE.format(after=after, condition=condition.format(**names), **names)
            )
            rows = cursor.fetchall()
            if not rows:
                return
            yield from rows
            after = rows[-1][0]


def _write(names: dict[str, str], pk: int, text: str, *, before: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_UPDATE.format(**names), [text, pk, before])


def _hidden_again(stored: Any) -> Any:
    if not isinstance(stored, dict) or SEALED not in stored:
        return stored
    shown = without_values({key: one for key, one in stored.items() if key != SEALED})
    return {**shown, SEALED: stored[SEALED]}


def _rotated(text: str, first: Fernet) -> str:
    """Return what is stored in a column, encrypted with the first key. Raise KeysUnreadable."""
    if text.startswith(SEALED_TEXT):
        return f"{SEALED_TEXT}{_token(text.removeprefix(SEALED_TEXT), first)}"
    stored = json.loads(text)
    several = stored if isinstance(stored, list) else [stored]
    again = [
        {**one, SEALED: _token(one[SEALED], first)} if SEALED in one else one
        for one in several
    ]
    return (
        text
        if again == several
        else json.dumps(again if isinstance(stored, list) else again[0])
    )


def _token(token: str, first: Fernet) -> str:
    with suppress(InvalidToken):
        first.decrypt(token.encode())
        return token
    decrypted(token, "a row")
    return cipher().rotate(token.encode()).decode()
