"""Who may call what, in the words of `fleetui.roles`."""

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from fleetui.roles import may_approve, may_operate, may_read


class MayRead(BasePermission):
    """Every role may call it: nothing is saved."""

    message = "Reading needs one of the roles viewer, operator, approver."

    def has_permission(self, request: Request, view: object) -> bool:  # noqa: ARG002 -- the framework's
        """Tell whether the caller may read."""
        return may_read(request.user)


class MayReadOrOperate(BasePermission):
    """Every role reads, an operator writes."""

    message = "Reading needs one of the roles viewer, operator, approver; changing needs the role operator."

    def has_permission(self, request: Request, view: object) -> bool:  # noqa: ARG002 -- the framework's
        """Tell whether the caller may do this."""
        return may_read(request.user) if request.method in SAFE_METHODS else may_operate(request.user)


class MayApprove(BasePermission):
    """An approver lets stages go on."""

    message = "Approving needs the role approver."

    def has_permission(self, request: Request, view: object) -> bool:  # noqa: ARG002 -- the framework's
        """Tell whether the caller may approve."""
        return may_approve(request.user)
