"""The guide from zero to reviews of placements, followed as it is written, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.test_documentation import PAGES, ROOT

BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_each_command_of_the_guide_prints_what_it_says(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    folder = tmp_path / "empty"
    for path in (programs, folder):
        path.mkdir()
    fleetui = programs / "fleetui"
    fleetui.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fleetui "$@"\n')
    fleetui.chmod(0o755)
    user = {
        f"GIT_{role}_{part}": "ana@fleet.invalid"
        for role in ("AUTHOR", "COMMITTER")
        for part in ("NAME", "EMAIL")
    }
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        **user,
    }
    printed = expected = ""

    for kind, text in BLOCK.findall(PAGES["guides/gitops-reviews.md"]):
        if kind == "text":
            expected += text
            continue
        done = subprocess.run(
            ["sh", "-e", "-c", text],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), text
        printed += done.stdout

    assert printed == expected
    assert "max-leaves" in expected
