"""Findings of the checks: what is wrong, without effect or risky in policies and labels."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.base import BaseViewSet, MayRead, actor, query_params
from placements.api.filters import ChecksQuery, NoQuery
from placements.api.parsers import parse_body
from placements.api.preconditions import etag_response, expected_revision
from placements.api.schema import documented
from placements.api.serializers import (
    AnyValue,
    CamelCaseSerializer,
    RowSerializer,
    fields_of,
    names,
)
from placements.engine.checks.findings import Finding
from placements.explain.checks import finding_document
from placements.models import StoredChecksFile
from placements.services.assertions import save_checks_file, stored_file
from placements.services.checks import current_report
from placements.services.results import get_placement


class EvidenceSerializer(CamelCaseSerializer):
    """A label, field or cluster that a finding is about."""

    key = serializers.CharField()
    value = serializers.CharField(allow_blank=True)


class FixEditSerializer(CamelCaseSerializer):
    """A field of a placement that a fix sets; null removes it."""

    path = serializers.CharField()
    value = AnyValue(allow_null=True)


class FixLabelSerializer(CamelCaseSerializer):
    """A label of a cluster that a fix sets; null removes it."""

    cluster = serializers.CharField()
    key = serializers.CharField()
    value = serializers.CharField(allow_null=True, allow_blank=True)


class FixSerializer(CamelCaseSerializer):
    """A change that removes a finding."""

    words = serializers.CharField()
    edits = FixEditSerializer(many=True)
    labels = FixLabelSerializer(many=True)


@fields_of(
    Finding,
    "rule",
    "title",
    "severity",
    "placement",
    "path",
    "message",
    "evidence",
    "fix",
)
class CausedFindingSerializer(CamelCaseSerializer):
    """What a rule found."""

    title = serializers.CharField()
    placement = serializers.CharField(
        allow_blank=True, help_text="Empty for a finding about the fleet."
    )
    evidence = EvidenceSerializer(many=True)
    fix = FixSerializer(allow_null=True)


class FindingSerializer(CausedFindingSerializer):
    """What a rule found, with the findings of the same cause."""

    caused = CausedFindingSerializer(many=True)


class ChecksSerializer(CamelCaseSerializer):
    """The findings by cause, of the fleet first."""

    fleet_version = serializers.IntegerField()
    items = FindingSerializer(many=True)
    muted = serializers.IntegerField(help_text="How many findings are muted.")
    not_checked = names(help_text="Rules that could not be checked in time.")


class ChecksViewSet(BaseViewSet):
    permission_classes = (MayRead,)

    @documented(
        "get_check_findings", ChecksSerializer, query=ChecksQuery, is_costly=True
    )
    def retrieve(self, request: Request) -> Response:
        """Examine the labels of the fleet and the policies of all placements."""
        params = query_params(request, ChecksQuery)
        placement, rule = params["placement"], params.get("rule", "")
        report = current_report()
        examined: list[Any] = [report.fleet, *report.placements.values()]
        if placement:
            placement = get_placement(placement).full_name
            examined = (
                [report.placements[placement]] if placement in report.placements else []
            )
        return Response(
            ChecksSerializer(
                {
                    "fleet_version": report.fleet_version,
                    "items": [
                        finding_document(name, finding)
                        for name, finding in report.findings_of(
                            placement, rule, params.get("severity", ""), params["q"]
                        )
                    ],
                    "muted": sum(one.muted for one in examined),
                    "not_checked": sorted(
                        {each for one in examined for each in one.not_checked}
                    ),
                }
            ).data
        )


class ChecksFileInputSerializer(CamelCaseSerializer):
    """The text of `.fleetui.yaml`."""

    text = serializers.CharField(allow_blank=True, trim_whitespace=False)


class ChecksFileSerializer(RowSerializer):
    """The `.fleetui.yaml` of the hub; of revision 0 where it has none."""

    text = serializers.CharField(allow_blank=True)
    updated_at = serializers.DateTimeField(allow_null=True)

    class Meta:
        model = StoredChecksFile
        fields = ("text", "revision", "updated_at")


class ChecksFileViewSet(BaseViewSet):
    """What is asserted of the placements of the hub."""

    @documented("get_checks_file", ChecksFileSerializer, has_tag=True, query=NoQuery)
    def retrieve(self, request: Request) -> Response:
        """Get the `.fleetui.yaml` of the hub."""
        return _answer(request, stored_file())

    @documented(
        "put_checks_file",
        ChecksFileSerializer,
        body=ChecksFileInputSerializer,
        is_edit=True,
        has_tag=True,
        query=NoQuery,
    )
    def update(self, request: Request) -> Response:
        """Replace the `.fleetui.yaml` of the hub; its assertions are checked soon."""
        text = parse_body(request, ChecksFileInputSerializer)["text"]
        return _answer(
            request,
            save_checks_file(
                text, **actor(request), expected=expected_revision(request)
            ),
        )


def _answer(request: Request, row: StoredChecksFile) -> Response:
    return etag_response(request, ChecksFileSerializer(row).data, f'"{row.revision}"')
