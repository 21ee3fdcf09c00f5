"""What to do about errors of the YAML parser that do not say it."""

from typing import Any

_HINTS = {
    "found character that cannot start any token": "use spaces, not tabs; quote text that starts with @",
    "mapping values are not allowed in this context": "check the indentation; quote text that has a colon",
    "did not find expected key": "check the indentation and the quotes here and in the line above",
    "did not find expected '-' indicator": "each item of a list starts with a dash at the same indentation",
}
_HINTS_AT_START = {
    "while scanning a quoted scalar": "the quote that starts here is not closed",
    "while scanning a simple key": 'a line has the form "key: value"',
}


def hint_of(error: Exception) -> tuple[Any, str]:
    """Return the place to correct, None if unknown, and what to do there, empty if unknown."""
    problem, context = (
        getattr(error, name, None) or "" for name in ("problem", "context")
    )
    if context in _HINTS_AT_START and problem.startswith(
        ("found unexpected end", "could not find")
    ):
        return getattr(error, "context_mark", None), f"; {_HINTS_AT_START[context]}"
    mark = getattr(error, "problem_mark", None)
    return mark, f"; {_HINTS[problem]}" if problem in _HINTS else ""
