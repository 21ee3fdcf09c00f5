"""Query parameters of the operations: what they accept, and how the schema describes them."""

from typing import Any

from rest_framework import serializers

from clusters.filters import ORDERS, ClusterFilterState
from clusters.fleet import EligibilityKind
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.outcome import Outcome
from placements.manifests.policy import PlacementType
from placements.models import Rollout
from placements.services.filters import PLACEMENT_ORDERS, PlacementFilterState
from placements.services.placements import CONFIRMATION
from placements.services.what_if.queries import PlacementImpact, Variant

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
    """An operation without parameters."""


class ConfirmQuery(serializers.Serializer[object]):
    """The confirmation of a change that unschedules everything."""

    confirm = serializers.ChoiceField(
        [CONFIRMATION],
        required=False,
        help_text="Required after a 409 `confirmation-needed`: the change unschedules everything.",
    )


class PageQuery(serializers.Serializer[object]):
    """A page of a list."""

    after = serializers.CharField(
        required=False, max_length=_LONGEST_CURSOR, help_text="The end of the previous page, from its `next`."
    )
    limit = serializers.IntegerField(required=False, default=100, min_value=1, max_value=500)


class NumberedPageQuery(serializers.Serializer[object]):
    """A page of a numbered list."""

    after = serializers.IntegerField(required=False, default=0, min_value=0, max_value=10**9)
    limit = serializers.IntegerField(required=False, default=20, min_value=1, max_value=100)


class ClusterQuery(PageQuery):
    """Filters of clusters."""

    q = _text(help_text="Part of the name.")
    label = serializers.ListField(  # type: ignore[assignment]  # of this name the base class has a caption
        child=serializers.CharField(max_length=_LONGEST),
        required=False,
        default=list,
        max_length=20,
        help_text="`key:value`, or `key` for any value; all of them have to match.",
    )
    state = _one_of(ClusterFilterState)
    verdict = _one_of(EligibilityKind)
    order = _order(ORDERS, "name")


class PlacementQuery(PageQuery):
    """Filters of placements."""

    q = _text(help_text="Part of the name.")
    state = _one_of(PlacementFilterState)
    type = _one_of(PlacementType)
    semantics = _one_of(Semantics)
    cluster = _text(help_text="A cluster that has the placement.")
    order = _order(PLACEMENT_ORDERS, "name")


class ResourceQuery(PageQuery):
    """Filters of resources."""

    kind = _text()
    namespace = _text()
    q = _text(help_text="Part of the name.")
    order = _order(RESOURCE_ORDERS, "name")


class DecisionQuery(PageQuery):
    """Filters of decisions."""

    placement = _text()


class EventQuery(PageQuery):
    """Filters of events."""

    kind = _text(help_text="`cluster`, `placement` or `resource`.")
    name = _text()
    q = _text(help_text="Part of the name.")
    by = _text(help_text="Part of the name of a user, or of `system`.")


class OutcomeQuery(serializers.Serializer[object]):
    """Filters of outcomes."""

    outcome = _one_of(Outcome)
    after = _text(help_text="The name of the last cluster of the previous page.")
    limit = serializers.IntegerField(required=False, default=100, min_value=1, max_value=500)


class CandidateQuery(serializers.Serializer[object]):
    """The number of candidates of a round."""

    limit = serializers.IntegerField(required=False, default=100, min_value=1, max_value=500)


class PartQuery(serializers.Serializer[object]):
    """A part of a large resource snapshot."""

    part = serializers.IntegerField(required=False, default=0, min_value=0, max_value=10**6)


class StagedRunQuery(PageQuery):
    """Filters of staged update runs."""

    placement = _text(help_text="The name of the placement.")
    active = serializers.BooleanField(required=False, default=None, allow_null=True)


class RolloutQuery(PageQuery):
    """Filters of rollouts."""

    placement = _text()
    state = _one_of(Rollout.State)


class SearchQuery(serializers.Serializer[object]):
    """The text of a search."""

    q = serializers.CharField(required=False, default="", allow_blank=True, max_length=_LONGEST)


class ScenarioPlacementQuery(PageQuery):
    """Filters of the placements of a what-if analysis."""

    variant = serializers.ChoiceField(Variant.values, required=False, default=str(Variant.LEAVE))
    fate = _one_of(PlacementImpact)
