"""Decisions: their records, rounds and outcomes, and advice."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.http import Http404
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from fleetui.apimachinery.model import Semantics
from placements.api.authentication import COMPUTING
from placements.api.base import (
    BaseViewSet,
    MayRead,
    Params,
    Rows,
    next_page,
    page_response,
    paged_list,
    query_params,
)
from placements.api.filters import (
    DecisionQuery,
    LimitQuery,
    NoQuery,
    NumberedPageQuery,
    OutcomeQuery,
)
from placements.api.parsers import parse_body
from placements.api.renderers import CsvRenderer, YamlRenderer
from placements.api.schema import (
    RECORD_PROBLEMS,
    documented,
    operation,
    page_serializer,
)
from placements.api.serializers import (
    AnyObject,
    AnyValue,
    CamelCaseSerializer,
    ConditionField,
    DecisionRowSerializer,
    Numbers,
    Score,
    Texts,
    WarningSerializer,
    enum,
    fields_of,
    json_field,
    map_of,
    names,
)
from placements.engine.advice.search import Suggestion, why_not
from placements.engine.checks.examination import fleet_warnings
from placements.engine.exact.model import STAGES
from placements.engine.exact.record import (
    REQUEST_OPTIONS,
    ExactRecord,
)
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import ClusterOutcome, Outcome, Outcomes
from placements.engine.scheduling.replay import Candidate, Cut, Replay
from placements.engine.scheduling.warnings import decision_warnings
from placements.explain.advice import trap_sentences
from placements.explain.comparison import Divergence
from placements.explain.decision_document import (
    MOST_FACTS,
    advice_document,
    bounded_document,
    candidate_document,
    comparison_document,
    outcome_document,
    round_document,
)
from placements.explain.decision_tables import outcome_csv
from placements.services.decisions.compare_semantics import side_by_side
from placements.services.decisions.exact import (
    LONGEST_SECONDS,
    request_search,
    result_of,
)
from placements.services.decisions.records import (
    UnknownInDecisionError,
    advice_today,
    cycles_of,
    exact_of,
    recorded,
)
from placements.services.decisions.why_not import state_today
from placements.services.filters import decisions_of


class ReasonSerializer(CamelCaseSerializer):
    """One reason for the outcome of a cluster."""

    code = serializers.CharField()
    deciding = serializers.BooleanField()
    facts = AnyObject()
    words = serializers.CharField()


@fields_of(ClusterOutcome, "cluster", "outcome", "round", "stays", "reasons")
class OutcomeSerializer(CamelCaseSerializer):
    """The outcome of a cluster, with its reasons."""

    reasons = ReasonSerializer(many=True)


@fields_of(Cut, "picked", "last_in", "first_out", "decided_by")
class CutSerializer(CamelCaseSerializer):
    """Where a round without constraints stopped: the last cluster that was picked, and the next one."""

    picked = serializers.IntegerField()
    last_in = serializers.CharField(allow_null=True)


@fields_of(
    Candidate,
    decided_by="The score that put the winner before it; null for the winner.",
)
class CandidateSerializer(CamelCaseSerializer):
    """A cluster in a round; without a rank it could not be picked."""

    topology_spread_score = Score()
    constraints = serializers.ListField(
        child=AnyObject(), help_text="The facts of each constraint."
    )
    preferred = serializers.ListField(
        child=serializers.IntegerField(),
        help_text="The preferences that it matches, by index.",
    )
    combined = json_field(map_of({"type": "number"}))(
        required=False,
        help_text="The numbers that rank, where they are made of several scores.",
    )


class RoundSerializer(CamelCaseSerializer):
    """One round: the domains and their skew, the winner and the runner-up."""

    round = serializers.IntegerField()
    groups = json_field(map_of(map_of({"type": "integer"})))(
        help_text="Clusters per domain, by topology key; key[index] where constraints share one."
    )
    groups_count = json_field(map_of({"type": "integer"}))(
        required=False,
        help_text="Domains by key, where `groups` has only those with the most clusters.",
    )
    measures = json_field(map_of({"type": "string", "enum": ["skew", "gap"]}))(
        help_text="What the following two fields measure, by key: skew, or gap to the emptiest domain."
    )
    skew_before = Numbers()
    skew_after = Numbers()
    winner = serializers.CharField(allow_null=True)
    runner_up = serializers.CharField(allow_null=True)
    decided_by = serializers.CharField(allow_null=True)
    cut = CutSerializer(required=False)
    candidates = CandidateSerializer(many=True, required=False)
    candidates_count = serializers.IntegerField(required=False)


_SCORES = {
    "type": "object",
    "properties": {
        "topologySpreadScore": {
            "oneOf": [
                {"type": "number"},
                {"type": "array", "items": {"type": "number"}},
            ]
        },
        "affinityScore": {"type": "number"},
    },
    "required": ["topologySpreadScore", "affinityScore"],
}


class DecisionSerializer(CamelCaseSerializer):
    """The record of a decision; rounds and outcomes of a large one have their own addresses."""

    api_version = serializers.CharField()
    kind = serializers.CharField()
    id = serializers.CharField()
    semantics = enum(Semantics)
    fulfilled = serializers.BooleanField()
    picked = names()
    kept = names()
    unscheduled = names()
    not_found = names()
    scores = json_field(map_of(_SCORES))(
        help_text="Of the clusters selected in this cycle."
    )
    condition = ConditionField(allow_null=True)
    warnings = WarningSerializer(many=True)
    traps = serializers.ListField(child=serializers.CharField(), help_text="Sentences.")
    exact = AnyObject(
        allow_null=True,
        help_text="Exact search of an unfulfilled decision: what is possible, the set, corrections.",
    )
    cycles = DecisionRowSerializer(
        many=True, help_text="The latest cycles with this decision."
    )
    number_of_rounds = serializers.IntegerField()
    number_of_clusters = serializers.IntegerField()
    rounds = RoundSerializer(
        many=True, allow_null=True, help_text="null if there are many."
    )
    outcomes = OutcomeSerializer(
        many=True, allow_null=True, help_text="null if there are many."
    )


class CandidacySerializer(CamelCaseSerializer):
    """One cluster in one round."""

    round = serializers.IntegerField()
    candidate = CandidateSerializer()


class ClusterOutcomeSerializer(OutcomeSerializer):
    """The outcome of a cluster, and the rounds in which it was a candidate."""

    candidacies = CandidacySerializer(many=True)
    next = serializers.URLField(allow_null=True)


class PolicyChangeSerializer(CamelCaseSerializer):
    """A single change of a policy or a cluster."""

    kind = serializers.CharField()
    facts = AnyObject()
    words = serializers.CharField()


@fields_of(Suggestion, "change", "up_to", "gains", "losses")
class SuggestionSerializer(CamelCaseSerializer):
    """A change that was evaluated."""

    change = PolicyChangeSerializer()
    up_to = PolicyChangeSerializer(
        allow_null=True, help_text="The furthest change with the same effect."
    )


class AdviceSerializer(CamelCaseSerializer):
    """Why a cluster was not selected, and which single changes would and would not select it."""

    cluster = serializers.CharField()
    today = serializers.CharField(
        allow_blank=True,
        help_text="Whether the cluster can be selected now and since when; the rest is as of the decision.",
    )
    outcome = OutcomeSerializer()
    course = names(
        help_text="On which scores it lost, and how often a hard limit blocked it."
    )
    is_rescheduled = serializers.BooleanField(
        help_text="The decision evaluated no cluster; the outcome is the one of rescheduling."
    )
    would_help = SuggestionSerializer(many=True)
    would_not_help = SuggestionSerializer(many=True)
    not_tried = PolicyChangeSerializer(many=True)


@fields_of(
    ExactRecord,
    "id",
    "decision",
    "verdict",
    "reason",
    "wanted",
    "most",
    "most_with_moves",
    "picks",
    "sequence",
    "columns",
    "missed",
    "instead_of",
    "order",
    "conflict",
    "corrections",
    "shopping",
    "classes",
    "seconds",
    "nodes",
    "cut_stages",
    reason="Why it is open.",
    most_with_moves="The number that is possible where selected clusters may leave, if more.",
    picks="The best set, without clusters that stay.",
    sequence="An order of it in which every prefix keeps the hard limits.",
    missed="Only in the exact set.",
    instead_of="Only in the greedy set.",
    cut_stages="Stages that a limit cut.",
)
class ExactSerializer(CamelCaseSerializer):
    """The result of an exact search."""

    most = serializers.ListField(
        child=serializers.IntegerField(),
        help_text="The least and the most that may be possible, clusters that stay included.",
    )
    columns = json_field(map_of(map_of({"type": "integer"})))(
        allow_null=True, help_text="What the greedy and the exact set reach."
    )
    conflict = AnyValue(
        help_text="The smallest conflicts: lists of filters and constraints."
    )
    corrections = AnyValue(help_text="Alternatives with which the number is possible.")
    shopping = AnyValue(
        help_text="The fewest clusters whose addition makes the number possible."
    )
    classes = AnyValue(help_text="Clusters that agree in all topology keys.")


class ExactInputSerializer(CamelCaseSerializer):
    """What an exact search computes, and the limit of the solver in seconds."""

    stages = serializers.ListField(
        child=serializers.ChoiceField(STAGES),
        required=False,
        max_length=len(STAGES),
        help_text="Which columns of sets to compare; by default all.",
    )
    limit_seconds = serializers.FloatField(
        required=False, min_value=1, max_value=LONGEST_SECONDS
    )


class SearchStartedSerializer(CamelCaseSerializer):
    """A search in progress; the header Location has the address of its result."""

    id = serializers.CharField()


@fields_of(
    Divergence,
    "semantics",
    "place",
    "by_name",
    "words",
    place="null: the same clusters in the same order.",
)
class DivergenceSerializer(CamelCaseSerializer):
    """The first difference between two scheduling rules, and its reason."""

    semantics = serializers.CharField()
    by_name = serializers.BooleanField(
        help_text="Whether only the order of names differs there."
    )


class ComparisonSerializer(CamelCaseSerializer):
    """The same inputs under several scheduling rules, and their first differences."""

    semantics = AnyObject(
        help_text="Decisions by scheduling rules; rounds and outcomes of large ones are null."
    )
    same_clusters = serializers.BooleanField(help_text="In any order.")
    first_difference = AnyValue(allow_null=True)
    compared_with = serializers.CharField(
        help_text="The scheduling rules of the decision or the document."
    )
    partings = DivergenceSerializer(many=True)
    refused = Texts(
        required=False, help_text="Why some rules cannot be evaluated, by their name."
    )


class ExactViewSet(BaseViewSet):
    """Exact searches that a worker does."""

    permission_classes = (MayRead,)

    @documented(
        "get_exact_search",
        ExactSerializer,
        also={202: SearchStartedSerializer},
        query=NoQuery,
    )
    def retrieve(self, request: Request, name: str) -> Response:
        """Get the result of an exact search."""
        return _search_response(request, name, result_of(name))


def _search_response(
    request: Request, search: str, record: ExactRecord | str | None
) -> Response:
    """Respond with a record, or with the address at which it will be."""
    if isinstance(record, ExactRecord):
        return Response(record.to_plain())
    location = reverse("api:exact-search", args=[search], request=request)
    return Response(
        {"id": search}, status=202, headers={"Location": location, "Retry-After": "1"}
    )


_CYCLES_SHOWN = 20
_of_record = partial(operation, problems=RECORD_PROBLEMS)


class DecisionViewSet(BaseViewSet):
    """All decisions; a prefix of the id is enough."""

    lookup_path = "<decision:decision>"

    @paged_list(
        "list_decisions",
        DecisionRowSerializer,
        query=DecisionQuery,
        order="-id",
        unique="id",
    )
    def list(self, params: Params) -> Rows:
        """List decisions, including those of deleted placements, the newest first."""
        return decisions_of(placement=params["placement"])

    @documented(
        "get_decision",
        DecisionSerializer,
        also={(200, "text/csv"): str},
        problems=RECORD_PROBLEMS,
        is_costly=True,
        query=NoQuery,
    )
    def retrieve(self, request: Request, decision: str) -> Response:
        """Get the record of a decision, or the outcomes of all clusters as CSV."""
        key, value = recorded(decision)
        if request.accepted_renderer.format == CsvRenderer.format:
            return Response(outcome_csv(value))
        warnings, exact = (
            (*fleet_warnings(value.cycle), *decision_warnings(value)),
            exact_of(key),
        )
        return Response(
            {
                **bounded_document(value, warnings=warnings),
                "traps": list(trap_sentences(value, exact=exact)),
                "exact": None if exact is None else exact.to_plain(),
                "cycles": DecisionRowSerializer(
                    cycles_of(key)[:_CYCLES_SHOWN], many=True
                ).data,
            }
        )

    def get_renderers(self) -> Any:
        if self.action == "csv":
            return [CsvRenderer()]
        if self.action in ("retrieve", None):
            return [JSONRenderer(), YamlRenderer(), CsvRenderer()]
        return super().get_renderers()

    @documented(
        "get_decision_csv",
        str,
        status=(200, "text/csv"),
        problems=RECORD_PROBLEMS,
        is_costly=True,
        query=NoQuery,
    )
    def csv(self, request: Request, decision: str) -> Response:
        """Get the outcomes of all clusters as CSV."""
        return Response(outcome_csv(recorded(decision)[1]))

    @_of_record(
        "get_decision_semantics",
        ComparisonSerializer,
        route={"url_name": "decision-semantics"},
        is_costly=True,
        query=NoQuery,
    )
    def semantics(self, request: Request, decision: str) -> Response:
        """Repeat a decision under all scheduling rules, and compare the decisions."""
        sides = side_by_side(recorded(decision)[1], name=decision)
        return Response(
            {
                **comparison_document(
                    sides.comparison, warnings=sides.warnings, write=bounded_document
                ),
                "refused": {
                    str(semantics): why for semantics, why in sides.refused.items()
                },
            }
        )

    @_of_record(
        "search_exactly",
        ExactSerializer,
        method="post",
        route={"permission_classes": (MayRead,)},
        body=ExactInputSerializer,
        also={202: SearchStartedSerializer},
        is_costly=True,
        scopes=COMPUTING,
    )
    def exact(self, request: Request, decision: str) -> Response:
        """Search for the best set of a decision."""
        fields = (
            parse_body(request, ExactInputSerializer, errors=ValidationError)
            if request.data
            else {}
        )
        options = replace(
            REQUEST_OPTIONS,
            stages=tuple(fields.get("stages", ())) or STAGES,
            limit_seconds=fields.get("limit_seconds", REQUEST_OPTIONS.limit_seconds),
        )
        record = request_search(recorded(decision)[1], options, user=request.user.pk)
        return _search_response(
            request, record if isinstance(record, str) else record.id, record
        )

    @_of_record(
        "list_rounds", page_serializer(RoundSerializer), query=NumberedPageQuery
    )
    def rounds(self, request: Request, decision: str) -> Response:
        """List the rounds of a decision, without their candidates; fewer in a page where they are large."""
        params = query_params(request, NumberedPageQuery)
        value = recorded(decision)[1]
        most = max(1, MOST_FACTS // max(1, value.domains_in_round))
        replay, last = Replay(value), params["after"] + min(params["limit"], most)
        numbers = range(params["after"] + 1, min(last, value.number_of_rounds) + 1)
        items = [
            round_document(replay.step(number), most_counts=MOST_FACTS)
            for number in numbers
        ]
        return page_response(
            request, items, last if last < value.number_of_rounds else None
        )

    @_of_record(
        "get_round", RoundSerializer, query=LimitQuery, path="rounds/<number:number>"
    )
    def round(self, request: Request, decision: str, number: int) -> Response:
        """Get a round with its first candidates, ranked, then those that a constraint rules out."""
        limit = query_params(request, LimitQuery)["limit"]
        replay = Replay(recorded(decision)[1])
        try:
            step = replay.step(number)
        except IndexError as error:
            raise Http404 from error
        candidates = [
            candidate_document(candidate)
            for candidate in replay.candidates(number, most=limit)
        ]
        shown = round_document(step, most_counts=MOST_FACTS)
        return Response(
            {
                **shown,
                "candidates": candidates,
                "candidatesCount": step.candidates,
            }
        )

    @_of_record(
        "list_outcomes",
        page_serializer(OutcomeSerializer),
        query=OutcomeQuery,
        path="clusters",
    )
    def outcomes(self, request: Request, decision: str) -> Response:
        """List the outcomes of the clusters, by name."""
        params = query_params(request, OutcomeQuery)
        outcomes = Outcomes(recorded(decision)[1])
        items: list[dict[str, Any]] = []
        for name in sorted(outcomes.cycle.fleet.names):
            if name <= params["after"]:
                continue
            one = outcomes.of(name)
            if one.outcome != params.get("outcome", one.outcome):
                continue
            if len(items) == params["limit"]:
                return page_response(request, items, items[-1]["cluster"])
            items.append(outcome_document(one))
        return page_response(request, items, None)

    @_of_record(
        "get_cluster_outcome",
        ClusterOutcomeSerializer,
        query=NumberedPageQuery,
        path="clusters/<named:name>",
    )
    def outcome(self, request: Request, decision: str, name: str) -> Response:
        """Get the outcome of a cluster with its reasons, and its ranking in the rounds."""
        params = query_params(request, NumberedPageQuery)
        value = _decision_on(decision, name)
        outcome, replay = Outcomes(value).of(name), Replay(value)
        # A selected cluster was a candidate until its round; one that a filter ruled out never was.
        position, candidates = value.cycle.fleet.positions[name], value.candidates
        last = (
            value.number_of_rounds
            if candidates is not None and candidates.passes[position]
            else 0
        )
        if outcome.outcome is Outcome.PICKED:
            last = outcome.round or 0
        end = min(params["after"] + params["limit"], last)
        return Response(
            {
                **outcome_document(outcome),
                "candidacies": [
                    {
                        "round": number,
                        "candidate": candidate_document(replay.candidate(number, name)),
                    }
                    for number in range(params["after"] + 1, end + 1)
                ],
                "next": next_page(request, end) if end < last else None,
            }
        )

    @_of_record(
        "get_cluster_advice",
        AdviceSerializer,
        path="clusters/<named:name>/advice",
        is_costly=True,
        query=NoQuery,
    )
    def advice(self, request: Request, decision: str, name: str) -> Response:
        """Get single changes that would select the cluster; may take seconds on a large fleet."""
        value = _decision_on(decision, name)
        document = advice_document(advice_today(why_not(value, name)), value)
        return Response({**document, "today": _today(decision, name)})


def _decision_on(prefix: str, name: str) -> Decision:
    """Return a decision about a cluster. Raise UnknownInDecisionError."""
    value = recorded(prefix)[1]
    if name not in value.cycle.fleet.positions:
        message = f"the fleet of {value.id} had no cluster named {name[:63]!r}. "
        today = _today(prefix, name, was_in_fleet=False)
        raise UnknownInDecisionError(f"{message}{today}")
    return value


def _today(prefix: str, name: str, *, was_in_fleet: bool = True) -> str:
    row = cycles_of(recorded(prefix)[0]).first()
    if row is None:
        return ""
    return state_today(
        name,
        was_in_fleet=was_in_fleet,
        decided_at=row.created_at,
        now=datetime.now(UTC),
        placement=row.placement,
    )
