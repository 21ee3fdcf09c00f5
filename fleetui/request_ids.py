"""The id that the events of one request share, such as a change of many clusters."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_current: ContextVar[str] = ContextVar("request_id", default="")


def current_request_id() -> str:
    """Return the id of the request that is being applied; empty outside of `with_request_id`."""
    return _current.get()


@contextmanager
def with_request_id(identity: str) -> Iterator[None]:
    token = _current.set(identity)
    try:
        yield
    finally:
        _current.reset(token)
