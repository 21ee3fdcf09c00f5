"""Migrations change the database while the release before still runs: only what that release survives."""

from typing import Any

import pytest
from django.core.management import call_command
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState, ProjectState

from tests.migration_rules import problems_of

OURS = {"fleetui", "clusters", "placements"}
FIRST = "0001_initial"
"""Nothing is released: no process knows a release before it."""


def test_a_running_release_survives_every_migration() -> None:
    loader = MigrationLoader(None)
    ours = sorted(key for key in loader.disk_migrations if key[0] in OURS)
    later = [key for key in ours if key[1] != FIRST]

    found = {
        ".".join(key): problems
        for key in later
        if (problems := problems_of(loader.disk_migrations[key], loader.project_state(key, at_end=False)))
    }

    assert {app for app, _ in ours} == OURS
    assert found == {}


def _nothing(*_arguments: object) -> None:
    """Change no data."""


TEXT = models.CharField(max_length=10)
SIZE = models.IntegerField()
KEY: list[tuple[str, "models.Field[Any, Any]"]] = [("id", models.AutoField(primary_key=True))]
FULL_NAME = models.GeneratedField(expression=models.Value(""), output_field=TEXT, db_persist=True)
ADD_SIZE = migrations.AddField("thing", "size", models.IntegerField(null=True))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "operations", "words"),
    [
        ("0002_x", [migrations.RemoveField("thing", "name")], "one release later"),
        ("0002_x", [migrations.DeleteModel("Thing")], "one release later"),
        ("0002_x_contract", [migrations.RemoveField("thing", "name")], ""),
        ("0002_x", [migrations.RenameField("thing", "name", "title")], "the old name"),
        ("0002_x", [migrations.RenameModel("Thing", "Object")], "the old name"),
        ("0002_x", [migrations.AddField("thing", "size", SIZE)], "null=True or db_default"),
        ("0002_x", [ADD_SIZE], ""),
        ("0002_x", [migrations.AddField("thing", "full_name", FULL_NAME)], ""),
        ("0002_x", [migrations.AddField("thing", "size", models.IntegerField(db_default=0))], ""),
        ("0002_x", [migrations.AlterField("thing", "name", models.CharField(max_length=5))], "longer texts"),
        ("0002_x", [migrations.AlterField("thing", "name", models.CharField(max_length=50))], ""),
        ("0002_x", [migrations.AlterField("thing", "name", SIZE)], "another type"),
        ("0002_x", [migrations.AlterField("thing", "note", TEXT)], "write null"),
        (
            "0002_x",
            [migrations.AddConstraint("thing", models.UniqueConstraint(fields=["name"], name="once"))],
            "rows that break it",
        ),
        ("0002_x", [migrations.CreateModel("Other", KEY), migrations.AddField("other", "size", SIZE)], ""),
        ("0002_x", [ADD_SIZE, migrations.RunPython(_nothing, _nothing)], "data and schema"),
        ("0002_x", [migrations.RunPython(_nothing)], "not reversible"),
        ("0002_x", [migrations.RunPython(_nothing, _nothing)], ""),
    ],
)
def test_a_change_that_breaks_it_is_found(name: str, operations: list[Operation], words: str) -> None:
    state = ProjectState()
    note = models.CharField(max_length=10, null=True)  # what is altered here
    state.add_model(ModelState("rules", "Thing", [*KEY, ("name", TEXT), ("note", note)]))
    kind = type("Changed", (migrations.Migration,), {"operations": operations})
    migration = kind(name, "rules")

    found = problems_of(migration, state)

    assert bool(found) is bool(words)
    assert words in " ".join(found)


@pytest.mark.django_db
def test_models_and_migrations_agree() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
