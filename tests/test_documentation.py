"""The documentation builds without a warning; its reference is complete, and its examples are true."""

import re
import shlex
import subprocess
import sys
import tomllib
from argparse import Action, ArgumentParser
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class
from drf_spectacular.generators import SchemaGenerator
from packaging.requirements import Requirement

from clusters.drivers.registry import DRIVERS
from clusters.fleet import Fleet
from fleetui.apimachinery import kinds
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.yaml import load_documents
from fleetui.env import Variables
from placements.client.arguments import FORMATS, connection_options, new_parser
from placements.client.main import KUBECTL, verbs_of
from placements.client.operations import nouns
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.filters.cluster_sets import ClusterSetFilter
from placements.engine.scheduling.filters.topology_keys import TopologyKeyFilter
from placements.engine.scheduling.profile import NAMESPACED_FILTERS, profile_of
from placements.engine.scheduling.scoring import ScoreSource
from placements.services.apply import apply_documents
from tests.commands import PARSER
from tests.screenshots.tour import MAIN
from tests.settings_reference import with_table
from tests.source_code import PRODUCT, TESTS
from tests.test_wording import PATTERNS, docstrings_and_comments, strings_of

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = {
    str(path.relative_to(DOCS)): path.read_text(encoding="utf-8")
    for path in DOCS.rglob("*.md")
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
APPS = {"fleetui", "clusters", "placements", "placements.hubs"}
PLUGINS = ROOT / "placements" / "engine" / "scheduling"
OF_CI = {"FLEETUI_IMPACT_APPROVED"}
"""Set by a pipeline, see the guide of changes; no setting of the console."""
LIST_PARAMETERS = {"after", "format", "limit"}
CITATION = re.compile(r"(?<![\w./*{}<>$-])([\w./-]*\w\.md)\b(#[\w-]+)?")
UNNAMED = re.compile(
    r"(?<!\w)(?:sections? \d[\d.]*|§ ?\d[\d.]*|\d[\d.]*,? (?:rule|point) \d+|[AB]\.\d[\d.]*)",
    re.IGNORECASE,
)
"""A section by its number: the document is not named, and the number changes with each new section."""


def _built(builder: str, folder: Path) -> tuple[int, str]:
    """Return the exit code and the warnings of a build."""
    build = [
        sys.executable,
        "-m",
        "sphinx",
        "--quiet",
        "--fail-on-warning",
        "-b",
        builder,
        "docs",
        str(folder),
    ]
    run = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    return run.returncode, run.stderr


def test_it_is_read_without_a_warning(tmp_path: Path) -> None:
    """Without output, which takes most of the time."""
    assert _built("dummy", tmp_path) == (0, "")


@pytest.mark.nightly
def test_it_builds_without_a_warning_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    assert _built("html", tmp_path) == (0, "")
    page = (tmp_path / "guides" / "simulate.html").read_text(encoding="utf-8")
    loaded = re.findall(r'<(?:script|img|link)\b[^>]*\b(?:src|href)="([^"]+)"', page)
    assert len(loaded) >= 5
    assert [one for one in loaded if "//" in one] == []


# --- The reference is complete ------------------------------------------------------------------


OF_NOUNS = {"get", "describe", "delete", "export"}
"""The parameters of the lists of the API are options of `get`, too, which its `--help` names."""
COMMANDS_PAGE = "reference/commands.md"


def test_every_command_has_a_section_with_every_option_and_every_choice() -> None:
    missing = {
        f"{name}: {word}"
        for name in _commands()
        for word in (
            _words_of_nouns(name) if name in OF_NOUNS else _words_of(_parser(name))
        )
        if not re.search(
            rf"(?<![\w-]){re.escape(word)}\b", _section(COMMANDS_PAGE, name)
        )
    }

    assert missing == set()


def test_every_command_has_the_formats_that_its_section_names() -> None:
    [usual] = _formats_in("Requests")
    wrong = {
        f"{name}: {' '.join(sorted(formats))}"
        for name in _commands()
        for formats in _formats_of(_parser(name))
        if formats not in (usual, *_formats_in(name))
    }

    assert usual == set(FORMATS)
    assert wrong == set()


def test_the_settings_are_those_of_the_model() -> None:
    page = PAGES["reference/settings.md"]

    assert with_table(page) == page
    assert len(_rows("reference/settings.md", "Settings")) == len(
        Variables.model_fields
    )


def test_a_variable_that_the_console_names_is_in_the_reference() -> None:
    page = PAGES["reference/settings.md"]
    named = {
        name
        for app in APPS
        for path in (ROOT / app).rglob("*.py")
        for name in re.findall(
            r"\bFLEETUI_[A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8")
        )
    }

    assert {
        name for name in named if not re.search(rf"`{name}(`|_<NAME>)", page)
    } == OF_CI
    assert len(named) > 20


