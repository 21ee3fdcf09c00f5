"""Overrides and their manifests."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.base import (
    BaseViewSet,
    Params,
    Rows,
    actor,
    check_names,
    check_namespace,
    paged_list,
)
from placements.api.filters import DeleteQuery, OverrideQuery, PutObjectQuery
from placements.api.preconditions import expected_revision
from placements.api.schema import documented, documented_patch, documented_put
from placements.api.serializers import OVERRIDE_MANIFEST, RowSerializer, text
from placements.models import Override
from placements.services.overrides.operations import (
    UnknownOverrideError,
    delete_override,
    save_override,
)
from placements.services.overrides.queries import overrides_matching
from placements.services.teams import of_override


class OverrideSerializer(RowSerializer):
    """An override in a list; its manifest has everything else."""

    placement = text(
        "placement_name", help_text="Empty: it applies to every placement."
    )

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
            "namespace": {"help_text": "Empty for an override of clusters."}
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
