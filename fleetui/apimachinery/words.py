"""Names of objects, counts and long lists in texts."""

from collections.abc import Iterable, Sequence


def full_name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def split_full_name(text: str) -> tuple[str, str]:
    """Return namespace and name; the reverse of `full_name`."""
    namespace, _, name = text.rpartition("/")
    return namespace, name


def counted(number: int, noun: str) -> str:
    """Return a count with its noun: "1 cluster", "2 clusters"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def names_and_more(names: Iterable[str], most: int, *, count: int | None = None) -> str:
    """Return the first names, and the number of the others: "a, b and 1,200 more".

    `count` is the number of all where `names` are only the first ones.
    """
    names = list(names)
    more = (len(names) if count is None else count) - len(names[:most])
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def joined(words: Sequence[str], last: str = "and") -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def first_names(words: Sequence[str], most: int = 3) -> str:
    return names_and_more(words, most) if len(words) > most else joined(words)


def barred(words: Iterable[str]) -> str:
    """Return words as one text, in which "|word|" is searched; empty without any."""
    text = "|".join(words)
    return text and f"|{text}|"


def first_lines(lines: Iterable[str], most: int) -> list[str]:
    lines = list(lines)
    return (
        [*lines[:most], f"… and {len(lines) - most:,} more"]
        if len(lines) > most
        else lines
    )


def plain_word(value: object) -> str:
    """Return a scalar as YAML writes it: "true", "3"."""
    return str(value).lower() if isinstance(value, bool) else str(value)
