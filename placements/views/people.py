"""Who does what a page asks for."""

from django.contrib.auth.models import User
from django.http import HttpRequest


def user_of(request: HttpRequest) -> User:
    """Give who is logged in; every view that writes lets in nobody else."""
    if not isinstance(request.user, User):
        raise TypeError("this view is open to people who are not logged in")
    return request.user
