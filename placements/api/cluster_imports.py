"""Import of clusters from a file: MemberClusters, inventories of other systems, tables, kubeconfigs."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.importing import ImportChoices
from clusters.operations.importing import import_members, preview_import
from clusters.operations.join import JoinOutcome
from clusters.queries import cluster_of
from fleetui.permissions import may_administer_clusters, may_operate
from placements.api.base import BaseViewSet, UserPermission, actor, query_params
from placements.api.filters import ImportQuery
from placements.api.parsers import FileParser, document_of
from placements.api.schema import documented
from placements.api.serializers import (
    CamelCaseSerializer,
    PlacementLossSerializer,
    names,
)
from placements.services.cluster_imports import read_import
from placements.services.filters import kinds_for
from placements.services.loss.evaluation import impact_of

_TYPES = ("application/yaml", "application/json", "text/csv")


class ImportedClusterSerializer(CamelCaseSerializer):
    """What an import did with one cluster, or in a dry run what it would do."""

    name = serializers.CharField()
    result = serializers.ChoiceField(list(map(str, JoinOutcome)))
    detail = serializers.CharField(
        allow_blank=True,
        help_text="In a dry run: what changes, and the result of the check of its connection.",
    )


class ImportNoteSerializer(CamelCaseSerializer):
    """What was not used of the file, or not as it was written."""

    code = serializers.CharField(source="warning.code")
    path = serializers.CharField(source="warning.path", allow_blank=True)
    message = serializers.CharField(source="warning.message")
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
        media_types=_TYPES,
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
                one for one in outcome.rows if one.did is not JoinOutcome.UNCHANGED
            ]
            decisions = impact_of([cluster_of(one.row) for one in changed]).rows
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
