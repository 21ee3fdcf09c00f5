"""Resources and overrides as manifests; applying many documents at once."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.permissions import by_operation
from placements.api.base import (
    BaseViewSet,
    Params,
    Rows,
    actor,
    check_names,
    check_namespace,
    paged_list,
    query_params,
)
from placements.api.checks import FindingSerializer
from placements.api.filters import (
    ApplyQuery,
    DeleteQuery,
    OverrideQuery,
    PutObjectQuery,
    ResourceQuery,
)
from placements.api.manifest_schema import apply_body
from placements.api.parsers import documents_of
from placements.api.preconditions import expected_revision
from placements.api.schema import documented, documented_patch, documented_put
from placements.api.serializers import (
    OVERRIDE_MANIFEST,
    RESOURCE_MANIFEST,
    AppliedDocumentSerializer,
    CamelCaseSerializer,
    DeletedSerializer,
    ObjectChangeSerializer,
    PlacementLossSerializer,
    ResourceSerializer,
    RowSerializer,
)
from placements.explain.checks import finding_document
from placements.models import Override, Resource
from placements.services.apply import apply_documents, preview_documents
from placements.services.filters import resources_matching, with_sizes
from placements.services.overrides.operations import (
    UnknownOverrideError,
    delete_override,
    save_override,
)
from placements.services.overrides.queries import overrides_matching
from placements.services.resources.operations import (
    UnknownResourceError,
    apply_resource,
    delete_resource,
)
from placements.services.teams import of_override, of_resource


class AppliedSerializer(CamelCaseSerializer):
    """The results for all documents, in their order; a dry run adds what would change."""

    items = AppliedDocumentSerializer(many=True)
    changes = ObjectChangeSerializer(many=True, required=False)
    decisions = PlacementLossSerializer(many=True, required=False)
    findings = FindingSerializer(
        many=True,
        required=False,
        help_text="What the checks find in the first 20 placements.",
    )
    not_evaluated = serializers.IntegerField(
        required=False,
        help_text="The number of affected placements beyond the limit of a dry run.",
    )


class ResourceViewSet(BaseViewSet):
    """The resources on the hub; the group is `core` for a resource without one, the namespace `-`."""

    labels_of = staticmethod(of_resource)
    model = Resource
    lookup_path = "<named:group>/<named:kind>/<named:namespace>/<named:name>"

    @staticmethod
    def not_found(
        group: str, kind: str, namespace: str, name: str
    ) -> UnknownResourceError:
        return UnknownResourceError((group, kind, namespace, name))

    def key(self) -> dict[str, str]:
        parts = self.kwargs
        return {
            "group": "" if parts["group"] == "core" else parts["group"],
            "kind": parts["kind"],
            "namespace": "" if parts["namespace"] == "-" else parts["namespace"],
            "name": parts["name"],
        }

    def manifest_and_status(self, row: Resource) -> tuple[Any, None]:
        return row.content, None

    def check_document(self, document: Any) -> None:
        group, kind, namespace, name = self.key().values()
        check_names(
            document,
            {"kind": kind, "metadata.namespace": namespace, "metadata.name": name},
        )
        version = document.get("apiVersion")
        if isinstance(version, str) and version.rpartition("/")[0] != group:
            raise InvalidManifest.of(
                "apiVersion",
                "conflict",
                f"{version[:63]!r} differs from the group in the address",
                group or "no group, such as v1",
            )
        check_namespace(document, namespace)

    @paged_list("list_resources", ResourceSerializer, query=ResourceQuery, unique="id")
    def list(self, params: Params) -> Rows:
        """List resources, without their content."""
        rows = resources_matching(
            kind=params["kind"], namespace=params["namespace"], text=params["q"]
        )
        return with_sizes(rows)

    @documented("get_resource", RESOURCE_MANIFEST, has_tag=True)
    def retrieve(self, request: Request, **key: str) -> Response:
        """Get the manifest of a resource."""
        return self.manifest_response()

    @documented_put("put_resource", RESOURCE_MANIFEST)
    def update(self, request: Request, **key: str) -> Response:
        """Apply a resource; the same again changes nothing."""
        return self.put_manifest(apply_resource)

    @documented("delete_resource", DeletedSerializer, is_edit=True)
    def destroy(self, request: Request, **key: str) -> Response:
        """Delete a resource, a Namespace with everything in it; the response lists what was deleted."""
        group, kind, namespace, name = self.key().values()
        deleted = delete_resource(
            (group, kind, namespace, name),
            **actor(request),
            expected=expected_revision(request),
        )
        return Response({"items": [str(row) for row in deleted]})


class ApplyViewSet(BaseViewSet):
    """Many documents at once."""

    labels_of = staticmethod(by_operation)
    dry_run_action = "create"

    @documented(
        "apply", AppliedSerializer, body=apply_body(), query=ApplyQuery, problems=(409,)
    )
    def create(self, request: Request) -> Response:
        """Apply documents of every kind: documents, a List, or an array of them, at most 50,000.

        Up to 500 are applied all or none. More, and what takes longer than others may wait, are checked first
        and written in batches; a problem that occurs in between has what was written before as `applied`.

        A change that would unschedule a placement everywhere is refused (409) without `confirm`. With
        `dryRun=All` nothing is written: `changes` has the differences, `decisions` the next decisions of the
        affected placements, `findings` what the checks find in the placements of the documents.
        """
        params = query_params(request, ApplyQuery)
        confirmed, strict = "confirm" in params, params.get("strict") == "true"
        documents, how = documents_of(request), actor(request)
        if "dryRun" not in params:
            results = apply_documents(
                documents, **how, confirmed=confirmed, strict=strict
            )
            return Response(AppliedSerializer({"items": results}).data)
        preview = preview_documents(
            documents, **how, confirmed=confirmed, strict=strict
        )
        impact = preview.impact
        applied: dict[str, Any] = {
            "items": preview.results,
            "decisions": impact.rows,
            "not_evaluated": impact.not_evaluated,
        }
        findings = [finding_document(*finding) for finding in preview.findings]
        applied |= {"changes": preview.changes, "findings": findings}
        return Response(AppliedSerializer(applied).data)


class OverrideSerializer(RowSerializer):
    """An override in a list; its manifest has everything else."""

    class Meta:
        model = Override
        fields = (
            "kind",
            "namespace",
            "name",
            "placement",
            "revision",
            "created_at",
            "updated_at",
        )
        extra_kwargs = {
            "namespace": {"help_text": "Empty for an override of clusters."},
            "placement": {
                "source": "placement_name",
                "help_text": "Empty: it applies to every placement.",
            },
        }


class OverrideViewSet(BaseViewSet):
    """All overrides; the namespace is `-` for an override of clusters."""

    labels_of = staticmethod(of_override)
    model = Override
    lookup_path = "<named:kind>/<named:namespace>/<named:name>"
    not_found = UnknownOverrideError

    def key(self) -> dict[str, str]:
        kind, namespace, name = (
            self.kwargs[part] for part in ("kind", "namespace", "name")
        )
        return {
            "kind": kind,
            "namespace": "" if namespace == "-" else namespace,
            "name": name,
        }

    def check_document(self, document: Any) -> None:
        kind, namespace, name = self.key().values()
        check_names(
            document,
            {"kind": kind, "metadata.namespace": namespace, "metadata.name": name},
        )
        check_namespace(document, namespace)

    @paged_list("list_overrides", OverrideSerializer, query=OverrideQuery, unique="id")
    def list(self, params: Params) -> Rows:
        """List overrides."""
        return overrides_matching(text=params["q"], placement=params["placement"])

    @documented("get_override", OVERRIDE_MANIFEST, has_tag=True)
    def retrieve(self, request: Request, **key: str) -> Response:
        """Get the manifest of an override."""
        return self.manifest_response()

    @documented_put("put_override", OVERRIDE_MANIFEST, query=PutObjectQuery)
    def update(self, request: Request, **key: str) -> Response:
        """Create or update an override; it rolls out to the clusters that it applies to."""
        return self.put_manifest(save_override, query=PutObjectQuery)

    @documented_patch("patch_override", OVERRIDE_MANIFEST, query=PutObjectQuery)
    def partial_update(self, request: Request, **key: str) -> Response:
        """Change parts of an override by a merge patch."""
        return self.update(request, **key)

    @documented("delete_override", None, status=204, query=DeleteQuery, is_edit=True)
    def destroy(self, request: Request, **key: str) -> Response:
        """Delete an override; the original resources roll out to its clusters."""
        delete_override(
            *self.key().values(), **actor(request), expected=expected_revision(request)
        )
        return Response(status=204)
