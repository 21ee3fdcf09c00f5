"""The history of a placement, and the comparison of two of its revisions, in REST."""

from dataclasses import asdict

from django.http import Http404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from fleetui.apimachinery.errors import InvalidManifest
from placements.api.base import FullNameViewSet, page_response, query_params
from placements.api.filters import HistoryQuery, NoQuery
from placements.api.schema import operation, page_serializer
from placements.api.serializers import AnyObject, CamelCaseSerializer, fields_of
from placements.explain.decision_diffs import DecisionDiff, GroupCount, Shift
from placements.models import Decision
from placements.services.history.compare import (
    IncomparableRevisionsError,
    RevisionSide,
    UnknownRevisionError,
    compare,
)
from placements.services.history.queries import EntryKind, history_of
from placements.services.results import get_placement


class HistoryEntrySerializer(CamelCaseSerializer):
    """One entry of a history."""

    key = serializers.CharField(
        help_text="Its name in a comparison: `p3`, `s3`, or the id of a decision."
    )
    kind = serializers.ChoiceField([str(entry_kind) for entry_kind in EntryKind])
    number = serializers.IntegerField()
    at = serializers.DateTimeField()
    by = serializers.CharField()
    because = serializers.CharField(
        help_text="The trigger of a decision; otherwise empty."
    )


@fields_of(
    RevisionSide,
    "key",
    "title",
    "at",
    "by",
    "sentence",
    "decision",
    sentence="The policy as a sentence; empty for resources.",
)
class RevisionSideSerializer(CamelCaseSerializer):
    """One side of a comparison."""

    decision = serializers.CharField(
        help_text="The decision of the side; empty without one."
    )


@fields_of(Shift)
class ReasonChangeSerializer(CamelCaseSerializer):
    """A cluster that stays for another reason."""


@fields_of(GroupCount, "key", "group", "before", "after", "clusters")
class DomainChangeSerializer(CamelCaseSerializer):
    """The number of clusters of a domain that have the placement."""

    key = serializers.CharField()
    group = serializers.CharField(
        allow_null=True, help_text="Null: clusters without the label."
    )


@fields_of(DecisionDiff, "joins", "leaves", "stays", "other_reasons", "groups")
class DecisionDiffSerializer(CamelCaseSerializer):
    """The differences of two decisions."""

    other_reasons = ReasonChangeSerializer(many=True)
    groups = DomainChangeSerializer(many=True)


class ResourceChangeSerializer(CamelCaseSerializer):
    """A resource that was added, removed or changed."""

    did = serializers.CharField()
    name = serializers.CharField()


class ManifestPairSerializer(CamelCaseSerializer):
    """Both manifests as they were saved."""

    before = AnyObject(allow_null=True)
    after = AnyObject(allow_null=True)


class RevisionComparisonSerializer(CamelCaseSerializer):
    """Two revisions of a placement side by side; null where one has nothing to compare."""

    before = RevisionSideSerializer()
    after = RevisionSideSerializer()
    manifests = ManifestPairSerializer(allow_null=True)
    decision = DecisionDiffSerializer(allow_null=True)
    resources = ResourceChangeSerializer(many=True, allow_null=True)
    same_resources = serializers.IntegerField()


class HistoryViewSet(FullNameViewSet):
    @operation(
        "get_history", page_serializer(HistoryEntrySerializer), query=HistoryQuery
    )
    def history(self, request: Request, name: str) -> Response:
        """List policies, resources and decisions of a placement, the newest first.

        Decisions that changed no cluster are left out, except the first one.
        """
        params = query_params(request, HistoryQuery)
        page = history_of(
            get_placement(name),
            size=params["limit"],
            after=params.get("after"),
            is_folded=params["unchanged"] != "true",
        )
        items = [
            {
                "key": entry.key,
                "kind": str(entry.kind),
                "number": entry.row.number,
                "at": entry.row.created_at,
                "by": entry.row.triggered_by
                if isinstance(entry.row, Decision)
                else entry.row.created_by,
                "because": getattr(entry.row, "trigger", ""),
            }
            for entry in page.entries
        ]
        return page_response(request, items, page.after)

    @operation(
        "compare",
        RevisionComparisonSerializer,
        problems=(422,),
        is_costly=True,
        path="compare/<decision:before>..<decision:after>",
        query=NoQuery,
    )
    def compare(self, request: Request, name: str, before: str, after: str) -> Response:
        """Compare two snapshots or decisions: `p0..p1`, `s0..s1`, or ids of decisions."""
        try:
            comparison = compare(get_placement(name), before, after)
        except UnknownRevisionError as error:
            raise Http404(str(error)) from error
        except IncomparableRevisionsError as error:
            raise InvalidManifest.of(
                "after", "unlike", str(error), "two of a kind"
            ) from error
        manifests = {
            "before": comparison.before.manifest,
            "after": comparison.after.manifest,
        }
        diff, decision = comparison.decision, None
        if diff:
            decision = {
                "joins": diff.joins,
                "leaves": diff.leaves,
                "stays": diff.stays,
                "other_reasons": diff.shifts,
                "groups": [
                    {"key": group.key, **asdict(row), "group": row.group or None}
                    for group in diff.groups
                    for row in (*group.groups, group.no_label)
                    if row
                ],
            }
        old, new = (
            {
                **vars(side),
                "sentence": side.sentence,
                "decision": side.decision.record.decision_id if side.decision else "",
            }
            for side in comparison.sides
        )
        return Response(
            RevisionComparisonSerializer(
                {
                    **vars(comparison),
                    "before": old,
                    "after": new,
                    "manifests": manifests if comparison.resources is None else None,
                    "decision": decision,
                }
            ).data
        )
