"""Rules of the design about the code as a whole, checked on its syntax trees."""

import ast
import fnmatch
import re
import sys
import tomllib
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement

from fleetui.apimachinery.model import Semantics
from tests.load.code_size import AREAS
from tests.source_code import (
    PRODUCT,
    ROOT,
    TESTS,
    Module,
    functions,
    nodes_of,
    one_caller_functions,
)

# In one process: the syntax trees of all modules take seconds.
pytestmark = pytest.mark.xdist_group("sources")

CORES = (
    "clusters.case_manifest",
    "clusters.columns",
    "clusters.fleet",
    "clusters.health",
    "clusters.hub_objects",
    "clusters.managed_cluster",
    "clusters.manifest",
    "fleetui.apimachinery",
    "fleetui.errors",
    "placements.engine",
    "placements.manifests",
)
# What a module of a core may use beside what all of them may, and why.
CORE_EXCEPTIONS = {
    (
        "placements/engine/checks/findings.py",
        "imports rapidfuzz.distance",
    ): "the distance of two words",
    (
        "placements/manifests/cel_expression.py",
        "imports logging",
    ): "an expression that fails on a cluster is no event: the library logs it",
    (
        "placements/manifests/cel_functions.py",
        "imports urllib.parse",
    ): "takes URLs apart, opens none",
    (
        "fleetui/apimachinery/yaml.py",
        "imports sys",
    ): "the recursion limit and interned keys",
    (
        "fleetui/apimachinery/yaml.py",
        "imports yaml",
    ): "the one place that parses and writes YAML",
    (
        "fleetui/apimachinery/yaml_edit.py",
        "imports yaml",
    ): "edits the tokens of a text, keeping comments",
}
LONGEST_MODULE = 450
LONGEST_FUNCTION = 45
"""Statements: lines would be saved by longer lines."""
LONGEST_TEMPLATE = 8_000
"""Characters."""
MOST_TINY_ONE_CALLER = 0
"""Private functions with one caller and at most two statements; the share of all is in `test_figures.py`."""
MOST_SHARED_CLASS_NAMES = 1
"""Class names that two or more modules define; lower it, never raise it."""
FRAMEWORK_CLASS_NAMES = {"Command"}  # Django finds a command by it

# A core receives time, randomness, files and processes as arguments, or not at all.
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
    "cel",
    "highspy",
    "jsonpatch",
    "msgspec",
    "numpy",
    "pydantic",
    "pydantic_core",
    "re2",
}
OUTSIDE_CALLS = frozenset({"open", "input", "print", "exec", "eval", "__import__"})
OUTSIDE_ATTRIBUTES = frozenset(
    {"now", "utcnow", "today", "random", "environ", "getenv", "read_text"}
)


# Where a set of scheduling rules may be named, and why. All else uses the profile or the strategy.
MAY_NAME_SEMANTICS = {
    "fleetui/apimachinery/model.py": "the names themselves, and the default",
    "placements/manifests/affinity.py": "parsing: which fields the rules know",
    "placements/manifests/ocm_options.py": "parsing: documents of OCM",
    "placements/manifests/ocm_placement.py": "parsing: documents of OCM",
    "placements/manifests/placement.py": "parsing: a Placement of OCM has its rules",
    "placements/manifests/policy.py": "parsing: which fields the rules know",
    "placements/engine/scheduling/profile.py": "the registry: what each name means",
    "placements/services/simulate/cases.py": "parsing of conformance cases, of OCM too",
    "placements/services/simulate/translate.py": "translates a placement to the terms of another system",
    "placements/explain/decisions.py": "tables of texts, a row for each set of rules",
    "placements/explain/decision_tables.py": "a table of texts, a row for each set of rules",
    "placements/explain/vocabulary.py": "a table of texts, a row for each set of rules",
}
# Where a Placement of OCM, the document, is distinguished from a ClusterResourcePlacement, and why.
MAY_CHECK_FOR_THE_DOCUMENT = {
    "placements/manifests/placement.py": "reads it",
    "placements/services/simulate/translate.py": "reads it",
    "placements/services/resources/queries.py": "it alone may select no resources",
    "placements/services/status.py": "its status is written in its own terms",
    "placements/services/placements.py": "what may not be changed is a rule of each API",
    "placements/web/editor.py": "shows in the editor as what a text was read",
    "placements/web/placements.py": "shows on the page which document was applied",
}


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module


