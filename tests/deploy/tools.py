"""Helm and promtool: those of PATH, or those that `.ci/tools.sh` built."""

import os
import subprocess

import pytest

from tests.runtime.processes import ROOT

REQUIRED = "FLEETUI_TOOLS_TESTS"
"""Set to `required` where the programs must be there: then nothing is left out in silence."""


def program(name: str) -> str:
    """Return the path of a program; without one the test is left out, or fails where it is required."""
    found = subprocess.run(
        [ROOT / ".ci" / "tools.sh", "path", name],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        missing = f"needs {name}; `make tools` builds it"
        if os.environ.get(REQUIRED) == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    return found.stdout.strip()
