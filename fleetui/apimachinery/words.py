"""Names of objects, counts and long lists in texts."""

from collections.abc import Collection, Iterable, Sequence

# The units of durations in texts.
UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def full_name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def split_full_name(text: str) -> tuple[str, str]:
    namespace, _, name = text.rpartition("/")
    return namespace, name


def with_group(name: str, group: str) -> str:
    """Return a kind or resource with its API group: "deployments.apps", "pods"."""
    return f"{name}.{group}" if group else name


def counted(number: int, noun: str) -> str:
    """Return a count with its noun: "1 cluster", "2 clusters"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def names_and_more(names: Iterable[str], most: int, *, count: int | None = None) -> str:
    """Return the first names, and the number of the others: "a, b and 1,200 more".

    `count` is the number of all where `names` are only the first ones.
    """
    names = list(names)
    first = ", ".join(names[:most])
    more = (count or len(names)) - len(names[:most])
    if more > 0:
        return f"{first} and {more:,} more"
    return first


def named_or_counted(names: Collection[str], noun: str, most: int = 1) -> str:
    """Return the names, or how many there are if they are more than `most`: "1,200 clusters"."""
    if len(names) > most:
        return counted(len(names), noun)
    return ", ".join(names)


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
    if len(lines) > most:
        lines[most:] = [f"… and {len(lines) - most:,} more"]
    return lines


def is_token(text: str) -> bool:
    """Return whether a text is one word of a header of HTTP: printable ASCII without spaces."""
    return text.isascii() and text.isprintable() and " " not in text


def plain_word(value: object) -> str:
    """Return a scalar as YAML writes it: "true", "3"."""
    return str(value).lower() if isinstance(value, bool) else str(value)
