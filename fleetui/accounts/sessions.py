"""The sessions of a user, which the user and administrators can end."""

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.models import Session
from django.utils import timezone


def session_keys(user: AbstractBaseUser | AnonymousUser, *, without: str | None = None) -> list[str]:
    """Return the keys of the sessions of a user that have not expired; `without` is one to leave out.

    The owner is inside a session, so that all are read; there are those of the last hours only.
    """
    rows = Session.objects.filter(expire_date__gt=timezone.now()).exclude(session_key=without or "")
    return [row.session_key for row in rows.iterator() if row.get_decoded().get(SESSION_KEY) == str(user.pk)]


def end_sessions(user: AbstractBaseUser | AnonymousUser, *, without: str | None = None) -> int:
    """Delete the sessions of a user; return how many there were."""
    keys = session_keys(user, without=without)
    Session.objects.filter(session_key__in=keys).delete()
    return len(keys)
