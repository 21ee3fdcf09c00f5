"""Size and density of the product, as figures: `python -m tests.figures`.

Counted are statements, tokens and branches, which a shorter line or a smaller file does not change.
"""

import ast
import io
import tokenize

from tests.source_code import (
    PRODUCT,
    ROOT,
    Module,
    functions,
    nodes_of,
    one_caller_functions,
)

WIDE_LINE = 90
WIDE_TEMPLATE_LINE = 200
MANY_BRANCHES = 11
_NO_NOUNS = frozenset({"one", "each"})
_BRANCHES = (
    ast.If,
    ast.For,
    ast.While,
    ast.ExceptHandler,
    ast.BoolOp,
    ast.IfExp,
    ast.comprehension,
    ast.Assert,
    ast.match_case,
)
_NOT_CODE = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    }
)


def figures() -> dict[str, float]:
    """Return each figure by its name; percentages and ratios are rounded as they are printed."""
    statements = conditionals = complex_functions = tokens = code_lines = wide = 0
    unnamed = 0
    for module in PRODUCT:
        for node in nodes_of(module.tree):
            statements += isinstance(node, ast.stmt)
            conditionals += isinstance(node, ast.IfExp)
            if isinstance(node, ast.For | ast.comprehension):
                names = {
                    name.id
                    for name in ast.walk(node.target)
                    if isinstance(name, ast.Name)
                }
                unnamed += not names.isdisjoint(_NO_NOUNS)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                complex_functions += _branches(node) >= MANY_BRANCHES
        own_tokens, own_lines = _tokens_and_lines(module.text)
        tokens += own_tokens
        code_lines += own_lines
        wide += sum(len(line) >= WIDE_LINE for line in module.text.splitlines())
    total = sum(len(list(functions(module.tree))) for module in PRODUCT)
    lone = sum(len(list(one_caller_functions(module))) for module in PRODUCT)
    lines = sum(module.text.count("\n") for module in PRODUCT)
    templates = [
        line
        for path in (ROOT / "templates").rglob("*.html")
        for line in path.read_text().splitlines()
    ]
    wide_templates = sum(len(line) > WIDE_TEMPLATE_LINE for line in templates)
    return {
        "statements": statements,
        "tokens per code line": round(tokens / code_lines, 2),
        "wide lines, %": round(100 * wide / lines, 1),
        "conditional expressions per 1,000 statements": round(
            1000 * conditionals / statements, 1
        ),
        "complex functions": complex_functions,
        "arrows between packages": len(_arrows()),
        "functions with one caller, %": round(100 * lone / total, 1),
        "loops over one or each": unnamed,
        "wide template lines, %": round(100 * wide_templates / len(templates), 1),
    }


def _branches(function: ast.AST) -> int:
    return 1 + sum(isinstance(node, _BRANCHES) for node in nodes_of(function))


def _tokens_and_lines(text: str) -> tuple[int, int]:
    count = 0
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            count += 1
            lines.add(token.start[0])
    return count, len(lines)


def _arrows() -> set[tuple[str, str]]:
    """Return the pairs of packages of which the first imports from the second."""
    packages = {_package_of(module) for module in PRODUCT}
    names = {module.import_name for module in PRODUCT}
    found = set()
    for module in PRODUCT:
        here = _package_of(module)
        for node in nodes_of(module.tree):
            if not isinstance(node, ast.ImportFrom) or not node.module or node.level:
                continue
            imported = {f"{node.module}.{alias.name}" for alias in node.names} & names
            for target in imported or {node.module} & names:
                there = target if target in packages else target.rpartition(".")[0]
                if there != here:
                    found.add((here, there))
    return found


def _package_of(module: Module) -> str:
    return module.name.rpartition("/")[0].replace("/", ".")


if __name__ == "__main__":
    for name, value in figures().items():
        print(f"{name:46} {value:>10,}")  # noqa: T201  # a report
