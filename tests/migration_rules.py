"""What a migration may do while processes of the release before still run (docs/guides/upgrade.md).

Of the operations and not of the SQL: SQLite copies a table for most of them, which hides what they change.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db.migrations import Migration
from django.db.migrations.operations import (
    AddConstraint,
    AddField,
    AlterField,
    AlterModelTable,
    AlterUniqueTogether,
    CreateModel,
    DeleteModel,
    RemoveField,
    RenameField,
    RenameModel,
    RunPython,
    RunSQL,
    SeparateDatabaseAndState,
)
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Field, ManyToManyField
from django.db.models.fields import NOT_PROVIDED

CONTRACT = "_contract"
"""The end of the name of a migration that removes what the release before has stopped to use."""
_RENAMES = (RenameField, RenameModel, AlterModelTable)
_REMOVALS = (RemoveField, DeleteModel)
_DATA = (RunPython, RunSQL)


def problems_of(migration: Migration, state: ProjectState) -> list[str]:
    """Return what is wrong with a migration; `state` is that before it, and is changed to that after it."""
    found = list(_problems_of_data(migration.operations))
    models = [
        model for (app, _), model in state.models.items() if app == migration.app_label
    ]
    before = {
        constraint.name: constraint
        for model in models
        for constraint in model.options.get("constraints", ())
    }
    created: set[str] = set()
    for operation in migration.operations:
        if isinstance(operation, CreateModel):
            created.add(operation.name_lower)
        elif isinstance(operation, AddConstraint) and _is_wider(operation, before):
            pass
        elif getattr(operation, "model_name", "").lower() not in created:
            found += _problems(operation, migration, state)
        operation.state_forwards(migration.app_label, state)
    return found


def _is_wider(operation: AddConstraint, before: Mapping[str, Any]) -> bool:
    """Return whether a list of allowed values replaces a shorter one of the same column."""
    old, new = (
        dict(getattr(getattr(one, "condition", None), "children", ()))
        for one in (before.get(operation.constraint.name), operation.constraint)
    )
    return (
        bool(old)
        and old.keys() == new.keys()
        and all(set(old[key]) <= set(new[key]) for key in old)
    )


def _problems_of_data(operations: Sequence[Operation]) -> Iterator[str]:
    data = [operation for operation in operations if isinstance(operation, _DATA)]
    if data and len(data) < len(operations):
        yield "data and schema in one migration: on PostgreSQL they need transactions of their own"
    if not all(one.reversible for one in data):
        yield "data that is not reversible: pass what undoes it, or RunPython.noop with the reason"


def _problems(
    operation: Operation, migration: Migration, state: ProjectState
) -> Iterator[str]:
    if isinstance(operation, SeparateDatabaseAndState):
        yield "SeparateDatabaseAndState: what it does to the database cannot be judged here"
    if isinstance(operation, _RENAMES) and not _keeps_table(
        operation, migration, state
    ):
        yield f"{operation.describe()}: the running release looks for the old name; add, copy, then remove"
    if isinstance(operation, _REMOVALS) and not migration.name.endswith(CONTRACT):
        yield f"{operation.describe()}: one release later, in a migration named …{CONTRACT}"
    if isinstance(operation, (AddConstraint, AlterUniqueTogether)):
        yield f"{operation.describe()}: the running release may write rows that break it"
    if isinstance(operation, AddField) and not _can_be_left_out(operation.field):
        yield f"{operation.describe()}: the running release writes rows without it; null=True or db_default"
    if isinstance(operation, AlterField):
        before: Any = state.models[
            migration.app_label, operation.model_name_lower
        ].get_field(operation.name)
        if before.get_internal_type() != operation.field.get_internal_type():
            yield f"{operation.describe()}: another type"
        if before.null and not _can_be_left_out(operation.field):
            yield f"{operation.describe()}: the running release may write null"
        if (operation.field.max_length or 0) < (before.max_length or 0):
            yield f"{operation.describe()}: the running release may write longer texts"


def _keeps_table(
    operation: Operation, migration: Migration, state: ProjectState
) -> bool:
    """Return whether only the name of the class changes: the running release finds its table and columns."""
    after = state.clone()
    operation.state_forwards(migration.app_label, after)
    tables = [
        {
            model.options.get("db_table") or f"{app}_{name}"
            for (app, name), model in project_state.models.items()
            if app == migration.app_label
        }
        for project_state in (state, after)
    ]
    return tables[0] == tables[1] and not isinstance(operation, RenameField)


def _can_be_left_out(field: "Field[Any, Any]") -> bool:
    is_derived = (
        field.generated or field.db_default is not NOT_PROVIDED
    )  # by the database
    return field.null or is_derived or isinstance(field, ManyToManyField)
