"""The transcript of the REST guide works on a console that has just been started."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtime.processes import ROOT, eventually, watching

PASSWORD = "the first password of anyone"
GUIDE = (ROOT / "docs" / "guides" / "rest.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_every_command_of_the_transcript_works(console_folder: Path) -> None:
    variables = {
        "FLEETUI_VAR_DIR": str(console_folder),
        "FLEETUI_ADMIN_PASSWORD": PASSWORD,
    }
    with watching("manage.py", "up", "--port", "0", **variables) as up:
        address = up.wait_for(r"FleetUI: (http://\S+)/")[1]
        with watching("manage.py", "load_demo", "9", **variables) as demo:
            demo.wait_for("loaded: 9 clusters")
        applying, reading = _transcript(address)

        applied = _run(applying)
        read = eventually(lambda: _decided(_run(applying, *reading)), pause=0.5)

    assert '"did":"created"' in applied
    assert "clusterName: smartfish" in read
    assert re.search(r"^id: d-[0-9a-f]{32}$", read, re.MULTILINE)
    assert "cluster,outcome,round" in read
    assert "smartfish,picked,1" in read


def _transcript(address: str) -> tuple[str, list[str]]:
    """Return what applies, and the lines that read, with the address and the password of the test."""
    block = re.findall(r"^```\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)[0]
    block = block.replace("http://127.0.0.1:8000", address)
    block = block.replace("the one in var/first-admin-password", PASSWORD)
    before, _, after = block.partition("\nEND\n")
    return f"{before}\nEND\n", [line for line in after.splitlines() if line]


def _run(*lines: str) -> str:
    run = subprocess.run(
        ["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    return run.stdout


def _decided(read: str) -> str:
    """Return the output once the placement is scheduled, else nothing; the lines are read one by one."""
    return (
        read if "SchedulingPolicyFulfilled" in read and "clusterName:" in read else ""
    )