def _is_under(name: str, packages: tuple[str, ...]) -> bool:
    return any(
        name == package or name.startswith(f"{package}.") for package in packages
    )


def _impurities(tree: ast.Module) -> list[str]:
    """Return the lines where a core would reach outside itself."""
    errors = [
        f"{line} imports {name}"
        for line, name in _imports(tree)
        if name.partition(".")[0] not in CORE_LIBRARIES and not _is_under(name, CORES)
    ]
    for node in nodes_of(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in OUTSIDE_CALLS
        ):
            errors.append(f"{node.lineno} calls {node.func.id}")
        if isinstance(node, ast.Attribute) and node.attr in OUTSIDE_ATTRIBUTES:
            errors.append(f"{node.lineno} uses .{node.attr}")
    return errors


def _blanket_catches(tree: ast.Module) -> list[int]:
    """Return the lines that catch everything."""
    handlers = [node for node in nodes_of(tree) if isinstance(node, ast.ExceptHandler)]
    return [
        node.lineno
        for node in handlers
        if node.type is None
        or {"Exception", "BaseException"}
        & {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)}
    ]


def _named_semantics(tree: ast.Module) -> list[str]:
    """Return the lines that name a set of rules, as a member or as a text to compare with."""
    texts = {str(semantics) for semantics in Semantics}
    found = []
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and _is_name(
            node.value, "Semantics"
        ):
            found += [f"{node.lineno} names {ast.unparse(node)}"]
        if (
            isinstance(node, ast.Compare | ast.match_case)
            and "semantics" in ast.unparse(node).lower()
        ):
            constants = (
                one.value for one in ast.walk(node) if isinstance(one, ast.Constant)
            )
            found += [
                f"{_line(node)} compares with {text!r}"
                for text in constants
                if text in texts
            ]
    return found


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _line(node: ast.Compare | ast.match_case) -> int:
    return node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno


def _class_checks(tree: ast.Module, name: str) -> list[int]:
    """Return the lines that check whether an object is of this class."""
    return [
        node.lineno
        for node in nodes_of(tree)
        if isinstance(node, ast.Call)
        and _is_name(node.func, "isinstance")
        and name in ast.unparse(node.args[1])
    ]


def test_cores_are_plain() -> None:
    core = [module for module in PRODUCT if _is_under(module.import_name, CORES)]
    found = [
        (module.name, error, error.partition(" ")[2])
        for module in core
        for error in _impurities(module.tree)
    ]

    assert [
        name
        for name in CORES
        if not any(_is_under(module.import_name, (name,)) for module in core)
    ] == []
    assert [
        f"{name}:{error}"
        for name, error, what in found
        if (name, what) not in CORE_EXCEPTIONS
    ] == []
    assert CORE_EXCEPTIONS.keys() <= {(name, what) for name, _, what in found}


@pytest.mark.parametrize(
    "line",
    [
        "import django",
        "from celery import shared_task",
        "import plotly.graph_objects",
        "import yaml",
        "from placements.models import Placement",
        "from placements import services",
        "import time",
        "from random import shuffle",
        "import os",
        "datetime.now()",
        "date.today()",
        "np.random.default_rng()",
        "open('fleet.json')",
    ],
)
def test_access_from_a_core_to_the_outside_is_found(line: str) -> None:
    assert len(_impurities(ast.parse(line))) == 1


