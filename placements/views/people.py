"""Who does what a page asks for, and whether it is confirmed."""

from django.contrib.auth.models import User
from django.http import HttpRequest

from placements.operations.emptying import CONFIRMATION


def user_of(request: HttpRequest) -> User:
    """Give who is logged in; every view that writes lets in nobody else."""
    if not isinstance(request.user, User):
        raise TypeError("this view is open to people who are not logged in")
    return request.user


def is_confirmed(request: HttpRequest) -> bool:
    """Tell whether somebody ticked that everything may be unscheduled (`parts/confirm.html`)."""
    return request.POST.get("confirm") == CONFIRMATION
