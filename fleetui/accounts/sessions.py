"""The sessions of a user, which the user and administrators can end.

What a list of them shows is inside the sessions, where the middleware that ends them keeps its times. A table
of sessions, as allauth has one, would be written by every request, or be wrong about the last one.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.utils import timezone

from fleetui.middleware import ACTIVE, ADDRESS, BROWSER, STARTED
from fleetui.permissions import AnyUser

_BROWSERS = {
    "Edg": "Edge",
    "OPR/": "Opera",
    "Firefox/": "Firefox",
    "Chrome/": "Chrome",
    "Safari/": "Safari",
}
_SYSTEMS = {
    "Android": "Android",
    "iPhone": "iOS",
    "iPad": "iPadOS",
    "Windows": "Windows",
    "Mac OS X": "macOS",
    "CrOS": "ChromeOS",
    "Linux": "Linux",
}
"""Words of a user agent by which a person recognizes a device; the first that is found counts."""


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A session as its owner sees it; `id` is a hash, because the key is the session."""

    key: str
    browser: str
    address: str
    started_at: datetime
    seen_at: datetime
    is_current: bool

    @property
    def id(self) -> str:
        return sha256(self.key.encode()).hexdigest()[:16]


def sessions_of(user: AnyUser, *, current: str | None = None) -> list[BrowserSession]:
    """Return the sessions of a user that have not expired: that with the key `current`, then the last used.

    The owner is inside a session, so that all are read; there are those of the last hours only.
    """
    sessions = []
    for row in Session.objects.filter(expire_date__gt=timezone.now()).iterator():
        data = row.get_decoded()
        if data.get(SESSION_KEY) != str(user.pk):
            continue
        agent = data.get(BROWSER, "")
        browser = next(
            (name for word, name in _BROWSERS.items() if word in agent), agent[:40]
        )
        system = next((name for word, name in _SYSTEMS.items() if word in agent), "")
        started, active = (
            datetime.fromtimestamp(data.get(key, 0), UTC) for key in (STARTED, ACTIVE)
        )
        sessions.append(
            BrowserSession(
                key=row.session_key,
                browser=f"{browser or 'Unknown browser'}{f' on {system}' if system else ''}",
                address=data.get(ADDRESS, ""),
                started_at=started,
                seen_at=active,
                is_current=row.session_key == current,
            )
        )
    return sorted(sessions, key=lambda one: (one.is_current, one.seen_at), reverse=True)


def end_sessions(
    user: AnyUser, *, without: str | None = None, only: str | None = None
) -> int:
    """Delete sessions of a user: all, all `without` a key, or `only` that with an id; return how many."""
    sessions = [
        session
        for session in sessions_of(user)
        if session.key != without and only in (None, session.id)
    ]
    Session.objects.filter(
        session_key__in=[session.key for session in sessions]
    ).delete()
    return len(sessions)
