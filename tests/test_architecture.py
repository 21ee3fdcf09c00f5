"""What the design promises about the code as a whole, read off its syntax trees."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from placements.scheduling.semantics import Semantics

ROOT = Path(__file__).resolve().parent.parent
CORES = ("placements.scheduling", "placements.rollout")
LONGEST_MODULE = 400
LONGEST_FUNCTION = 40

# A core gets the time, chance, files and processes of this world handed in, or not at all.
OUTSIDE_WORLD = {
    "asyncio",
    "concurrent",
    "getpass",
    "glob",
    "http",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "shutil",
    "socket",
    "sqlite3",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uuid",
    "zoneinfo",
}
CORE_LIBRARIES = (sys.stdlib_module_names - OUTSIDE_WORLD) | {
    "jsonpatch",
    "numpy",
    "pydantic",
    "pydantic_core",
}
OUTSIDE_CALLS = frozenset({"open", "input", "print", "exec", "eval", "__import__"})
OUTSIDE_ATTRIBUTES = frozenset({"now", "utcnow", "today", "random", "environ", "getenv", "read_text"})


# Where a set of rules may be called by its name, and why. All else asks the profile or the strategy.
MAY_NAME_SEMANTICS = {
    "placements/scheduling/door/": "documents of one system, and what they may say",
    "placements/scheduling/policy.py": "the door to a policy: whose fields are whose",
    "placements/scheduling/spec.py": "the door to a placement: a Placement of OCM has its rules",
    "placements/scheduling/semantics.py": "the names themselves, and which holds without a word",
    "placements/scheduling/profile.py": "the registry: what each name stands for",
    "placements/simulation/cases.py": "the door to conformance cases",
    "placements/simulation/scenario.py": "the door to scenarios, which are those of the released scheduler",
    "placements/simulation/wish.py": "carries a wish over from one system's words to another's",
    "placements/explain/contest_wording.py": "tables of words, a row for each set of rules",
    "placements/explain/ranking.py": "a table of words, a row for each set of rules",
    "placements/explain/sentences.py": "a table of words, a row for each set of rules",
    "placements/explain/step_wording.py": "a table of words, a row for each set of rules",
    "placements/explain/wording.py": "tables of words, a row for each set of rules",
}
# Where a Placement of OCM, the document, is told from a ClusterResourcePlacement, and why.
MAY_ASK_FOR_THE_DOCUMENT = {
    "placements/scheduling/spec.py": "reads it",
    "placements/simulation/wish.py": "reads it",
    "placements/queries/hub.py": "it alone may select no resources, and is told so",
    "placements/queries/status.py": "its status is written in its own words",
    "placements/operations/immutable.py": "what may not be changed is a rule of each API",
    "placements/views/editor_showing.py": "says in the editor as what a text was read",
    "placements/views/placements.py": "says on the page as what it came",
}


@dataclass(frozen=True)
class Module:
    """One source file, parsed."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """Give the place inside the repository, for messages."""
        return self.path.relative_to(ROOT).as_posix()


def _modules(*folders: str) -> list[Module]:
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    texts = [(path, path.read_text(encoding="utf-8")) for path in paths if "migrations" not in path.parts]
    return [Module(path, text, ast.parse(text)) for path, text in texts]


PRODUCT = _modules("fleetui", "clusters", "placements")
TESTS = _modules("tests")


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module


def _is_under(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _impurities(tree: ast.Module) -> list[str]:
    """List the lines where a core would reach outside itself."""
    faults = [
        f"{line} imports {name}"
        for line, name in _imports(tree)
        if name.partition(".")[0] not in CORE_LIBRARIES and not _is_under(name, CORES)
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OUTSIDE_CALLS:
            faults.append(f"{node.lineno} calls {node.func.id}")
        if isinstance(node, ast.Attribute) and node.attr in OUTSIDE_ATTRIBUTES:
            faults.append(f"{node.lineno} uses .{node.attr}")
    return faults


def _blanket_catches(tree: ast.Module) -> list[int]:
    """List the lines that catch everything."""
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
    return [
        node.lineno
        for node in handlers
        if node.type is None
        or {"Exception", "BaseException"} & {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)}
    ]


def _named_semantics(tree: ast.Module) -> list[str]:
    """List the lines that call a set of rules by its name, as a member or as a text to compare with."""
    texts = {str(one) for one in Semantics}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and ast.unparse(node.value) == "Semantics":
            found += [f"{node.lineno} names {ast.unparse(node)}"]
        if isinstance(node, ast.Compare | ast.match_case) and "semantics" in ast.unparse(node).lower():
            constants = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
            found += [f"{_line(node)} compares with {text!r}" for text in constants if text in texts]
    return found


def _line(node: ast.Compare | ast.match_case) -> int:
    return node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno


def _asks_for_class(tree: ast.Module, name: str) -> list[int]:
    """List the lines that ask whether something is of this class."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "isinstance"
        and name in ast.unparse(node.args[1])
    ]


def _functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_cores_are_plain() -> None:
    core = [module for module in PRODUCT if _is_under(module.name.replace("/", "."), CORES)]

    assert core
    assert [f"{module.name}:{fault}" for module in core for fault in _impurities(module.tree)] == []


