"""What templates of live hubs read: writes that are offered, agreements, approvals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import reverse

from fleetui.permissions import Role
from placements.hubs.explain.agreements import DIFFERS_SENTENCE, ShownAgreement
from placements.hubs.replay import observed_decisions
from placements.hubs.writing.catalogue import (
    ACTIONS,
    HubAction,
    OpenApproval,
    open_approvals,
    refusal_of_write,
)
from placements.models import Placement, StagedRun

register = template.Library()


@dataclass(frozen=True, slots=True)
class OfferedWrite:
    """An action on the live hub of a page; `why_not` says why its control is disabled."""

    action: HubAction
    url: str
    why_not: str


@register.simple_tag(takes_context=True)
def hub_refusal(context: template.RequestContext, act: str, **fields: Any) -> str:
    """Return why the person may not do an action on the live hub of the page; "" where they may."""
    layout, action = context["layout"], ACTIONS[act]
    is_operator = action.role is not Role.OPERATOR or layout.may_operate
    user: Any = context["request"].user if is_operator else None
    return refusal_of_write(layout.hub.hub, action, user, fields)


@register.simple_tag(takes_context=True)
def hub_write(
    context: template.RequestContext, act: str, **fields: Any
) -> OfferedWrite:
    """Return an action on an object of the live hub; the layout keeps what is refused, for its note."""
    given = {
        key: str(value) for key, value in fields.items() if value not in (None, "")
    }
    url = f"{reverse('web:hub-write', args=[act])}?{urlencode(given)}"
    found = OfferedWrite(ACTIONS[act], url, hub_refusal(context, act, **given))
    if found.why_not:
        context["layout"].refused_writes.setdefault(found.why_not, {})[url] = found
    return found


@register.filter
def agreement_of_placement(placement: Placement) -> ShownAgreement | None:
    return observed_decisions.agreement_of_placement(placement)


@register.simple_tag
def differs_sentence() -> str:
    return DIFFERS_SENTENCE


@register.filter
def hub_side(page: Any) -> observed_decisions.HubSide | None:
    """Return what the hub decided, of the page of a decision that is a replay of it; computed once."""
    if "hub_side" not in vars(page):
        page.hub_side = observed_decisions.hub_side_of(page.row)
    return page.hub_side


@register.filter
def approvals_of_hub(run: StagedRun) -> Sequence[OpenApproval]:
    """Return the requests for approval that the hub has for a run that is not over."""
    return (
        open_approvals(run.hub, run.name, run.namespace) if run.ended_at is None else ()
    )