@pytest.mark.parametrize(
    ("libraries", "only"),
    [
        (
            ("yaml", "ruamel"),
            ("fleetui/apimachinery/yaml.py", "fleetui/apimachinery/yaml_edit.py"),
        ),
        (("plotly",), ("placements/explain/charts/",)),
    ],
)
def test_a_library_has_few_places_of_import(
    libraries: tuple[str, ...], only: tuple[str, ...]
) -> None:
    importers = {
        module.name
        for module in PRODUCT
        for _, name in _imports(module.tree)
        if _is_under(name, libraries)
    }

    assert {name for name in importers if not name.startswith(only)} == set()


def _imports_of_internals(tree: ast.Module) -> list[str]:
    """Return the imports of allauth's own code, which may change with any release of it."""
    imports = [
        ast.unparse(node)
        for node in nodes_of(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    return [
        text
        for text in imports
        if re.search(r"^(import|from) allauth\b.*\binternal\b", text)
    ]


def test_nothing_imports_internals_of_allauth() -> None:
    found = [
        f"{module.name}: {text}"
        for module in PRODUCT + TESTS
        if "internal" in module.text
        for text in _imports_of_internals(module.tree)
    ]

    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "import allauth.socialaccount.internal.jwtkit",
        "from allauth.account.internal.flows.login import perform_login",
        "from allauth.account import forms, internal",
    ],
)
def test_an_import_of_internals_is_found(line: str) -> None:
    assert len(_imports_of_internals(ast.parse(line))) == 1


_WIRING = frozenset({"fleetui/settings.py", "fleetui/urls.py"})
"""Where the console is put together: these alone name what is above `fleetui`."""


def _names_of_upper_apps(tree: ast.Module) -> list[str]:
    """Return the texts that name an app above `fleetui`, or something of it."""
    texts = [node.value for node in nodes_of(tree) if isinstance(node, ast.Constant)]
    dotted = re.compile(r"(clusters|placements)(\.\w+)+")
    named = [text for text in texts if isinstance(text, str) and dotted.fullmatch(text)]
    calls = [ast.unparse(node) for node in nodes_of(tree) if isinstance(node, ast.Call)]
    return [
        *named,
        *(
            call
            for call in calls
            if re.search(r"get_model\(['\"](clusters|placements)['\"]", call)
        ),
    ]


def test_the_lowest_app_names_none_above_it() -> None:
    modules = [module for module in PRODUCT if module.name.startswith("fleetui/")]
    found = [
        f"{module.name}: {text}"
        for module in modules
        if module.name not in _WIRING
        for text in _names_of_upper_apps(module.tree)
    ]

    assert len(modules) > len(_WIRING)
    assert found == []


@pytest.mark.parametrize(
    "line", ["apps.get_model('clusters', 'Hub')", "user.has_perm('placements.edit')"]
)
def test_a_name_of_an_upper_app_is_found(line: str) -> None:
    assert len(_names_of_upper_apps(ast.parse(line))) == 1


def test_one_function_looks_across_hubs() -> None:
    naming = {module.name for module in PRODUCT if "scopes_disabled" in module.text}

    assert naming == {"fleetui/hub_scope.py", "clusters/hub_queries.py"}


def test_what_may_be_namespaced_is_not_looked_up_by_its_name_alone() -> None:
    # `web` and `shop/web` are different placements: see docs/adr/0017.
    tables = "|".join(("Placement", "StagedRun", "StagedStrategy"))
    lookup, reference = (
        rf"\b(?:{tables})\.objects[^\n]*\bname(?:__in)?=",
        r"\brow\.placement\.name\b",
    )
    alone = re.compile(rf"{lookup}|{reference}|\bplacement__name\b")
    found = [
        f"{module.name}: {line.strip()}"
        for module in PRODUCT
        for line in module.text.splitlines()
        if alone.search(line) and "full_name" not in line and "namespace=" not in line
    ]

    assert found == []


def _queries_at_import(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Attribute) and node.attr in (
            "objects",
            "_default_manager",
        ):
            yield f"{node.lineno} {ast.unparse(node)}"
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _queries_at_import(node)