@pytest.mark.parametrize(
    "line",
    [
        "import django",
        "from celery import shared_task",
        "import plotly.graph_objects",
        "import yaml",
        "from placements.models import Placement",
        "from placements import scheduling",
        "import time",
        "from random import shuffle",
        "import os",
        "datetime.now()",
        "date.today()",
        "np.random.default_rng()",
        "open('fleet.json')",
    ],
)
def test_reaching_out_of_a_core_would_be_noticed(line: str) -> None:
    assert len(_impurities(ast.parse(line))) == 1


@pytest.mark.parametrize(
    ("libraries", "only"),
    [
        (("yaml", "ruamel"), ("placements/manifests.py", "placements/yaml_edits.py")),
        (("plotly",), ("placements/explain/charts/",)),
    ],
)
def test_a_library_has_few_places_of_import(libraries: tuple[str, ...], only: tuple[str, ...]) -> None:
    importers = {
        module.name for module in PRODUCT for _, name in _imports(module.tree) if _is_under(name, libraries)
    }

    assert {name for name in importers if not name.startswith(only)} == set()


def test_modules_are_short() -> None:
    lengths = {module.name: module.text.count("\n") for module in PRODUCT}

    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}


def test_functions_are_short() -> None:
    functions = [(module.name, *function) for module in PRODUCT for function in _functions(module.tree)]

    assert [function for function in functions if function[-1] > LONGEST_FUNCTION] == []


def test_every_module_says_what_it_is_for() -> None:
    assert [module.name for module in PRODUCT + TESTS if not ast.get_docstring(module.tree)] == []


def test_every_folder_with_code_is_a_package() -> None:
    # import-linter and mypy do not look into a folder without one.
    folders = {module.path.parent for module in PRODUCT + TESTS}

    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_nobody_catches_everything() -> None:
    assert [f"{module.name}:{line}" for module in PRODUCT for line in _blanket_catches(module.tree)] == []


@pytest.mark.parametrize("caught", ["", " Exception", " BaseException as error", " (ValueError, Exception)"])
def test_catching_everything_would_be_noticed(caught: str) -> None:
    assert _blanket_catches(ast.parse(f"try:\n    f()\nexcept{caught}:\n    g()")) == [3]


def test_no_branch_is_on_the_name_of_a_set_of_rules() -> None:
    naming = {module.name for module in PRODUCT if _named_semantics(module.tree)}

    assert {name for name in naming if not name.startswith(tuple(MAY_NAME_SEMANTICS))} == set()
    assert [one for one in MAY_NAME_SEMANTICS if not any(name.startswith(one) for name in naming)] == []


@pytest.mark.parametrize(
    "line",
    [
        "cycle.semantics is Semantics.OCM",
        "Semantics['OCM']",
        "placement.semantics == 'ocm'",
        "cycle.semantics in ('fleet', 1)",
        "Semantics.KUBEFLEET.value",
    ],
)
def test_naming_a_set_of_rules_would_be_noticed(line: str) -> None:
    assert len(_named_semantics(ast.parse(line))) == 1


@pytest.mark.parametrize(
    "line", ["list(Semantics)", "Semantics(text)", "[*Semantics, 'all']", "kind == 'fleet'"]
)
def test_all_of_them_may_be_gone_through(line: str) -> None:
    assert _named_semantics(ast.parse(line)) == []


def test_no_template_branches_on_the_name_of_a_set_of_rules() -> None:
    names = "|".join(Semantics)
    branch = re.compile(rf"""{{%\s*(?:el)?if[^%]*\bsemantics\b[^%]*["'](?:{names})["']""")
    templates = sorted((ROOT / "templates").rglob("*.*"))

    assert templates
    assert [one.name for one in templates if branch.search(one.read_text(encoding="utf-8"))] == []


def test_nobody_asks_which_strategy_a_strategy_is() -> None:
    asked = {
        f"{module.name}:{line}"
        for module in PRODUCT
        for name in ("OcmSpread", "KubernetesSpread", "FleetSpread", "OcmOptions", "WeighedPreference")
        for line in _asks_for_class(module.tree, name)
    }

    assert asked == set()


def test_few_ask_whether_a_document_is_of_ocm() -> None:
    asking = {module.name for module in PRODUCT if _asks_for_class(module.tree, "OcmPlacement")}

    assert asking == set(MAY_ASK_FOR_THE_DOCUMENT)


def test_lock_names_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")

    assert re.findall(r"^.*://.*$|^\s*--(?!hash=).*$|^-.*$|^.*@.*$", lock, re.MULTILINE) == []


def test_lock_pins_everything_with_hashes() -> None:
    entries = _lock_entries()

    assert entries
    assert [entry for entry in entries if not re.search(r"==\S+ .*--hash=sha256:[0-9a-f]{64}", entry)] == []


def test_lock_is_up_to_date_with_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = map(Requirement, project["project"]["dependencies"] + project["dependency-groups"]["dev"])
    pinned = dict(re.findall(r"^(\S+)==(\S+)", "\n".join(_lock_entries()), re.MULTILINE))

    assert [one for one in wanted if pinned.get(one.name.lower(), "0") not in one.specifier] == []


def _lock_entries() -> list[str]:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in lock.splitlines() if line.strip() and not line.lstrip().startswith("#")]
