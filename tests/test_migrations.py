"""Migrations change the database while the release before still runs: only what that release survives."""

import ast
import hashlib
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.db import connection, migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState, ProjectState

from fleetui import monitoring
from tests.commands import call_command
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
        if (
            problems := problems_of(
                loader.disk_migrations[key], loader.project_state(key, at_end=False)
            )
        )
    }

    assert {app for app, _ in ours} == OURS
    assert found == {}


def _nothing(*_arguments: object) -> None:
    """Change no data."""


TEXT = models.CharField(max_length=10)
SIZE = models.IntegerField()
KEY: list[tuple[str, "models.Field[Any, Any]"]] = [
    ("id", models.AutoField(primary_key=True))
]
FULL_NAME = models.GeneratedField(
    expression=models.Value(""), output_field=TEXT, db_persist=True
)
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
        (
            "0002_x",
            [migrations.AddField("thing", "size", SIZE)],
            "null=True or db_default",
        ),
        ("0002_x", [ADD_SIZE], ""),
        ("0002_x", [migrations.AddField("thing", "full_name", FULL_NAME)], ""),
        (
            "0002_x",
            [migrations.AddField("thing", "size", models.IntegerField(db_default=0))],
            "",
        ),
        (
            "0002_x",
            [migrations.AlterField("thing", "name", models.CharField(max_length=5))],
            "longer texts",
        ),
        (
            "0002_x",
            [migrations.AlterField("thing", "name", models.CharField(max_length=50))],
            "",
        ),
        ("0002_x", [migrations.AlterField("thing", "name", SIZE)], "another type"),
        ("0002_x", [migrations.AlterField("thing", "note", TEXT)], "write null"),
        (
            "0002_x",
            [
                migrations.AddConstraint(
                    "thing", models.UniqueConstraint(fields=["name"], name="once")
                )
            ],
            "rows that break it",
        ),
        (
            "0002_x",
            [
                migrations.CreateModel("Other", KEY),
                migrations.AddField("other", "size", SIZE),
            ],
            "",
        ),
        (
            "0002_x",
            [ADD_SIZE, migrations.RunPython(_nothing, _nothing)],
            "data and schema",
        ),
        ("0002_x", [migrations.RunPython(_nothing)], "not reversible"),
        ("0002_x", [migrations.RunPython(_nothing, _nothing)], ""),
    ],
)
def test_a_change_that_breaks_it_is_found(
    name: str, operations: list[Operation], words: str
) -> None:
    state = ProjectState()
    note = models.CharField(max_length=10, null=True)  # what is altered here
    state.add_model(
        ModelState("rules", "Thing", [*KEY, ("name", TEXT), ("note", note)])
    )
    kind = type("Changed", (migrations.Migration,), {"operations": operations})
    migration = kind(name, "rules")

    found = problems_of(migration, state)

    assert bool(found) is bool(words)
    assert words in " ".join(found)


@pytest.mark.django_db
def test_models_and_migrations_agree() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