def test_the_evidence_of_security_exists() -> None:
    missing, count = [], 0
    for part in re.split(r"\n(?=\||\n)", PAGES["security.md"]):  # rows and paragraphs
        file = ""
        for name, test in re.findall(r"`([\w/]+\.py)?(?:::(\w+))?`", part):
            file = name or file
            if not test and not name:
                continue
            count += 1
            path = ROOT / "tests" / file.removeprefix("tests/")
            if not path.is_file() or (
                test and f"def {test}(" not in path.read_text(encoding="utf-8")
            ):
                missing.append(f"{file}::{test}")

    assert missing == []
    assert count > 250


def test_every_row_of_security_names_its_evidence() -> None:
    rows = re.findall(
        r"^\| (\d+\.\d.*?) \| (.+?) \| (.+) \|$", PAGES["security.md"], re.MULTILINE
    )
    without = []
    for row, status, evidence in rows:
        if status.startswith("met"):
            is_named = bool(re.search(r"::\w+`", evidence) or REASON.search(evidence))
        elif status == "partly":
            is_named = "missing: " in evidence
        else:
            is_named = bool(STATUS.fullmatch(status))
        if not is_named:
            without.append(row)

    assert without == []
    assert len(rows) > 150


REASON = re.compile(r"\b(by [\w`]+|documented|not used): \S")
"""What meets a requirement without a test: a library or a tool, a page, or that the thing is not used."""
STATUS = re.compile(r"by [\w ]+|documented|not applicable")


REQUIREMENTS = {
    section: int(count)
    for section, count in re.findall(
        r"([\d.]+)=(\d+)",
        """
        1.1=2 1.2=9 1.3=11 1.4=3 1.5=2 2.1=3 2.2=3 2.3=4 2.4=1 3.2=2 3.3=4 3.4=6 3.5=5 3.7=2 4.1=3 4.2=1
        4.3=2 4.4=4 5.1=1 5.2=3 5.3=2 5.4=3 6.1=3 6.2=11 6.3=4 6.4=4 6.5=5 6.6=3 6.8=4 7.1=3 7.2=4 7.3=2
        7.4=5 7.5=2 7.6=2 8.1=2 8.2=3 8.3=1 8.4=1 9.1=3 9.2=4 10.1=2 10.2=2 10.3=4 10.4=11 10.5=5 10.6=2
        10.7=3 11.1=2 11.2=3 11.3=3 11.4=4 11.5=1 11.6=1 12.1=3 12.2=2 12.3=4 13.1=1 13.2=5 13.3=2 13.4=5
        14.1=2 14.2=4 14.3=3 15.1=3 15.2=3 15.3=7 16.1=1 16.2=5 16.3=4 16.4=3 16.5=3
        """,
    )
}
"""How many requirements of levels 1 and 2 each section of ASVS 5.0 has; they come first. V17 is WebRTC."""


def test_every_requirement_of_security_has_a_row() -> None:
    listed: set[str] = set()
    cells = r"^\| (\d+\.\d+\.\d+(?:(?:, | to )\d+\.\d+\.\d+)*)"
    for part in ", ".join(re.findall(cells, PAGES["security.md"], re.MULTILINE)).split(
        ", "
    ):
        first, _, last = part.partition(" to ")
        section, _, number = first.rpartition(".")
        ends = int((last or first).rpartition(".")[2])
        listed |= {f"{section}.{one}" for one in range(int(number), ends + 1)}
    required = {
        f"{section}.{one}"
        for section, count in REQUIREMENTS.items()
        for one in range(1, count + 1)
    }

    assert required - listed == set()


