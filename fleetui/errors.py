"""What the console refuses and why: one error, answered in the same way by pages, REST and commands."""

from typing import Any, ClassVar

REFUSED, BAD_INPUT, UNCONFIRMED, ENVIRONMENT = 1, 2, 3, 4
"""Exit codes of commands: refused or not found, invalid input, confirmation missing, try again later."""
_BAD_INPUT = frozenset({400, 413, 415, 422})
_TRY_AGAIN = frozenset({429, *range(500, 600)})
CONFIRMATION_NEEDED = "confirmation-needed"


class FleetError(Exception):
    """An operation was refused; its text is the reason, in words for people.

    `status` is the status of HTTP, `problem_type` the last part of the type of problem details (RFC 9457),
    `title` the heading of the page. With `wait` the same succeeds after so many seconds.
    """

    title: ClassVar[str] = "Not possible"
    wait: float | None = None

    status: int = 409
    problem_type: str = "refused"

    @property
    def exit_code(self) -> int:
        return exit_code_of(self.status, self.problem_type)

    def problem_facts(self) -> dict[str, Any]:
        """Return what problem details have besides type, status and text."""
        return {}


class UnknownObject(FleetError, LookupError):
    status = 404

    def __str__(self) -> str:
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


def exit_code_of(status: int, problem_type: str = "") -> int:
    """Return the exit code of a command for a status of HTTP, whether it ran here or over REST."""
    if problem_type == CONFIRMATION_NEEDED:
        return UNCONFIRMED
    if status in _TRY_AGAIN:
        return ENVIRONMENT
    return BAD_INPUT if status in _BAD_INPUT else REFUSED
