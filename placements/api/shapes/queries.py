"""The query parameters of each endpoint, checked by these very fields."""

from typing import Any

from rest_framework import serializers

from clusters.listing import ORDERS
from clusters.listing import State as ClusterState
from placements.operations.emptying import CONFIRMATION
from placements.queries.lists import PLACEMENT_ORDERS
from placements.queries.lists import State as PlacementState
from placements.scheduling.fleet import EligibilityKind
from placements.scheduling.outcomes import Outcome
from placements.scheduling.policy import PlacementType
from placements.scheduling.semantics import Semantics

RESOURCE_ORDERS = ("name", "-name", "kind", "-kind", "updated_at", "-updated_at")
_LONGEST = 400
_LONGEST_CURSOR = 2000


def _text(**options: Any) -> serializers.CharField:
    return serializers.CharField(
        required=False, default="", allow_blank=True, max_length=_LONGEST, trim_whitespace=False, **options
    )


def _one_of(values: Any) -> serializers.ChoiceField:
    return serializers.ChoiceField([str(one) for one in values], required=False)


def _order(values: tuple[str, ...], default: str) -> serializers.ChoiceField:
    return serializers.ChoiceField(values, required=False, default=default)


class NoQuery(serializers.Serializer[object]):
    """An endpoint without parameters."""


class ConfirmQuery(serializers.Serializer[object]):
    """What is confirmed beforehand."""

    confirm = serializers.ChoiceField(
        [CONFIRMATION],
        required=False,
        help_text="To send after a 409 `confirmation-needed`: the change unschedules everything.",
    )


class PageQuery(serializers.Serializer[object]):
    """Which page of a list."""

    after = serializers.CharField(
        required=False, max_length=_LONGEST_CURSOR, help_text="Where the page before ended; from its `next`."
    )
    limit = serializers.IntegerField(required=False, default=100, min_value=1, max_value=500)


class NumberedPageQuery(serializers.Serializer[object]):
    """Which page of something numbered."""

    after = serializers.IntegerField(required=False, default=0, min_value=0, max_value=10**9)
    limit = serializers.IntegerField(required=False, default=20, min_value=1, max_value=100)


class ClusterQuery(PageQuery):
    """What a list of clusters is narrowed down to."""

    q = _text(help_text="Part of the name.")
    label = serializers.ListField(  # type: ignore[assignment]  # of this name the base class has a caption
        child=serializers.CharField(max_length=_LONGEST),
        required=False,
        default=list,
        max_length=20,
        help_text="`key:value`, or `key` for any value; all of them must be there.",
    )
    state = _one_of(ClusterState)
    verdict = _one_of(EligibilityKind)
    order = _order(ORDERS, "name")


class PlacementQuery(PageQuery):
    """What a list of placements is narrowed down to."""

    q = _text(help_text="Part of the name.")
    state = _one_of(PlacementState)
    type = _one_of(PlacementType)
    semantics = _one_of(Semantics)
    cluster = _text(help_text="A cluster that they are placed on.")
    order = _order(PLACEMENT_ORDERS, "name")


class ResourceQuery(PageQuery):
    """What a list of resources is narrowed down to."""

    kind = _text()
    namespace = _text()
    q = _text(help_text="Part of the name.")
    order = _order(RESOURCE_ORDERS, "name")


class DecisionQuery(PageQuery):
    """What a list of decisions is narrowed down to."""

    placement = _text()


class EventQuery(PageQuery):
    """What a list of events is narrowed down to."""

    kind = _text(help_text="`cluster`, `placement` or `resource`.")
    name = _text()
    q = _text(help_text="A part of the name.")
    by = _text(help_text="A part of a user's name, or of `system`.")


class OutcomeQuery(serializers.Serializer[object]):
    """What a list of outcomes is narrowed down to."""

    outcome = _one_of(Outcome)
    after = _text(help_text="The name of the last cluster of the page before.")
    limit = serializers.IntegerField(required=False, default=100, min_value=1, max_value=500)


class CandidateQuery(serializers.Serializer[object]):
    """How many candidates of a round."""

    limit = serializers.IntegerField(required=False, default=100, min_value=1, max_value=500)


class PartQuery(serializers.Serializer[object]):
    """Which part of a large resource snapshot."""

    part = serializers.IntegerField(required=False, default=0, min_value=0, max_value=10**6)


class StagedRunQuery(PageQuery):
    """What a list of staged runs is narrowed down to."""

    placement = _text(help_text="The name of the placement.")
    active = serializers.BooleanField(required=False, default=None, allow_null=True)
