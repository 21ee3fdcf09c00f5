"""What may stand in an address: what cannot be a name finds nothing, before any query."""


class NameConverter:
    """A name or a key, as far as addresses go: no slash, no control character."""

    regex = r"[^/\x00-\x1f\x7f]{1,317}"

    def to_python(self, value: str) -> str:
        """Take it as it is."""
        return value

    def to_url(self, value: str) -> str:
        """Write it as it is."""
        return value


class NumberConverter:
    """A number that a database column holds."""

    regex = r"[0-9]{1,9}"

    def to_python(self, value: str) -> int:
        """Read it."""
        return int(value)

    def to_url(self, value: int) -> str:
        """Write it."""
        return str(value)


class DecisionConverter(NameConverter):
    """The id of a decision, or the beginning of one: what is wrong with it is told by the query."""

    regex = r"[^/.\x00-\x1f\x7f]{1,80}"
