"""The README says what a newcomer needs, and only what is true."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_LINES = 150


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


def test_first_commands_are_the_two() -> None:
    blocks = re.findall(r"^```\n(.*?)^```", README, re.DOTALL | re.MULTILINE)

    assert re.findall(r"^make \w+", blocks[0], re.MULTILINE) == ["make up", "make test"]


def test_it_names_every_make_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))

    named = set(re.findall(r"(?:`|^)make ([a-z]+)", README, re.MULTILINE))

    assert named == targets


def test_every_linked_file_exists() -> None:
    linked = {link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link}

    assert {link for link in linked if not (ROOT / link).is_file()} == set()
    assert len(linked) >= 10


def test_it_shows_one_screenshot() -> None:
    assert re.findall(r"^!\[[^]]+\]\((.*)\)$", README, re.MULTILINE) == [
        "docs/screenshots/decision.png"
    ]


def test_layout_names_every_top_level_folder() -> None:
    there = {
        folder.name
        for folder in ROOT.iterdir()
        if folder.is_dir()
        and (folder.name == ".ci" or not folder.name.startswith((".", "__")))
    }

    assert {path.partition("/")[0] for path in _layout()} >= there


def test_layout_names_every_package_of_placements_and_no_other() -> None:
    there = {
        f"placements/{path.parent.name}"
        for path in (ROOT / "placements").glob("*/__init__.py")
    }

    assert {
        path.rstrip("/") for path in _layout() if path.startswith("placements/")
    } == there


def _layout() -> set[str]:
    """Return the folders of the project layout, with the alternatives in braces written out."""
    section = README.partition("## Project layout\n")[2].partition("\n## ")[0]
    block = re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[0]
    folders: set[str] = set()
    for line in block.splitlines():
        for path in re.findall(r"\S+/(?= |$)", line.partition("  ")[0]):
            before, brace, after = path.partition("{")
            folders |= (
                {before + name for name in after.partition("}")[0].split(",")}
                if brace
                else {path}
            )
    return folders
