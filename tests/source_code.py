"""The source files of the product and of its tests, parsed, for tests and reports about the code."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Module:
    """One source file, parsed when a test needs it: all of them take four seconds."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def name(self) -> str:
        """Return the path inside the repository, for messages."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def import_name(self) -> str:
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _modules(*folders: str) -> list[Module]:
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    texts = [
        (path, path.read_text(encoding="utf-8"))
        for path in paths
        if "migrations" not in path.parts
    ]
    return [Module(path, text) for path, text in texts]


PRODUCT = _modules("fleetui", "clusters", "placements")
TESTS = _modules("tests")


@cache
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return all nodes; twenty tests read those of all modules, and a walk takes as long as parsing."""
    return tuple(ast.walk(tree))


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the functions with the number of statements inside each."""
    for node in nodes_of(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (
                node.name,
                sum(isinstance(one, ast.stmt) for one in nodes_of(node)) - 1,
            )


def one_caller_functions(module: Module) -> Iterator[tuple[str, int]]:
    """Yield private functions that their module names once outside the definition, with their statements."""
    names = Counter(re.findall(r"\b_[a-z]\w*", module.text))
    for node in nodes_of(module.tree):
        if (
            not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            or node.decorator_list
        ):
            continue
        if names[node.name] == 2:
            yield node.name, len(node.body) - bool(ast.get_docstring(node))
