"""One CEL expression: whether it compiles, and whether a cluster matches it.

The library parses and evaluates; it knows neither optional selection (`a.?b`) nor types before evaluation.
Both are added here over the tokens (`rules/other-schedulers.md#cel`).
"""

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

LONGEST_EXPRESSION = 4096
"""Longer ones could exhaust the stack of the library's parser."""
MOST_STEPS = 1_000_000
"""The cost limit of Open Cluster Management for an expression, here in iterations of nested macros."""
VARIABLE = "managedCluster"

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<string>[bBrR]{0,2}(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<double>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)(?P<unsigned>[uU])?
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|\.\?|\[\?|.)""",
    re.VERBOSE | re.DOTALL,
)
_MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter"})
_TYPES = (
    "bool bytes double dyn int list map null_type string timestamp type uint duration"
)
_NAMES = frozenset({VARIABLE, "format", "ip", "optional", *_TYPES.split()})
_SIGNATURES = """
f: bool bytes double duration dyn has int string timestamp type uint
f: cidr format ip isCIDR isIP isQuantity isSemver isURL quantity semver size url
f: matches,2
m: getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours getMilliseconds getMinutes getMonth
m: getSeconds hasValue lowerAscii upperAscii trim reverse size value none
m: isSorted sum min max asApproximateFloat asInteger isInteger sign major minor patch ip masked prefixLength
m: getScheme getHost getHostname getPort getEscapedPath getQuery family isUnspecified isLoopback
m: isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast parseJSON join
m: dns1123Label dns1123Subdomain dns1035Label dns1123LabelPrefix dns1123SubdomainPrefix dns1035LabelPrefix
m: qualifiedName labelValue uri uuid byte date datetime
m: charAt,1 contains,1 endsWith,1 startsWith,1 matches,1 indexOf,1 indexOf,2 lastIndexOf,1 lastIndexOf,2
m: join,1 split,1 split,2 replace,2 replace,3 substring,1 substring,2 format,1 orValue,1 or,1 of,1
m: ofNonZeroValue,1 named,1 validate,1 isCanonical,1 add,1 sub,1 isLessThan,1 isGreaterThan,1 compareTo,1
m: find,1 findAll,1 findAll,2 containsIP,1 containsCIDR,1 scores,1
m: getDate,1 getDayOfMonth,1 getDayOfWeek,1 getDayOfYear,1 getFullYear,1 getHours,1 getMilliseconds,1
m: getMinutes,1 getMonth,1 getSeconds,1
m: all,2 exists,2 exists_one,2 existsOne,2 filter,2 map,2 map,3
"""


def _signatures() -> frozenset[tuple[str, str, int]]:
    """Return (kind, name, count of arguments) of all functions; kind m is called on a receiver."""
    parsed = set()
    for line in _SIGNATURES.split("\n"):
        kind, _, names = line.partition(": ")
        for entry in names.split():
            name, _, count = entry.partition(",")
            parsed.add((kind, name, int(count or kind == "f")))
    return frozenset(parsed)


_KNOWN = _signatures()
_KNOWN_NAMES = frozenset(name for _, name, _ in _KNOWN)
_TEXT_ARGUMENT = frozenset(
    [
        "scores",
        "quantity",
        "semver",
        "isSemver",
        "isQuantity",
        "url",
        "isURL",
        "cidr",
        "isCIDR",
        "isIP",
        "startsWith",
        "endsWith",
        "contains",
        "matches",
        "find",
        "findAll",
    ]
)
_LITERALS = frozenset({"string", "double", "int", "uint", "bool"})
_OPERATORS = frozenset(["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">="])
_COMPARISONS = frozenset(["==", "!=", "<", "<=", ">", ">="])
_OPENERS = frozenset({"", "(", "[", "[?", ",", "&&", "||", "?", ":", "!"})
_LONG_TEXTS = frozenset({"parseJSON", "split", "findAll"})
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class CelError(ValueError):
    """An expression does not compile."""


class Token(NamedTuple):
    """A word of an expression: a literal by its type, a `name`, or a `sign`."""

    kind: str
    text: str


_END = Token("sign", "")


@lru_cache(maxsize=1024)
def compile_cel(text: str) -> "Expression":
    """Return the compiled expression. Raise CelError."""
    # The library loads slowly: a process that decides no CEL does not pay for it.
    import cel  # noqa: PLC0415

    if len(text) > LONGEST_EXPRESSION:
        message = (
            f"longer than {LONGEST_EXPRESSION} characters (a limit of this console)"
        )
        raise CelError(message)
    logging.getLogger("cel").setLevel(logging.CRITICAL)
    tokens = tuple(tokens_of(text))
    try:
        program = cel.compile(_with_optionals(tokens) or text)
    except ValueError as error:
        reason = str(error).partition("ERROR: ")[2].splitlines()
        raise CelError(reason[0] if reason else "syntax error") from error
    bound = {
        tokens[at + 2].text
        for at, token in enumerate(tokens[:-2])
        if token.text in _MACROS and tokens[at + 1].text == "("
    }
    for name in program.variables():
        if name not in _NAMES | bound:
            message = f"undeclared reference to {name!r}"
            raise CelError(message)
    check_calls(tokens)
    check_operands(tokens)
    reads_long_texts = any(one.text in _LONG_TEXTS for one in tokens)
    return Expression(program, _depth(tokens), reads_long_texts)


def tokens_of(text: str) -> Iterator[Token]:
    """Yield the words of an expression, without spaces and comments."""
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "sign"
        word = match[0]
        if kind == "unsigned":
            kind = "uint"
        elif word in ("true", "false"):
            kind = "bool"
        if kind != "space":
            yield Token(kind, word)


def _at(tokens: tuple[Token, ...], position: int) -> Token:
    return tokens[position] if 0 <= position < len(tokens) else _END


def _with_optionals(tokens: tuple[Token, ...]) -> str:
    """Return the expression with optional selection written as calls; "" if it has none.

    What follows `a.?b` in the same chain is optional as well.
    """
    if not any(one.text in (".?", "[?") for one in tokens):
        return ""
    words: list[str] = []
    brackets: list[tuple[str, bool]] = []
    is_optional = False
    position = 0
    while position < len(tokens):
        word = tokens[position].text
        following = _at(tokens, position + 1)
        is_field = following.kind == "name" and _at(tokens, position + 2).text != "("
        if word == ".?" or (word == "." and is_optional and is_field):
            words.append(f'.optSelect("{following.text}")')
            position += 1
            is_optional = True
        elif word == "[?" or (word == "[" and is_optional):
            words.append(".optSelect(")
            brackets.append((")", True))
            is_optional = False
        elif word in _CLOSING:
            words.append(word)
            brackets.append((_CLOSING[word], False))
            is_optional = False
        elif word in (")", "]", "}") and brackets:
            closing, is_optional = brackets.pop()
            words.append(closing)
        else:
            words.append(word)
            is_optional = False
        position += 1
    return " ".join(words)


def check_calls(tokens: tuple[Token, ...]) -> None:
    """Raise CelError for an unknown function, or one with arguments that it does not take."""
    for at, token in enumerate(tokens):
        if token.kind != "name" or _at(tokens, at + 1).text != "(":
            continue
        kind = "m" if _at(tokens, at - 1).text == "." else "f"
        count = _arguments(tokens, at + 1)
        if token.text not in _KNOWN_NAMES:
            message = f"undeclared reference to {token.text!r}"
            raise CelError(message)
        argument = _at(tokens, at + 2).kind
        is_alone = _at(tokens, at + 3).text == ")"
        needs_text = token.text in _TEXT_ARGUMENT and is_alone
        is_wrong = needs_text and argument in _LITERALS and argument != "string"
        if is_wrong or (kind, token.text, count) not in _KNOWN:
            message = f"found no matching overload for {token.text!r}"
            raise CelError(message)


def _arguments(tokens: tuple[Token, ...], opening: int) -> int:
    """Return how many arguments the call has whose bracket opens at this token."""
    if _at(tokens, opening + 1).text == ")":
        return 0
    depth = 0
    count = 1
    for token in tokens[opening:]:
        if token.kind != "sign":
            continue
        if token.text in ("(", "[", "{", "[?"):
            depth += 1
        elif token.text in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                break
        elif token.text == "," and depth == 1:
            count += 1
    return count


def check_operands(tokens: tuple[Token, ...]) -> None:
    """Raise CelError where an operator has two literals of different types, which never compare or add up."""
    for at, token in enumerate(tokens):
        left, right = _at(tokens, at - 1), _at(tokens, at + 1)
        is_pair = left.kind in _LITERALS and right.kind in _LITERALS
        if token.text not in _OPERATORS or not is_pair or left.kind == right.kind:
            continue
        before, after = _at(tokens, at - 2).text, _at(tokens, at + 2).text
        is_start = before in _OPENERS
        if token.text not in _COMPARISONS:
            is_start = is_start or before in _COMPARISONS
        if is_start and after not in (".", ".?", "[", "[?"):
            message = (
                f"found no matching overload for '_{token.text}_'"
                f" applied to ({left.kind}, {right.kind})"
            )
            raise CelError(message)


def _depth(tokens: tuple[Token, ...]) -> int:
    """Return how deep macros are nested."""
    brackets: list[bool] = []
    deepest = 0
    for at, token in enumerate(tokens):
        if token.kind != "sign":
            continue
        if token.text in ("(", "[", "{", "[?"):
            brackets.append(token.text == "(" and _at(tokens, at - 1).text in _MACROS)
            deepest = max(deepest, sum(brackets))
        elif token.text in (")", "]", "}") and brackets:
            brackets.pop()
    return deepest


def _largest(value: object, *, counts_texts: bool) -> int:
    """Return the size of the largest collection within a document, or of the longest text."""
    if isinstance(value, str):
        return len(value) if counts_texts else 0
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, list):
        return 0
    sizes = [_largest(one, counts_texts=counts_texts) for one in value]
    return max(len(value), *sizes, 0)


@dataclass(frozen=True)
class Expression:
    """A compiled expression; `depth` is how deep its macros are nested."""

    program: Any
    depth: int
    reads_long_texts: bool

    def matches(self, document: Mapping[str, Any], context: Any) -> bool:
        """Return whether a cluster matches; an error, another type or too many steps mean that it does not.

        `context` has the functions and the document as a variable (`functions.CelScope`).
        """
        if self.depth > 1:
            largest = _largest(document, counts_texts=self.reads_long_texts)
            largest = max(largest, len(self.program.source) // 2)
            if largest**self.depth > MOST_STEPS:
                return False
        try:
            return self.program.execute(context) is True
        except (ValueError, TypeError, RuntimeError, LookupError, ArithmeticError):
            return False
