"""What an operation does where a live hub decides: every operation that users reach has a mark."""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from fleetui.hub_scope import LOCAL_HUB, HubDecidesError, current_hub_id

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
MARK = "live_hub_operation"
"""The attribute of a marked operation: what runs instead of it, or None where it is the same."""


def on_live_hub(
    instead: Callable[..., Any] | None,
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Run `instead` where the hub in scope is a live one, with the same arguments and type of result.

    None: the operation changes only what belongs to this console, such as a draft, and is the same there.
    """

    def mark(operation: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        if instead is None:
            setattr(operation, MARK, None)
            return operation

        @wraps(operation)
        def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
            if current_hub_id() == LOCAL_HUB:
                return operation(*arguments, **options)
            result: Result = instead(*arguments, **options)
            return result

        setattr(run, MARK, instead)
        return run

    return mark


_VIEW_MARK = "live_hub_view"
Operation = Callable[..., Any]


def acts_through(
    operation: Operation | None = None,
    *,
    chosen: Callable[..., Operation] | None = None,
    has_page: bool = False,
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Mark a view with its operation; `chosen` returns it from the arguments of the path.

    A live hub that refuses the operation refuses the view as well, and pages have no link to it; with
    `has_page` only its form: the page itself shows something.
    """

    def mark(view: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        setattr(view, _VIEW_MARK, (operation, chosen, has_page))
        return view

    return mark


def refusal_of(view: Operation, arguments: Mapping[str, Any], *, is_form: bool) -> HubDecidesError | None:
    """Return why the live hub in scope refuses a view, or what its form sends; None where it does not."""
    operation, chosen, has_page = getattr(view, _VIEW_MARK, (None, None, False))
    if chosen is not None:
        operation = chosen(**arguments)
    while isinstance(operation, partial):
        operation = operation.func
    instead = getattr(operation, MARK, None)
    if current_hub_id() == LOCAL_HUB or instead not in REFUSALS or (has_page and not is_form):
        return None
    try:
        instead()
    except HubDecidesError as error:
        return error
    return None


def refuse(*_arguments: Any, **_options: Any) -> NoReturn:
    """Raise HubDecidesError: a person changes the manifest on the hub."""
    raise HubDecidesError("Change the manifest on the hub, for example with kubectl apply.")


def refuse_membership(*_arguments: Any, **_options: Any) -> NoReturn:
    """Raise HubDecidesError: clusters join, report and leave through the agents of the hub."""
    raise HubDecidesError("Member clusters join, report and leave through the agents of the hub.")


def refuse_rollout(*_arguments: Any, **_options: Any) -> NoReturn:
    """Raise HubDecidesError: rollouts belong to the controllers of the hub."""
    raise HubDecidesError("Its controllers run rollouts; change the strategy of the placement there.")


def refuse_local(*_arguments: Any, **_options: Any) -> NoReturn:
    """Raise HubDecidesError: the local hub alone has this."""
    raise HubDecidesError("This is available on the local hub only.")


REFUSALS = frozenset({refuse, refuse_membership, refuse_rollout, refuse_local})
"""What an operation is marked with that a live hub refuses altogether."""
