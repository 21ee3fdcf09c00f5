"""Actions on many clusters at once, with a preview."""

from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.filters import ClusterFilter, ClusterFilterState, closed_filters
from clusters.fleet import EligibilityKind
from placements.api.base import BaseViewSet, actor, query_params
from placements.api.filters import DryRunQuery
from placements.api.parsers import parse_body
from placements.api.schema import documented
from placements.api.serializers import (
    LABEL_PATCH,
    CamelCaseSerializer,
    PlacementLossSerializer,
    json_field,
)
from placements.services.bulk_changes import (
    BULK_ACTIONS,
    change_clusters,
    preview_change,
    read_options,
    selected_clusters,
)

_MOST_NAMES = 10_000
_LONGEST = 400


class ClusterSelectorSerializer(CamelCaseSerializer):
    """All clusters that match; the values are those of the list of clusters."""

    q = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=_LONGEST
    )
    labels = serializers.ListField(
        child=serializers.CharField(max_length=_LONGEST),
        required=False,
        default=list,
        max_length=20,
    )
    state = serializers.ChoiceField(
        [str(one) for one in ClusterFilterState], required=False
    )
    verdict = serializers.ChoiceField(
        [str(one) for one in EligibilityKind], required=False
    )


class BulkChangeInputSerializer(CamelCaseSerializer):
    """An action on clusters: those in `names`, and all that match `filter`."""

    action = serializers.ChoiceField(list(BULK_ACTIONS))
    names = serializers.ListField(
        child=serializers.CharField(max_length=_LONGEST),
        required=False,
        default=list,
        max_length=_MOST_NAMES,
    )
    filter = ClusterSelectorSerializer(required=False)
    labels = json_field(LABEL_PATCH)(
        required=False,
        default=dict,
        help_text="For `labels`: to set; null removes one.",
    )
    add = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        default=list,
        help_text="For `taints`: to add.",
    )
    remove = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        default=list,
        help_text="For `taints`: to remove.",
    )


class ClusterChangeSerializer(CamelCaseSerializer):
    """What changes on one cluster; empty if nothing."""

    name = serializers.CharField()
    change = serializers.CharField(allow_blank=True)
    conflict = serializers.CharField(
        allow_blank=True, help_text="A reason to check the change first."
    )
    refusal = serializers.CharField(
        allow_blank=True,
        help_text="In a dry run: why the action is not possible on any cluster.",
    )


class BulkChangeSerializer(CamelCaseSerializer):
    """What an action changed on each cluster, or in a dry run what it would change."""

    action = serializers.ChoiceField(list(BULK_ACTIONS))
    request_id = serializers.CharField(
        allow_blank=True, help_text="That of its events."
    )
    clusters = ClusterChangeSerializer(many=True)
    decisions = PlacementLossSerializer(
        many=True,
        help_text="In a dry run: what the next decisions of placements would change.",
    )


class BulkChangeViewSet(BaseViewSet):
    """Actions on many clusters: all or none."""

    dry_run_action = "create"

    @documented(
        "change_clusters",
        BulkChangeSerializer,
        body=BulkChangeInputSerializer,
        query=DryRunQuery,
        problems=(409,),
        is_costly=True,
    )
    def create(self, request: Request) -> Response:
        """Change many clusters, all or none: labels, taints, cordon, drain, or removal from the fleet."""
        params = query_params(request, DryRunQuery)
        fields = parse_body(request, BulkChangeInputSerializer, errors=ValidationError)
        action = BULK_ACTIONS[fields["action"]]
        chosen = fields.get("filter")
        wanted = None
        if chosen is not None:
            wanted = ClusterFilter(
                chosen["q"], tuple(chosen["labels"]), **closed_filters(chosen)
            )
        options = read_options(
            action, {key: fields[key] for key in ("labels", "add", "remove")}
        )
        names = selected_clusters(fields["names"], wanted)
        document: dict[str, Any] = {
            "action": action.name,
            "request_id": "",
            "decisions": (),
        }
        if "dryRun" in params:
            preview = preview_change(action, options, names, now=datetime.now(UTC))
            document |= {"clusters": preview.rows, "decisions": preview.impact.rows}
        else:
            result = change_clusters(action, options, names, **actor(request))
            document |= {"clusters": result.rows, "request_id": result.request_id}
        return Response(BulkChangeSerializer(document).data)
