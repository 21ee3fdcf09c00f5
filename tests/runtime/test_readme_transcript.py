"""The README's transcript of the REST API, typed by somebody who has just started the console."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtime.processes import ROOT, eventually, watching

PASSWORD = "the first password of anyone"
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_every_command_of_the_transcript_does_what_it_says(tmp_path: Path) -> None:
    variables = {"FLEETUI_VAR_DIR": str(tmp_path), "FLEETUI_ADMIN_PASSWORD": PASSWORD}
    with watching("manage.py", "up", "--port", "0", **variables) as up:
        address = up.wait_for(r"FleetUI: (http://\S+)/")[1]
        with watching("manage.py", "load_demo", "9", **variables) as demo:
            demo.wait_for("loaded: 9 clusters")
        applying, reading = _transcript(address)

        applied = _typed(applying)
        read = eventually(lambda: _decided(_typed(applying, *reading)))

    assert '"did":"created"' in applied
    assert "clusterName: smartfish" in read
    assert re.search(r"^id: d-[0-9a-f]{32}$", read, re.MULTILINE)
    assert "cluster,outcome,round" in read
    assert "smartfish,picked,1" in read


def _transcript(address: str) -> tuple[str, list[str]]:
    """Give what applies, and the lines that read; as they stand, but for address and password."""
    section = README.partition("## REST API\n")[2]
    block = re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[0]
    block = block.replace("http://127.0.0.1:8000", address).replace("the one that was printed", PASSWORD)
    before, _, after = block.partition("\nEND\n")
    return f"{before}\nEND\n", [line for line in after.splitlines() if line]


def _typed(*lines: str) -> str:
    run = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    return run.stdout


def _decided(read: str) -> str:
    """Give what was read once the placement had been decided."""
    return read if "SchedulingPolicyFulfilled" in read else ""
