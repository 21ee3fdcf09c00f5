"""Commands before the first start: they say what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("command", [["load_demo", "4"], ["export", "clusters"]])
def test_without_a_database_a_command_says_how_to_make_one(command: list[str], tmp_path: Path) -> None:
    variables = {key: value for key, value in os.environ.items() if key != "DATABASE_URL"}

    run = subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=ROOT,
        env=variables | {"FLEETUI_VAR_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 3
    assert "run `make up` once" in run.stderr
    assert "Traceback" not in run.stderr
