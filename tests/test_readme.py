"""The README tells a newcomer what is there: all of it, and nothing that is not."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from django.core.management import load_command_class
from packaging.requirements import Requirement

from placements.scheduling.filters.topology_keys import TopologyKeyFilter
from placements.scheduling.profile import FILTERS
from tests.screenshots.tour import MAIN

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CORE = ROOT / "placements" / "scheduling"
PLUGIN_FOLDERS = ("filters", "scores", "spread")
PLUGINS = "Filters, scores, spread strategies"


def test_first_commands_are_the_two() -> None:
    blocks = re.findall(r"^```\n(.*?)^```", README, re.DOTALL | re.MULTILINE)

    assert re.findall(r"^make \w+", blocks[0], re.MULTILINE) == ["make up", "make test"]


def test_every_make_target_it_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))

    named = set(re.findall(r"(?:`|^)make ([a-z]+)", README, re.MULTILINE))

    assert named == targets


def test_map_shows_every_top_level_folder() -> None:
    there = {
        folder.name
        for folder in ROOT.iterdir()
        if folder.is_dir() and (folder.name == ".ci" or not folder.name.startswith((".", "__")))
    }

    assert set(re.findall(r"(?:^| )([a-z.]+)/", _section("Map of the code"), re.MULTILINE)) >= there


def test_table_has_a_row_for_every_filter_score_and_strategy() -> None:
    rows = re.findall(r"^\| .* \| `(\w+/\w+\.py)` \|$", _section(PLUGINS), re.MULTILINE)

    assert sorted(rows) == _plugins()


def test_table_names_the_filters_in_the_order_of_the_profile() -> None:
    rows = re.findall(r"`filters/(\w+)\.py`", _section(PLUGINS))

    assert rows == [type(each).__module__.rpartition(".")[2] for each in (*FILTERS, TopologyKeyFilter())]


def test_it_shows_four_of_the_ten_pictures_that_are_kept() -> None:
    kept = {path.name for path in (ROOT / "docs" / "screenshots").iterdir()}

    shown = re.findall(r"^!\[\w+\]\(docs/screenshots/([\w-]+\.png)\)$", README, re.MULTILINE)

    assert kept == {f"{name}.png" for name in MAIN}
    assert len(shown) == 4
    assert set(shown) < kept


def test_every_dependency_has_a_line() -> None:
    wanted = PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]

    named = re.findall(r"^\| `([\w-]+)` \| \S", _section("Dependencies"), re.MULTILINE)

    assert sorted(named) == sorted(Requirement(one).name for one in wanted)


def test_every_setting_has_a_line() -> None:
    settings = (ROOT / "fleetui" / "settings.py").read_text(encoding="utf-8")

    named = re.findall(r"^\| `(FLEETUI_\w+)` \| \S", _section("Settings"), re.MULTILINE)

    assert sorted(named) == sorted(set(re.findall(r"FLEETUI_\w+", settings)))


def test_the_example_prints_what_it_shows() -> None:
    shown = re.search(
        r"^\$ \.venv/bin/python manage\.py (simulate .*)\n((?:.*\n)*?)^```", README, re.MULTILINE
    )
    assert shown

    run = subprocess.run(
        [sys.executable, "manage.py", *shown[1].split()], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert run.stdout == shown[2]


def test_every_command_has_a_line() -> None:
    ours = {
        path.stem
        for app in ("fleetui", "clusters", "placements")
        for path in (ROOT / app / "management" / "commands").glob("[a-z]*.py")
    }

    named = re.findall(r"^\| `(\w+)", _section("Commands"), re.MULTILINE)

    assert sorted(named) == sorted(ours)


def test_every_option_of_simulate_has_a_line() -> None:
    parser = load_command_class("placements", "simulate").create_parser("manage.py", "simulate")
    usual = {
        "--help",
        "--version",
        "--settings",
        "--pythonpath",
        "--traceback",
        "--no-color",
        "--force-color",
    }
    options = {action.option_strings[-1 if action.dest != "output" else 0] for action in parser._actions}

    named = set(re.findall(r"(?<=`)--?[a-z][a-z-]*", _section("Simulate")))

    assert named == options - usual - {"--verbosity", "--skip-checks"}


def _section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", README, re.DOTALL | re.MULTILINE)
    assert found, f"README has no section {title!r}"
    return found[1]


def _plugins() -> list[str]:
    """List the plugin modules: all but those that the linter knows as shared by a kind."""
    contracts = {contract["id"]: contract for contract in PROJECT["tool"]["importlinter"]["contracts"]}
    shared = {line.rpartition(" ")[2] for line in contracts["plugins-apart"]["ignore_imports"]}
    return sorted(
        f"{folder}/{path.name}"
        for folder in PLUGIN_FOLDERS
        for path in (CORE / folder).glob("[a-z]*.py")
        if f"placements.scheduling.{folder}.{path.stem}" not in shared
    )
