"""Commands before the first start: they say what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from fleetui.management.hub_command import HubCommand

ROOT = Path(__file__).resolve().parents[2]


OFFLINE = {
    *("simulate", "completion"),
    *("up", "prepare", "backup", "restore", "end_sessions"),
}
"""What needs no database, or is about all hubs: it prepares, copies or replaces the database."""


def test_every_command_of_the_hub_can_say_that() -> None:
    ours = {
        name: app
        for name, app in get_commands().items()
        if app in ("clusters", "fleetui", "placements")
    }
    loaded = {name: load_command_class(app, name) for name, app in ours.items()}

    assert {
        name for name, command in loaded.items() if not isinstance(command, HubCommand)
    } == OFFLINE


@pytest.mark.nightly
@pytest.mark.parametrize(
    "words", ["export clusters", "import_clusters docs/examples/nine.yaml"]
)
def test_without_a_database_a_command_says_how_to_make_one(
    words: str, tmp_path: Path
) -> None:
    variables = {
        key: value for key, value in os.environ.items() if key != "DATABASE_URL"
    }

    run = subprocess.run(
        [sys.executable, "manage.py", *words.split()],
        cwd=ROOT,
        env=variables | {"FLEETUI_VAR_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 3
    assert "run `make up`, `fleetui up` or `manage.py migrate` once" in run.stderr
    assert "Traceback" not in run.stderr