def test_filters_are_listed_in_the_order_of_the_profile() -> None:
    of_ocm = (ClusterSetFilter(), TopologyKeyFilter())
    names = [each.name for each in (*NAMESPACED_FILTERS, *of_ocm)]

    assert _rows("reference/plugins.md", "Filters") == names


def test_every_score_has_a_row() -> None:
    assert set(_rows("reference/plugins.md", "Scores")) == {
        *map(str, ScoreSource),
        "stickiness",
    }


def test_every_spread_strategy_has_a_row() -> None:
    names = {
        profile_of(Cycle(Fleet(), semantics=semantics)).strategy.name
        for semantics in Semantics
    }

    assert set(_rows("reference/plugins.md", "Spread strategies")) == names


def test_every_driver_has_a_row() -> None:
    assert set(_rows("reference/plugins.md", "Drivers")) == {*DRIVERS, "reported"}


def test_every_kind_has_a_row() -> None:
    known = {value for name, value in vars(kinds).items() if name.endswith("_KIND")}
    listed = [
        *_rows("reference/kinds.md", "Kinds"),
        *_rows("reference/kinds.md", "Kinds that are refused"),
    ]

    assert known | {"Placement"} <= {
        kind for row in listed for kind in re.findall(r"\w+", row)
    }
    assert len(known) >= 9


def test_every_plugin_module_has_a_row() -> None:
    """A module that the linter knows as shared by a kind of plugin is none."""
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    apart = next(
        contract for contract in contracts if contract["type"] == "independence"
    )
    shared = {
        line.rpartition(" ")[2].rpartition(".")[2] for line in apart["ignore_imports"]
    }
    there = {
        f"{folder}/{path.name}"
        for folder in ("filters", "scores", "spread")
        for path in (PLUGINS / folder).glob("[a-z]*.py")
        if path.stem not in shared
    }

    assert (
        set(
            re.findall(
                r"`((?:filters|scores|spread)/\w+\.py)`", PAGES["reference/plugins.md"]
            )
        )
        == there
    )


def test_every_path_of_the_api_has_a_row_with_its_methods_and_parameters() -> None:
    documented = dict(_documented_requests())
    schema = SchemaGenerator().get_schema(request=None, public=True)
    there: dict[tuple[str, str], set[str]] = {
        (method, re.sub(r"\{\w+\}", "*", path.removeprefix("/api/v1/"))): {
            parameter["name"]
            for parameter in request.get("parameters", ())
            if parameter["in"] == "query"
        }
        for path, requests in schema["paths"].items()
        for method, request in requests.items()
    }

    assert there.keys() ^ documented.keys() == set()
    assert [
        (*request, parameter)
        for request, parameters in there.items()
        for parameter in parameters - LIST_PARAMETERS
        if f"`{parameter}`" not in documented[request]
    ] == []


def test_every_dependency_has_a_row() -> None:
    groups = PROJECT["dependency-groups"]
    wanted = [*PROJECT["project"]["dependencies"], *groups["dev"], *groups["docs"]]

    named = re.findall(
        r"^\| `([\w-]+)` \| \S", PAGES["reference/dependencies.md"], re.MULTILINE
    )

    assert sorted(named) == sorted(Requirement(one).name for one in wanted)


def test_every_make_target_has_a_row() -> None:
    targets = re.findall(
        r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )

    named = re.findall(
        r"^\| `make (\w+)` ", PAGES["contributing/index.md"], re.MULTILINE
    )

    assert {*named, "help"} == set(targets)


def test_every_screenshot_that_is_kept_is_shown() -> None:
    kept = {path.name for path in (DOCS / "screenshots").iterdir()}

    assert kept == {f"{name}.png" for name in MAIN}
    assert (
        set(re.findall(r"\]\(screenshots/([\w-]+\.png)\)", PAGES["screenshots.md"]))
        == kept
    )


# --- Examples are true --------------------------------------------------------------------------


def test_every_command_line_is_understood() -> None:
    start = r"^(?:\$ )?\.venv/bin/python manage\.py (\w+.*)$"
    lines = [
        line
        for page in PAGES.values()
        for line in re.findall(start, page, re.MULTILINE)
    ]
    for line in lines:
        name, *arguments = shlex.split(re.split(r"  +#| > ", line)[0])
        assert name in _commands(), line
        _parser(name).parse_args(arguments)

    assert len(lines) >= 30


