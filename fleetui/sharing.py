"""One fragment for many tabs: what several people may see alike is written once, and handed to each of them.

When a run changes, everybody who looks at it asks within two seconds. The first is answered in earnest, the
others wait for that answer. What belongs to a session, the token of its forms, is put in for each.
"""

from collections.abc import Callable, Hashable
from threading import Lock
from time import monotonic

from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.utils.crypto import get_random_string

SECONDS = 2.0
TOKEN = get_random_string(64)
"""What a shared fragment holds in the place of the token of its forms."""

_MOST = 200


class _Shared:
    """A fragment that is being written, or is written until some moment."""

    def __init__(self) -> None:
        self.lock, self.until, self.content = Lock(), 0.0, b""


_known: dict[Hashable, _Shared] = {}


def shared(request: HttpRequest, key: Hashable, make: Callable[[], HttpResponse]) -> HttpResponse:
    """Give what `make` wrote for this key in the last two seconds, else let it write; with an own token."""
    if len(_known) >= _MOST:
        _known.clear()
    one = _known.setdefault(key, _Shared())
    with one.lock:
        if monotonic() >= one.until:
            one.content, one.until = make().content, monotonic() + SECONDS
        content = one.content
    mark = TOKEN.encode()
    return HttpResponse(content.replace(mark, get_token(request).encode()) if mark in content else content)


def forget_shared() -> None:
    """Write everything anew."""
    _known.clear()
