"""Who may what in the admin, in the words of `fleetui.roles` and nowhere else."""

from typing import Any

from django.http import HttpRequest

from fleetui.roles import may_operate, may_read


class ByRole:
    """Everyone with a role looks; operators add and change; nobody deletes rows."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Tell whether the index lists it."""
        return may_read(request.user)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Tell whether the user may look."""
        return may_read(request.user)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Tell whether the user may add."""
        return may_operate(request.user)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Tell whether the user may change."""
        return may_operate(request.user)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: what goes, goes by an operation."""
        return False


class ReadOnly(ByRole):
    """Everyone with a role looks, and that is all."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse."""
        return False


class SuperusersOnly:
    """Superusers do everything, others see nothing, whatever Django permissions they were given."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Tell whether the index lists it."""
        return _is_superuser(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Tell whether the user may look."""
        return _is_superuser(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Tell whether the user may add."""
        return _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Tell whether the user may change."""
        return _is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Tell whether the user may delete."""
        return _is_superuser(request)


def _is_superuser(request: HttpRequest) -> bool:
    return request.user.is_active and request.user.is_superuser