def test_every_line_of_the_installed_command_is_understood() -> None:
    plugin = new_parser(KUBECTL, has_kubeconfig=True)
    lines = [
        line
        for page in PAGES.values()
        for line in re.findall(
            r"^\$ ((?:kubectl )?fleetui [\w-]+.*)$", page, re.MULTILINE
        )
    ]
    for line in lines:
        words = shlex.split(re.split(r"  +#| > ", line)[0])
        if words[0] == "kubectl":
            plugin.parse_args(words[2:])
        else:
            assert words[1] in _commands(), line
            _parser(words[1]).parse_args(words[2:])

    assert len(lines) >= 8


def test_the_simulation_prints_what_is_shown() -> None:
    shown = re.search(
        r"^\$ \.venv/bin/python manage\.py (simulate .*)\n((?:.*\n)*?)^```",
        PAGES["guides/simulate.md"],
        re.M,
    )
    assert shown

    run = subprocess.run(
        [sys.executable, "manage.py", *shown[1].split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert run.stdout == shown[2]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "page", sorted(name for name, page in PAGES.items() if "```yaml" in page)
)
def test_every_manifest_can_be_applied(page: str) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGES[page], re.DOTALL | re.MULTILINE)

    results = [
        result
        for block in blocks
        for result in apply_documents(
            load_documents(block), by=None, now=datetime.now(UTC)
        )
    ]

    assert results
    assert [result.warnings for result in results if result.warnings] == []


def test_every_file_that_is_named_exists() -> None:
    folders = "fleetui|clusters|placements|templates|static|tests"
    kinds = r"\.py|\.html|\.js|\.css|/"
    named = {
        path
        for page in PAGES.values()
        for path in re.findall(rf"`((?:{folders})/[a-z_/-]+(?:{kinds}))`", page)
    }

    assert sorted(path for path in named if not (ROOT / path).exists()) == []
    assert len(named) >= 40


@pytest.mark.xdist_group("sources")
def test_every_document_that_code_cites_exists() -> None:
    """With the section; `rules/scheduler.md#filters` and the table of settings are in `docs/reference/`."""
    missing, count = [], 0
    for name, text in _sources():
        lines = "\n".join(line for line in text.splitlines() if ".md" in line)
        for path, anchor in CITATION.findall(lines):
            count += 1
            is_below = path.startswith("rules/") or name == "fleetui/env.py"
            page = (ROOT / ("docs/reference" if is_below else "") / path).resolve()
            if not page.is_relative_to(ROOT) or not page.is_file():
                missing.append(f"{name}: {path}")
            elif anchor and anchor.removeprefix("#") not in _anchors(page):
                missing.append(f"{name}: {path}{anchor}")

    assert missing == []
    assert count > 200


@pytest.mark.xdist_group("sources")
def test_no_section_is_cited_by_its_number() -> None:
    """Only its anchor says of which document it is, and breaks when that changes."""
    found = [
        f"{name}: {match[0]}"
        for name, text in _sources()
        for match in UNNAMED.finditer(text)
    ]

    assert found == []


def test_it_uses_current_words() -> None:
    pages = PAGES | {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in ("README.md", "CHANGELOG.md")
    }

    found = {
        f"{name}: {match[0]}"
        for name, page in pages.items()
        for match in PATTERNS["GD"].finditer(
            " ".join(
                re.sub(
                    r"^```.*?^```|`[^`]+`", "", page, flags=re.DOTALL | re.MULTILINE
                ).split()
            )
        )
    }

    assert found == set()


# --- Reading pages and parsers ------------------------------------------------------------------


def _sources() -> Iterator[tuple[str, str]]:
    """Yield where code may cite a document, with the text: strings of tests are files, not citations."""
    for module in (*PRODUCT, *TESTS):
        yield module.name, "\n".join(docstrings_and_comments(module))
    for module in PRODUCT:
        yield module.name, "\n".join(strings_of(module.tree))
    scripts = [ROOT / "Makefile", *(ROOT / ".ci").iterdir()]
    for pattern in (
        "templates/**/*.*",
        "static/**/*.js",
        "static/**/*.css",
        "deploy/**/*.*",
    ):
        scripts += ROOT.glob(pattern)
    for path in sorted(scripts):
        if path.is_file() and path.suffix != ".md":
            comments = re.findall(
                r"(?:#|//|/?\*|<!--) .*", path.read_text(encoding="utf-8")
            )
            yield str(path.relative_to(ROOT)), "\n".join(comments)


