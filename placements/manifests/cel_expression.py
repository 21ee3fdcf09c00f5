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
MOST_LEVELS = 200
"""The library overflows the stack of its thread on deeper ones: one of 256 KiB has room for 377 levels."""
_LEVELS_OF_A_BRACKET = 12
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
_KNOWN = frozenset(
    (kind, name, int(count or kind == "f"))
    for kind, _, names in (
        line.partition(": ") for line in _SIGNATURES.strip().splitlines()
    )
    for name, _, count in (entry.partition(",") for entry in names.split())
)
"""Kind, name and count of arguments of all functions; kind m is called on a receiver."""
_KNOWN_NAMES = frozenset(name for _, name, _ in _KNOWN)
_WITH_TEXT = (
    "cidr contains endsWith find findAll isCIDR isIP isQuantity isSemver isURL"
    " matches quantity scores semver startsWith url"
)
_TEXT_ARGUMENT = frozenset(_WITH_TEXT.split())
_LITERALS = frozenset({"string", "double", "int", "uint", "bool"})
_OPERATORS = frozenset(["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">="])
_COMPARISONS = frozenset(["==", "!=", "<", "<=", ">", ">="])
_OPENERS = frozenset({"", "(", "[", "[?", ",", "&&", "||", "?", ":", "!"})
_LONG_TEXTS = frozenset({"parseJSON", "split", "findAll"})
_CLOSING = {"(": ")", "[": "]", "[?": ")", "{": "}"}
_CLOSERS = frozenset({")", "]", "}"})
_OPENING = {"[?": ".optSelect("}
_OPTIONALS = {".": ".?", "[": "[?"}
_SEPARATORS = frozenset({",", "&&", "||", "?", ":"})
_LINKS = _OPERATORS | {".", ".?", "[", "[?", "in"}


class CelError(ValueError):
    """An expression does not compile."""


class Token(NamedTuple):
    """A word of an expression: a literal by its type, a `name`, or a `sign`."""

    kind: str
    text: str


_END = Token("sign", "")


@dataclass
class Bracket:
    """What is between two brackets, or the whole expression.

    `macros`: how many it is within. `chain`: how many operators and selections follow one another. `levels`:
    how deep the library calls itself for it, in steps of a chain.
    """

    opening: int
    holder: "Bracket | None" = None
    macros: int = 0
    commas: int = 0
    chain: int = 0
    longest_chain: int = 0
    levels: int = 0


@lru_cache(maxsize=1024)
def compile_cel(text: str) -> "Expression":
    """Return the compiled expression. Raise CelError."""
    # The library loads slowly: a process that decides no CEL does not pay for it.
    import cel  # noqa: PLC0415

    if len(text) > LONGEST_EXPRESSION:
        raise CelError(
            f"longer than {LONGEST_EXPRESSION} characters (a limit of this console)"
        )
    tokens = tuple(tokens_of(text))
    brackets = brackets_of(tokens)
    logging.getLogger("cel").setLevel(logging.CRITICAL)
    words = {token.text for token in tokens}
    if words & {".?", "[?"}:
        text = _with_optionals(tokens)
    try:
        program = cel.compile(text)
    except ValueError as error:
        reason = str(error).partition("ERROR: ")[2].splitlines()
        raise CelError(next(iter(reason), "syntax error")) from error
    bound = {
        _at(tokens, bracket.opening + 1).text
        for bracket in brackets
        if _is_macro(tokens, bracket.opening)
    }
    for name in program.variables():
        if name not in _NAMES | bound:
            raise CelError(f"undeclared reference to {name!r}")
    check_calls(tokens, brackets)
    check_operands(tokens)
    depth = max(bracket.macros for bracket in brackets)
    return Expression(program, depth, bool(words & _LONG_TEXTS))


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


def brackets_of(tokens: tuple[Token, ...]) -> list[Bracket]:
    """Return the pairs of brackets by their opening, after the whole expression. Raise CelError."""
    holder = Bracket(-1)
    brackets = [holder]
    for at, token in enumerate(tokens):
        if token.text in _LINKS:
            holder.chain += 1
            holder.longest_chain = max(holder.longest_chain, holder.chain)
        if token.text in _CLOSING:
            holder = Bracket(at, holder, holder.macros + _is_macro(tokens, at))
            brackets.append(holder)
        elif token.text in _CLOSERS:
            holder = holder.holder or holder
        elif token.text in _SEPARATORS:
            holder.commas += token.text == ","
            holder.chain = 0
    for bracket in brackets:
        outside = bracket.holder.levels if bracket.holder else 0
        bracket.levels = outside + bracket.longest_chain + _LEVELS_OF_A_BRACKET
        if bracket.levels > MOST_LEVELS:
            raise CelError(
                f"deeper than {MOST_LEVELS} levels (a limit of this console)"
            )
    return brackets


def _is_macro(tokens: tuple[Token, ...], opening: int) -> bool:
    return _at(tokens, opening).text == "(" and _at(tokens, opening - 1).text in _MACROS


def _with_optionals(tokens: tuple[Token, ...]) -> str:
    """Return the expression with optional selection written as calls.

    What follows `a.?b` in the same chain is optional as well, but for a call.
    """
    words: list[str] = []
    brackets: list[tuple[str, bool]] = []
    is_optional = False
    position = 0
    while position < len(tokens):
        word = tokens[position].text
        is_call = word == "." and _at(tokens, position + 2).text == "("
        if is_optional and not is_call:
            word = _OPTIONALS.get(word, word)
        if word == ".?":
            words.append(f'.optSelect("{_at(tokens, position + 1).text}")')
            position += 1
            is_optional = True
        elif word in _CLOSING:
            brackets.append((_CLOSING[word], word == "[?"))
            words.append(_OPENING.get(word, word))
            is_optional = False
        elif word in _CLOSERS and brackets:
            closing, is_optional = brackets.pop()
            words.append(closing)
        else:
            words.append(word)
            is_optional = False
        position += 1
    return " ".join(words)


def check_calls(tokens: tuple[Token, ...], brackets: list[Bracket]) -> None:
    """Raise CelError for an unknown function, or one with arguments that it does not take."""
    for bracket in brackets:
        name = _at(tokens, bracket.opening - 1)
        if name.kind != "name" or tokens[bracket.opening].text != "(":
            continue
        if name.text not in _KNOWN_NAMES:
            raise CelError(f"undeclared reference to {name.text!r}")
        kind = "m" if _at(tokens, bracket.opening - 2).text == "." else "f"
        argument = _at(tokens, bracket.opening + 1)
        count = bracket.commas + (argument.text != ")")
        is_alone = _at(tokens, bracket.opening + 2).text == ")"
        needs_text = name.text in _TEXT_ARGUMENT and is_alone
        is_wrong = needs_text and argument.kind in _LITERALS - {"string"}
        if is_wrong or (kind, name.text, count) not in _KNOWN:
            raise CelError(f"found no matching overload for {name.text!r}")


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
            raise CelError(
                f"found no matching overload for '_{token.text}_'"
                f" applied to ({left.kind}, {right.kind})"
            )


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

        `context` has the functions and the document as a variable (`cel_functions.CelScope`).
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
