"""Plotly in the browser: its smallest build where `make` could get it, the whole one otherwise."""

import hashlib
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import plotly
import pytest

from fleetui import staticfiles
from tests.source_code import ROOT

SCRIPT = ROOT / ".ci" / "chart-script"
WHOLE = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
ADDRESS = "vendor/plotly.min.js"
BUILD = b"window.Plotly = {}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with an environment, and an npm that packs a build of its own."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable)
    build = tmp_path / "plotly-basic.min.js"
    build.write_bytes(BUILD)
    with tarfile.open(tmp_path / "build.tgz", "w:gz") as packed:
        packed.add(build, "package/plotly-basic.min.js")
    npm = tmp_path / "npm"
    npm.write_text(
        f'#!/bin/sh\nfor at; do if [ -d "$at" ]; then cp {tmp_path}/build.tgz "$at"; fi; done\n'
    )
    npm.chmod(0o755)
    return tmp_path


def _fetch(folder: Path, *, digest: str, path: str = "/usr/bin:/bin") -> Path:
    """Run the script as `make` does, with the digest that it expects; return where the build would be."""
    text = re.sub(
        r"^SHA256=.*", f"SHA256={digest}", SCRIPT.read_text(), flags=re.MULTILINE
    )
    script = folder / "chart-script"
    script.write_text(text)
    subprocess.run(["/bin/sh", script], cwd=folder, check=True, env={"PATH": path})
    return folder / ".venv" / "share" / "fleetui" / ADDRESS


def test_the_small_build_is_put_into_the_environment(folder: Path) -> None:
    digest = hashlib.sha256(BUILD).hexdigest()

    found = _fetch(folder, digest=digest, path=f"{folder}:/usr/bin:/bin")

    assert found.read_bytes() == BUILD


def test_a_build_with_another_digest_is_refused(folder: Path) -> None:
    assert not _fetch(folder, digest="0" * 64, path=f"{folder}:/usr/bin:/bin").exists()


def test_without_npm_nothing_is_fetched(folder: Path) -> None:
    assert not _fetch(folder, digest="0" * 64, path=str(folder / ".venv")).exists()


def test_pages_get_the_small_build_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staticfiles, "SMALL_BUILDS", tmp_path)
    small = tmp_path / ADDRESS

    assert staticfiles.PackageFinder().find(ADDRESS) == str(WHOLE)

    small.parent.mkdir()
    small.write_bytes(BUILD)
    assert staticfiles.PackageFinder().find(ADDRESS) == str(small)


def test_both_builds_are_of_one_version() -> None:
    [pinned] = re.findall(r"^VERSION=(.+)$", SCRIPT.read_text(), re.MULTILINE)

    with WHOLE.open(encoding="utf-8") as text:
        assert f"plotly.js v{pinned}\n" in text.read(200)
