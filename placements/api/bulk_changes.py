"""Many clusters at once: actions with a preview, and the import of a file."""

from datetime import UTC, datetime
from typing import Any

from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.filters import ClusterFilter, ClusterFilterState, closed_filters
from clusters.fleet import EligibilityKind
from clusters.importing import ImportChoices
from clusters.operations.importing import import_members, preview_import
from clusters.operations.join import JoinOutcome, JoinResult
from clusters.queries import cluster_of
from fleetui.apimachinery.errors import ManifestWarning
from fleetui.permissions import may_administer_clusters, may_operate
from placements.api.base import BaseViewSet, UserPermission, actor, query_params
from placements.api.filters import DryRunQuery, ImportQuery
from placements.api.parsers import FileParser, document_of, parse_body
from placements.api.schema import documented
from placements.api.serializers import (
    LABEL_PATCH,
    CamelCaseSerializer,
    PlacementLossSerializer,
    fields_of,
    json_field,
    names,
)
from placements.services.bulk_changes import (
    BULK_ACTIONS,
    ClusterChange,
    change_clusters,
    preview_change,
    read_options,
    selected_clusters,
)
from placements.services.cluster_imports import read_import
from placements.services.filters import kinds_for
from placements.services.loss.evaluation import impact_of

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
        [str(cluster_filter_state) for cluster_filter_state in ClusterFilterState],
        required=False,
    )
    verdict = serializers.ChoiceField(
        [str(kind) for kind in EligibilityKind], required=False
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


@fields_of(
    ClusterChange,
    conflict="A reason to check the change first.",
    refusal="In a dry run: why the action is not possible on any cluster.",
)
class ClusterChangeSerializer(CamelCaseSerializer):
    """What changes on one cluster; empty if nothing."""


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


@fields_of(
    JoinResult,
    "name",
    "result",
    "detail",
    detail="In a dry run: what changes, and the result of the check of its connection.",
)
class ImportedClusterSerializer(CamelCaseSerializer):
    """What an import did with one cluster, or in a dry run what it would do."""


@fields_of(ManifestWarning, "code", "path", "message", "clusters", within="warning")
class ImportNoteSerializer(CamelCaseSerializer):
    """What was not used of the file, or not as it was written."""

    clusters = names(source="names")


class ClusterImportSerializer(CamelCaseSerializer):
    """The results for all clusters of a file, and the notes."""

    items = ImportedClusterSerializer(many=True)
    objects = ImportedClusterSerializer(
        many=True,
        help_text="Sets and bindings of Open Cluster Management, and scores of clusters that are not in the file.",
    )
    notes = ImportNoteSerializer(many=True)
    decisions = PlacementLossSerializer(
        many=True,
        help_text="In a dry run: what the next decisions of placements would change.",
    )


class MayImport(UserPermission):
    """Those who add clusters, with or without a connection; which of them is known by the file."""

    message = "Importing clusters requires the role operator or cluster-administrator."

    @staticmethod
    def is_allowed(user: Any) -> bool:
        return may_operate(user) or may_administer_clusters(user)


class ClusterImportViewSet(BaseViewSet):
    """Clusters from a file: all or none."""

    dry_run_action = "create"
    permission_classes = (MayImport,)
    parser_classes = (FileParser,)

    @documented(
        "import_clusters",
        ClusterImportSerializer,
        body=OpenApiTypes.ANY,
        media_types=("application/yaml", "application/json", "text/csv"),
        query=ImportQuery,
        problems=(409,),
        is_costly=True,
        commands=[{"words": "import_clusters", "message": "", "body": {}}],
    )
    def create(self, request: Request) -> Response:
        """Import the clusters of a file, which is the body, all or none.

        A context of a kubeconfig becomes a cluster with a connection, which is checked before it is saved.
        Where the check fails, the import is refused (409) without `confirm`. With `dryRun=All` nothing is
        written.
        """
        params = query_params(request, ImportQuery)
        choices = ImportChoices.of(params["context"], params["rename"])
        found = read_import(document_of(request).data, name="body", choices=choices)
        how = {**actor(request), "kinds_of": kinds_for}
        decisions: Any = ()
        if "dryRun" in params:
            outcome = preview_import(found, **how)
            changed = [
                row for row in outcome.rows if row.did is not JoinOutcome.UNCHANGED
            ]
            decisions = impact_of([cluster_of(row.row) for row in changed]).rows
        else:
            outcome = import_members(
                found, driver=params.get("driver"), confirmed="confirm" in params, **how
            )
        return Response(
            ClusterImportSerializer(
                {
                    "items": outcome.clusters,
                    "objects": outcome.objects,
                    "notes": found.notes,
                    "decisions": decisions,
                }
            ).data
        )