def _anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, as the builder makes them."""
    titles = re.findall(
        r"^#{1,3} (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
    }


def _section(page: str, title: str) -> str:
    """Return what is below a heading of any level, to the next heading."""
    found = re.search(
        rf"^#+ {re.escape(title)}$(.*?)(?=^#+ |\Z)",
        PAGES[page],
        re.DOTALL | re.MULTILINE,
    )
    assert found, f"{page} has no section {title!r}"
    return found[1]


def _rows(page: str, title: str) -> list[str]:
    """Return the first cells of the table of a section."""
    cells = re.findall(r"^\| (.+?) \| ", _section(page, title), re.MULTILINE)
    return [cell.strip("`") for cell in cells[1:]]


def _documented_requests() -> Iterator[tuple[tuple[str, str], str]]:
    """Yield each method and path with its row; what a path varies in is written in capitals."""
    for path, methods, rest in re.findall(
        r"^\| `([^`]+)` \| ([A-Z, ]+) \|(.*)$", PAGES["reference/rest.md"], re.MULTILINE
    ):
        for method in methods.split(", "):
            yield (method.lower(), re.sub(r"[A-Z]+", "*", path)), rest


def _commands() -> set[str]:
    own = {name for name, app in get_commands().items() if app in APPS}
    return own | verbs_of(PARSER).keys()


def _parser(name: str) -> ArgumentParser:
    if name in verbs_of(PARSER):
        parser: ArgumentParser = verbs_of(PARSER)[name]
        return parser
    app = get_commands()[name]
    assert isinstance(app, str)
    return load_command_class(app, name).create_parser("manage.py", name)


def _words_of_nouns(verb: str) -> Iterator[str]:
    """Yield the options of a verb apart from the parameters of lists, and the nouns that it has."""
    for action in _parser(verb)._actions:
        below = action.choices if isinstance(action.choices, dict) else {}
        for parser in below.values():
            yield from _words_of(parser, but=("output", "query_"))
    if verb in ("get", "export"):
        yield from (name for name, noun in nouns().items() if verb in noun.verbs)


def _formats_of(parser: ArgumentParser) -> Iterator[set[str]]:
    for action in parser._actions:
        if action.dest == "output" and action.choices:
            yield set(action.choices)
        elif isinstance(action.choices, dict):
            for below in action.choices.values():
                yield from _formats_of(below)


def _formats_in(title: str) -> list[set[str]]:
    """Return the words for formats of each line of a section that is about `-o`."""
    known = {*FORMATS, "csv", "markdown", "sarif"}
    lines = _section(COMMANDS_PAGE, title).splitlines()
    return [
        known & set(re.findall(r"[a-z]+", " ".join(re.findall(r"`[^`]+`", line))))
        for line in lines
        if re.search(r"`-o\b", line)
    ]


def _words_of(
    parser: ArgumentParser, *, but: tuple[str, ...] = ("output",)
) -> Iterator[str]:
    """Yield the options that a command has beside those of Django, and the choices of its arguments."""
    usual = {
        option
        for action in ArgumentParser()._actions
        for option in action.option_strings
    }
    # Those of all commands on a hub, and of all requests, are described above the sections.
    usual |= {
        option
        for action in connection_options()._actions
        for option in action.option_strings
    }
    own = [
        action
        for action in parser._actions
        if not _is_djangos(action)
        and not action.dest.startswith(but)
        and not usual & set(action.option_strings)
    ]
    for action in own:
        yield from (
            option for option in action.option_strings if option.startswith("--")
        )
        choices: Any = action.choices or ()
        yield from (str(choice) for choice in choices if action.dest != "size")
        if isinstance(choices, dict):
            for below in choices.values():
                yield from _words_of(below)


def _is_djangos(action: Action) -> bool:
    usual = {
        "verbosity",
        "settings",
        "pythonpath",
        "traceback",
        "no_color",
        "force_color",
        "skip_checks",
    }
    return action.dest in usual | {"version"}