CONTENT = {
    "clusters/migrations/0001_initial.py": "5675028e5524c55c",
    "clusters/migrations/0002_identity_of_members.py": "284517e042acdd5d",
    "clusters/migrations/0003_observation.py": "9d9aeb4022a5f815",
    "clusters/migrations/0004_channel_services.py": "7582743ac87a9783",
    "clusters/migrations/0005_reported_health.py": "286f4a112aa1f1b9",
    "clusters/migrations/0006_spec_generation.py": "5750ea1875342cc8",
    "clusters/migrations/0007_generation_so_far.py": "6a8e17c649ddadca",
    "clusters/migrations/0008_changes_of_hubs.py": "b2a524c3b1b2a5fe",
    "clusters/migrations/0009_workloads_problem.py": "2598232317b355a3",
    "clusters/migrations/0010_objects_of_ocm_hubs.py": "7dbb9e8a1dae510a",
    "fleetui/access/migrations/0001_initial.py": "0c14aece5c939459",
    "fleetui/access/migrations/0002_team_boundary.py": "2adf6c0a549b3373",
    "fleetui/access/migrations/0003_unused_contract.py": "6f0a21df46e76311",
    "fleetui/access/migrations/0004_api_token_words.py": "ded5bc100bd30bc0",
    "fleetui/accounts/migrations/0001_initial.py": "2c53476b69c78a18",
    "fleetui/migrations/0001_initial.py": "87319637162b4e33",
    "fleetui/migrations/0002_observation.py": "d42e3e66b6d94ffd",
    "placements/migrations/0001_initial.py": "7ac2ec4dd6338541",
    "placements/migrations/0002_seal_secrets.py": "f1ac1afe7a732c16",
    "placements/migrations/0003_integers_written_as_text.py": "6b6a0a3b9b7ea6cf",
    "placements/migrations/0004_removals_that_wait.py": "eb79bba2444e7d92",
    "placements/migrations/0005_reported_differences.py": "2db6271ad35b3be0",
    "placements/migrations/0006_more_problems.py": "b37cf1f1c8d688de",
    "placements/migrations/0007_warnings_of_api_servers.py": "5b3541842afb82a7",
    "placements/migrations/0008_spec_generation.py": "2f4dc83ab952c24a",
    "placements/migrations/0009_generation_so_far.py": "199b2a63039deb05",
    "placements/migrations/0010_changes_of_hubs.py": "a4e730d371369da0",
    "placements/migrations/0011_problems.py": "a4e7f396b795a58e",
    "placements/migrations/0012_exceeded_limits.py": "5c9d4d4c479aec9a",
    "placements/migrations/0013_stored_status.py": "79b63a84be497ffd",
    "placements/migrations/0014_dry_runs_without_rows.py": "b257398d2c4e05b4",
    "placements/migrations/0015_bulk_changes_at_once.py": "25512a2856461fdd",
    "placements/migrations/0016_no_rebalance_plans.py": "b501bb290e6ba086",
    "placements/migrations/0017_no_scenarios.py": "422efad60feb0bcb",
    "placements/migrations/0018_checks_file.py": "431c6219231f2111",
    "placements/migrations/0019_assertions_in_file.py": "49cac325c8a7ff46",
    "placements/migrations/0020_findings_check.py": "fb5fe6539c6fa61c",
    "placements/migrations/0021_agreement_on_demand.py": "040447d97923dab2",
    "placements/migrations/0022_no_pending_hub_decisions.py": "44b2331f4cf2c913",
    "placements/migrations/0023_unused_contract.py": "53c0031edbdd2099",
    "placements/migrations/0024_samples_of_staged_runs.py": "152b8f019594e354",
    "placements/migrations/0025_revisions_of_runs.py": "2734d8373588e982",
    "placements/migrations/0026_revisions_so_far.py": "b6a076bded65459b",
    "placements/migrations/0027_decided_again.py": "bde1267d64ab3435",
    "placements/migrations/0028_names_read_under_ocm.py": "b7efa65e64113959",
    "placements/migrations/0029_calls_due_of_hub.py": "414d058f46dba752",
    "placements/migrations/0030_why_stale.py": "8ffb6dc312c3fcf7",
}
"""The content of each migration: they are added and never changed, for databases that have applied them."""


def content_of(path: Path) -> str:
    """Return a digest of a migration that does not depend on comments and formatting."""
    tree = ast.dump(ast.parse(path.read_text(encoding="utf-8")))
    return hashlib.sha256(tree.encode()).hexdigest()[:16]


def test_no_migration_was_edited() -> None:
    root = Path(__file__).resolve().parent.parent
    paths = [*root.glob("*/migrations/0*.py"), *root.glob("fleetui/*/migrations/0*.py")]

    found = {str(path.relative_to(root)): content_of(path) for path in paths}

    assert found == CONTENT, "add a migration in place of a change, and its digest here"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("change", "undo"),
    [
        (
            "ALTER TABLE placements_drain RENAME COLUMN started_by TO begun_by",
            "ALTER TABLE placements_drain RENAME COLUMN begun_by TO started_by",
        ),
        (
            "ALTER TABLE placements_drain RENAME TO placements_drain_of_another_version",
            "ALTER TABLE placements_drain_of_another_version RENAME TO placements_drain",
        ),
    ],
)
def test_a_database_of_an_unreleased_version_is_refused(
    monkeypatch: pytest.MonkeyPatch, change: str, undo: str
) -> None:
    monkeypatch.setattr(monitoring, "_migrated", set())
    assert monitoring.check_migrations() == ""
    monkeypatch.setattr(monitoring, "_migrated", set())
    with connection.cursor() as cursor:
        cursor.execute(change)
    try:
        problem = monitoring.check_migrations()
        with pytest.raises(CommandError, match="placements_drain"):
            call_command("prepare")
    finally:
        with connection.cursor() as cursor:
            cursor.execute(undo)

    assert "placements_drain" in problem
    assert "create it again, or restore a backup" in problem
    assert monitoring.check_migrations() == ""
