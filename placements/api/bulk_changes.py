"""Changes of many clusters at once: preview, start, and the result of each cluster."""

from typing import Any

from django.shortcuts import get_object_or_404
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from clusters.filters import ClusterFilter, ClusterFilterState
from placements.api.base import BaseViewSet, actor, query_params
from placements.api.filters import DryRunQuery
from placements.api.parsers import parse_body
from placements.api.schema import documented
from placements.api.serializers import LABEL_PATCH, CamelCaseSerializer, NextDecisionSerializer, json_field
from placements.models import BulkChange
from placements.services.bulk_changes import (
    BulkAction,
    BulkOutcome,
    preview_change,
    read_options,
    results_of,
    selected_clusters,
    start_change,
)

_MOST_NAMES = 10_000
_LONGEST = 400


class ClusterSelectorSerializer(CamelCaseSerializer):
    """All clusters that match; the values are those of the list of clusters."""

    q = serializers.CharField(required=False, default="", allow_blank=True, max_length=_LONGEST)
    labels = serializers.ListField(
        child=serializers.CharField(max_length=_LONGEST), required=False, default=list, max_length=20
    )
    state = serializers.ChoiceField([str(one) for one in ClusterFilterState], required=False)


class BulkChangeInputSerializer(CamelCaseSerializer):
    """An action on clusters: those in `names`, and all that match `filter`."""

    action = serializers.ChoiceField([str(one) for one in BulkAction])
    names = serializers.ListField(
        child=serializers.CharField(max_length=_LONGEST), required=False, default=list, max_length=_MOST_NAMES
    )
    filter = ClusterSelectorSerializer(required=False)
    labels = json_field(LABEL_PATCH)(
        required=False, default=dict, help_text="For `labels`: to set; null removes one."
    )
    add = serializers.ListField(
        child=serializers.DictField(), required=False, default=list, help_text="For `taints`: to add."
    )
    remove = serializers.ListField(
        child=serializers.DictField(), required=False, default=list, help_text="For `taints`: to remove."
    )


class BulkResultSerializer(CamelCaseSerializer):
    """The result of one cluster, with the reason of a failure; in a dry run what would change."""

    name = serializers.CharField()
    outcome = serializers.ChoiceField([str(one) for one in BulkOutcome])
    message = serializers.CharField(allow_blank=True)


class BulkChangeSerializer(CamelCaseSerializer):
    """A change of many clusters and its results until now; without an id it is a dry run."""

    request_id = serializers.CharField(allow_blank=True)
    action = serializers.ChoiceField([str(one) for one in BulkAction])
    total = serializers.IntegerField(help_text="Selected clusters.")
    ended_at = serializers.DateTimeField(allow_null=True)
    results = BulkResultSerializer(many=True)
    placements = serializers.ListField(
        child=serializers.CharField(), help_text="In a dry run: the placements that would change."
    )
    decisions = NextDecisionSerializer(
        many=True, help_text="In a dry run: what the next decisions of these placements would change."
    )


class BulkChangeViewSet(BaseViewSet):
    """Changes of many clusters; a worker continues those of more than 200."""

    lookup_path = "<named:request_id>"
    dry_run_action = "create"

    @documented(
        "change_clusters",
        BulkChangeSerializer,
        status=201,
        also={200: BulkChangeSerializer},
        body=BulkChangeInputSerializer,
        query=DryRunQuery,
        is_costly=True,
    )
    def create(self, request: Request) -> Response:
        """Change many clusters: labels, taints, cordon, uncordon, drain, or removal from the fleet."""
        params = query_params(request, DryRunQuery)
        fields = parse_body(request, BulkChangeInputSerializer, errors=ValidationError)
        action, chosen = BulkAction(fields["action"]), fields.get("filter")
        wanted = None
        if chosen is not None:
            state = ClusterFilterState(chosen["state"]) if "state" in chosen else None
            wanted = ClusterFilter(chosen["q"], tuple(chosen["labels"]), state)
        options = read_options(action, {key: fields[key] for key in ("labels", "add", "remove")})
        names = selected_clusters(fields["names"], wanted)
        if "dryRun" in params:
            preview = preview_change(action, options, names)
            results = [
                {
                    "name": row.name,
                    "outcome": BulkOutcome.DONE if row.change else BulkOutcome.UNCHANGED,
                    "message": row.conflict or row.change,
                }
                for row in preview.rows
            ]
            changed = [row.placement for row in preview.impact.rows]
            document: dict[str, Any] = {
                "request_id": "",
                "action": action,
                "ended_at": None,
                "results": results,
            }
            decisions = preview.impact.rows
            document |= {"total": len(names), "placements": changed, "decisions": decisions}
            return Response(BulkChangeSerializer(document).data)
        row = start_change(action, options, names, **actor(request))
        location = reverse("api:cluster-change", args=[row.request_id], request=request)
        return Response(_document(row), status=201, headers={"Location": location})

    @documented("get_cluster_change", BulkChangeSerializer)
    def retrieve(self, request: Request, request_id: str) -> Response:
        """Get a change of many clusters with its results until now."""
        return Response(_document(get_object_or_404(BulkChange, request_id=request_id)))


def _document(row: BulkChange) -> Any:
    values = {"request_id": row.request_id, "action": row.action, "total": len(row.names)}
    values |= {"ended_at": row.ended_at, "results": results_of(row), "placements": [], "decisions": []}
    return BulkChangeSerializer(values).data
