"""The steps of the Dockerfile give an image that runs as another user with a read-only root."""

import json
import os
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.image import (
    Stage,
    bootstrap_base,
    build,
    in_root,
    instructions,
    running,
)
from tests.runtime.processes import ROOT, eventually

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("consoles")]
MIRROR = "FLEETUI_DEBIAN_MIRROR"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Build the image; where that is not possible, the reason is shown."""
    if (
        os.geteuid() != 0
        or not shutil.which("debootstrap")
        or not shutil.which("unshare")
    ):
        pytest.skip(
            "needs root, debootstrap and unshare; on Debian: apt-get install debootstrap"
        )
    folder = Path(os.environ.get("FLEETUI_IMAGE_DIR", tmp_path_factory.mktemp("image")))
    folder.mkdir(parents=True, exist_ok=True)
    base = bootstrap_base(folder, os.environ.get(MIRROR) or _mirror())
    yield build(ROOT / "deploy" / "Dockerfile", ROOT, base, folder)
    if "FLEETUI_IMAGE_DIR" not in os.environ:
        shutil.rmtree(folder, ignore_errors=True)


def _mirror() -> str:
    """Return where apt of this machine gets its packages."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line for line in listed.stdout.splitlines() if "security" not in line]
    return found[0]


def test_the_image_has_what_runs_and_no_tools(image: Stage) -> None:
    def there(*names: str) -> list[str]:
        return [
            name
            for name in names
            if in_root(image, ["sh", "-c", f"command -v {name}"]).returncode == 0
        ]

    assert there("fleetui") == ["fleetui"]
    assert there("pip", "pip3", "gcc", "make", "git", "curl") == []
    for module in ("pip", "pytest", "hatchling", "playwright"):
        assert in_root(image, ["python", "-c", f"import {module}"]).returncode == 1, (
            module
        )
    writable = in_root(
        image,
        ["find", "/opt", "/usr", "/etc", "-xdev", "-perm", "-o+w", "!", "-type", "l"],
    )
    assert writable.stdout == ""
    assert in_root(image, ["find", "/opt/fleetui", "!", "-perm", "-o+r"]).stdout == ""


def test_it_runs_without_rights_on_a_read_only_root(
    image: Stage, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    data = tmp_path / "data"
    data.mkdir()
    password = "correct horse battery staple"
    with running(
        image,
        ["-c", "touch /usr/x /opt/x /etc/x; id -u; cat /proc/self/status"],
        data,
        entrypoint=["sh"],
    ) as shell:
        output = shell.communicate(timeout=30)[0]
    assert output.count("Read-only file system") == 3
    assert "\n10001\n" in output
    assert "CapEff:\t0000000000000000" in output
    assert "CapBnd:\t0000000000000000" in output
    assert "NoNewPrivs:\t1" in output

    with running(image, ["prepare"], data, FLEETUI_ADMIN_PASSWORD=password) as prepare:
        assert "Administrator admin" in prepare.communicate(timeout=120)[0]
        assert prepare.returncode == 0
    command = [port if word == "8000" else word for word in image.settings["CMD"]]
    with running(
        image, [*command, "--prepared"], data, FLEETUI_ADMIN_PASSWORD=password
    ) as up:
        checks = eventually(
            lambda: _body(f"http://127.0.0.1:{port}/readyz"), seconds=90
        )
        page = _body(f"http://127.0.0.1:{port}/login/")
        style = page.partition('href="/static/')[2].partition('"')[0]
        assert "readyz check passed" in checks
        assert _body(f"http://127.0.0.1:{port}/static/{style}")
        health = (
            image.settings["HEALTHCHECK"][0]
            .partition("CMD ")[2]
            .replace(":8000/", f":{port}/")
        )
        program, *arguments = json.loads(health)
        with running(image, arguments, data, entrypoint=[program]) as check:
            assert check.wait(timeout=30) == 0
    assert up.returncode == 0
    assert not (data / "static").exists()  # collected when the image was built


def _body(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_every_instruction_is_known() -> None:
    names = {
        name for name, _ in instructions((ROOT / "deploy" / "Dockerfile").read_text())
    }

    assert {"FROM", "RUN", "COPY", "USER", "HEALTHCHECK", "ENTRYPOINT"} <= names