def test_no_query_is_written_at_import() -> None:
    # It would stay with the hub that was in scope then.
    assert [
        f"{module.name}:{query}"
        for module in PRODUCT
        for query in _queries_at_import(module.tree)
    ] == []


def test_a_query_at_import_is_found() -> None:
    assert (
        len(list(_queries_at_import(ast.parse("class A:\n    rows = B.objects.all()"))))
        == 1
    )


def test_modules_are_short() -> None:
    lengths = {
        module.name: sum(isinstance(node, ast.stmt) for node in nodes_of(module.tree))
        for module in PRODUCT
    }

    assert {
        name: length for name, length in lengths.items() if length > LONGEST_MODULE
    } == {}


def test_every_area_of_the_code_has_modules() -> None:
    names = [module.name for module in PRODUCT]
    patterns = [pattern for area in AREAS.values() for pattern in area]

    assert [pattern for pattern in patterns if not fnmatch.filter(names, pattern)] == []


def test_functions_are_short() -> None:
    long = [
        (module.name, name, statements)
        for module in PRODUCT
        for name, statements in functions(module.tree)
        if statements > LONGEST_FUNCTION
    ]

    assert long == []


def test_templates_are_short() -> None:
    lengths = {
        path: len(path.read_text(encoding="utf-8"))
        for path in (ROOT / "templates").rglob("*.html")
    }

    assert lengths
    assert {
        str(path): length
        for path, length in lengths.items()
        if length > LONGEST_TEMPLATE
    } == {}


def test_no_box_in_a_section_is_a_landmark_of_the_same_name() -> None:
    found = {}
    for path in (ROOT / "templates").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r'<section[^>]* aria-labelledby="([^"]+)"', text):
            heading = re.search(rf'id="{re.escape(name)}"[^>]*>([^<{{]+)<', text)
            same = rf'aria-labelledby="{re.escape(name)}"'
            same += rf'|aria-label="{re.escape(heading[1].strip())}"' if heading else ""
            found[path.name, name] = re.findall(rf'role="region" (?:{same})', text)

    assert found
    assert {place: boxes for place, boxes in found.items() if boxes} == {}


def test_no_small_function_has_one_caller() -> None:
    tiny = [
        f"{module.name}: {name}"
        for module in PRODUCT
        for name, statements in one_caller_functions(module)
        if statements <= 2
    ]

    assert len(tiny) <= MOST_TINY_ONE_CALLER, "\n".join(tiny)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def _f():\n    a()\n    b()\n\n_f()", [("_f", 2)]),
        ("def _f():\n    'Return a.'\n    return a\n\n_f()", [("_f", 1)]),
        (
            "class A:\n    def _f(self):\n        pass\n    def g(self):\n        self._f()",
            [("_f", 1)],
        ),
        ("def _f():\n    pass\n\n_f()\n_f()", []),
        ("def f():\n    pass\n\nf()", []),
        ("@cache\ndef _f():\n    pass\n\n_f()", []),
        ("def __init__():\n    pass\n\n__init__()", []),
    ],
)
def test_a_function_with_one_caller_is_found(
    text: str, found: list[tuple[str, int]]
) -> None:
    assert list(one_caller_functions(Module(ROOT / "any.py", text))) == found


def test_class_names_of_two_modules_become_fewer() -> None:
    modules: dict[str, list[str]] = {}
    for module in PRODUCT:
        for node in module.tree.body:
            if (
                isinstance(node, ast.ClassDef)
                and node.name not in FRAMEWORK_CLASS_NAMES
            ):
                modules.setdefault(node.name, []).append(module.name)
    shared = {name: defining for name, defining in modules.items() if len(defining) > 1}

    assert len(shared) <= MOST_SHARED_CLASS_NAMES, shared


def test_every_module_has_a_docstring() -> None:
    assert [
        module.name for module in PRODUCT + TESTS if not ast.get_docstring(module.tree)
    ] == []


def test_every_folder_with_code_is_a_package() -> None:
    # import-linter and mypy do not look into a folder without one.
    folders = {module.path.parent for module in PRODUCT + TESTS}

    assert [
        folder for folder in sorted(folders) if not (folder / "__init__.py").exists()
    ] == []


