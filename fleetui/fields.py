"""Columns for documents as they were written, and for manifests with values that are encrypted at rest."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from fleetui.encryption import hidden, hidden_text, sealed, sealed_text


class OrderedJSONField(models.JSONField):
    """JSON that comes back with its keys in the order in which they went in, on every database.

    PostgreSQL sorts the keys of `jsonb`, not those of `json`, in which it can neither compare nor index.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        return (
            "json" if connection.vendor == "postgresql" else super().db_type(connection)
        )

    def get_db_prep_value(
        self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> Any:
        """Return the document as text: `jsonb` would lose the order of its keys."""
        if (
            connection.vendor != "postgresql"
            or value is None
            or hasattr(value, "as_sql")
        ):
            return super().get_db_prep_value(value, connection, prepared)
        from psycopg.types.json import Json  # noqa: PLC0415  # 0.1 s that a start on SQLite does not need

        return Json(value)

    def from_db_value(
        self, value: Any, expression: Any, connection: BaseDatabaseWrapper
    ) -> Any:
        return (
            value
            if isinstance(value, dict | list)
            else super().from_db_value(value, expression, connection)
        )


class ManifestField(OrderedJSONField):
    """A manifest, or a list of them, which is read without values of Secrets: `plain_manifest` has them.

    They are encrypted in the database. Keys and metadata stay readable there, so that the database can look
    for kinds and names.
    """

    def get_db_prep_value(
        self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> Any:
        """Return the document as it is stored. Raise KeysUnreadable, HiddenValueStored."""
        return super().get_db_prep_value(sealed(value), connection, prepared)

    def from_db_value(
        self, value: Any, expression: Any, connection: BaseDatabaseWrapper
    ) -> Any:
        return hidden(super().from_db_value(value, expression, connection))


class SealedTextField(models.TextField):
    """A text that may have manifests of Secrets: encrypted, and read as one word. `plain_manifest` has it."""

    def deconstruct(self) -> Any:
        """Return a text: the column is the same, and migrations see what is stored."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.TextField", args, kwargs

    def get_db_prep_value(
        self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> Any:
        """Return the text as it is stored. Raise KeysUnreadable."""
        prepared_value = super().get_db_prep_value(value, connection, prepared)
        return prepared_value if value is None else sealed_text(value)

    def from_db_value(
        self,
        value: Any,
        expression: Any,  # noqa: ARG002
        connection: BaseDatabaseWrapper,  # noqa: ARG002
    ) -> Any:
        return value if value is None else hidden_text(value)
