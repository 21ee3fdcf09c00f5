"""The tutorial on real clusters, entered as it is written, with a whole console."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.members import SCRIPT, Administrator, Member, kube_home, kubectl
from tests.runtime.processes import ROOT, eventually, watching

PAGE = (ROOT / "docs" / "tutorial-clusters.md").read_text(encoding="utf-8")
SETTINGS = "/api/v1/namespaces/hello/configmaps/settings"
NAMES = ["east", "west", "north"]


class Reader:
    """A user who follows the tutorial in a folder with the kubeconfigs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {
            "DATABASE_URL": f"sqlite:///{folder}/fleetui.sqlite3",
            "FLEETUI_VAR_DIR": str(folder),
            "FLEETUI_MEMBER_LOOPBACK": "1",
            "FLEETUI_ADMIN_PASSWORD": "long enough for anyone",
        }

    def enter(self, section: int) -> str:
        """Save the files of a section and enter its commands; return what the last one printed."""
        text = PAGE.split("\n## ")[section]
        for name, content in zip(
            re.findall(r"Save this as `(\S+)`", text),
            re.findall(r"```yaml\n(.*?)```", text, re.DOTALL),
            strict=True,
        ):
            (self.folder / name).write_text(content, encoding="utf-8")
        printed = ""
        for command in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
            printed = self.run(command)
        return printed

    def run(self, command: str) -> str:
        arguments = shlex.split(command)
        if arguments[0] == ".venv/bin/python":
            arguments[:2] = [sys.executable, str(ROOT / "manage.py")]
        environment = (
            os.environ
            | self.variables
            | {"PATH": f"{Path(kubectl()).parent}:{os.environ['PATH']}"}
        )
        done = subprocess.run(
            arguments,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def members(tmp_path: Path) -> Iterator[dict[str, Administrator]]:
    """Start three clusters, with a kubeconfig of each in the folder of the reader."""
    clusters = tmp_path / "clusters"
    clusters.mkdir()
    environment = {**os.environ, "S": str(clusters), "KUBE_HOME": str(kube_home())}
    subprocess.run([SCRIPT, "start", "3"], check=True, env=environment, timeout=180)
    found = [Member(clusters, number) for number in (1, 2, 3)]
    for number, name in enumerate(NAMES, start=1):
        (tmp_path / f"{name}.yaml").write_text(
            (clusters / f"c{number}" / "kubeconfig").read_text()
        )
    yield {
        name: Administrator(member.client())
        for name, member in zip(NAMES, found, strict=True)
    }
    for member in found:
        member.close()
    subprocess.run([SCRIPT, "stop"], check=True, env=environment, timeout=60)


@pytest.mark.nightly  # waits for the observation of clusters at rest
def test_the_tutorial_can_be_followed(
    tmp_path: Path, members: dict[str, Administrator]
) -> None:
    reader = Reader(tmp_path)
    assert "$ make up" in PAGE.split("\n## ")[1]

    def colors() -> dict[str, str]:
        answers = {
            name: administrator.call("GET", SETTINGS)
            for name, administrator in members.items()
        }
        return {
            name: response.body["data"]["color"]
            for name, response in answers.items()
            if response.status == 200
        }

    with watching("manage.py", "up", "--port", "0", **reader.variables) as up:
        up.wait_for("ready in")
        reader.enter(2)
        text = PAGE.split("\n## ")[3]
        (tmp_path / "hello.yaml").write_text(
            re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0]
        )
        reader.run(".venv/bin/python manage.py apply -f hello.yaml")
        eventually(lambda: list(colors().values()) == ["blue", "blue"])
        assert "west" in colors()
        assert "settings" in reader.run(
            "kubectl --kubeconfig west.yaml get configmap settings -n hello"
        )

        (tmp_path / "hello.yaml").write_text(
            (tmp_path / "hello.yaml").read_text().replace("blue", "green")
        )
        assert '"run": 2' in reader.enter(4)
        eventually(lambda: list(colors().values()) == ["green", "green"])

        reader.enter(5)
        assert colors()["west"] == "red"
        eventually(lambda: colors()["west"] == "green", seconds=200)