def test_no_handler_catches_everything() -> None:
    assert [
        f"{module.name}:{line}"
        for module in PRODUCT
        for line in _blanket_catches(module.tree)
    ] == []


@pytest.mark.parametrize(
    "caught", ["", " Exception", " BaseException as error", " (ValueError, Exception)"]
)
def test_a_handler_that_catches_everything_is_found(caught: str) -> None:
    assert _blanket_catches(ast.parse(f"try:\n    f()\nexcept{caught}:\n    g()")) == [
        3
    ]


def test_only_listed_modules_name_a_set_of_rules() -> None:
    naming = {module.name for module in PRODUCT if _named_semantics(module.tree)}

    assert {
        name for name in naming if not name.startswith(tuple(MAY_NAME_SEMANTICS))
    } == set()
    assert [
        semantic
        for semantic in MAY_NAME_SEMANTICS
        if not any(name.startswith(semantic) for name in naming)
    ] == []


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
def test_a_named_set_of_rules_is_found(line: str) -> None:
    assert len(_named_semantics(ast.parse(line))) == 1


@pytest.mark.parametrize(
    "line",
    ["list(Semantics)", "Semantics(text)", "[*Semantics, 'all']", "kind == 'fleet'"],
)
def test_iterating_all_sets_of_rules_is_allowed(line: str) -> None:
    assert _named_semantics(ast.parse(line)) == []


def test_no_template_branches_on_the_name_of_a_set_of_rules() -> None:
    names = "|".join(Semantics)
    branch = re.compile(
        rf"""{{%\s*(?:el)?if[^%]*\bsemantics\b[^%]*["'](?:{names})["']"""
    )
    templates = sorted((ROOT / "templates").rglob("*.*"))

    assert templates
    assert [
        template.name
        for template in templates
        if branch.search(template.read_text(encoding="utf-8"))
    ] == []


def test_no_module_checks_the_class_of_a_strategy() -> None:
    found = {
        f"{module.name}:{line}"
        for module in PRODUCT
        for name in (
            "OcmSpread",
            "KubernetesSpread",
            "FleetSpread",
            "OcmOptions",
            "WeightedScore",
        )
        for line in _class_checks(module.tree, name)
    }

    assert found == set()


def test_only_listed_modules_check_for_a_document_of_ocm() -> None:
    checking = {
        module.name for module in PRODUCT if _class_checks(module.tree, "OcmPlacement")
    }

    assert checking == set(MAY_CHECK_FOR_THE_DOCUMENT)


def test_lock_names_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")

    assert (
        re.findall(r"^.*://.*$|^\s*--(?!hash=).*$|^-.*$|^.*@.*$", lock, re.MULTILINE)
        == []
    )


def test_lock_pins_everything_with_hashes() -> None:
    entries = _lock_entries()

    assert entries
    assert [
        entry
        for entry in entries
        if not re.search(r"==\S+ .*--hash=sha256:[0-9a-f]{64}", entry)
    ] == []


def test_lock_is_up_to_date_with_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"].values()
    required = map(
        Requirement,
        [
            *project["project"]["dependencies"],
            *(one for group in groups for one in group),
        ],
    )
    pinned = dict(
        re.findall(r"^(\S+)==(\S+)", "\n".join(_lock_entries()), re.MULTILINE)
    )

    assert [
        requirement
        for requirement in required
        if pinned.get(requirement.name.lower(), "0") not in requirement.specifier
    ] == []


def test_tests_of_one_group_run_in_one_process(request: pytest.FixtureRequest) -> None:
    """A version of pytest that pytest-xdist does not know ignores the groups without a message."""
    has_groups = getattr(request.config.option, "loadgroup", False)

    assert request.node.nodeid.endswith("@sources") or not has_groups


def _lock_entries() -> list[str]:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", " ")
    return [
        line
        for line in lock.splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
