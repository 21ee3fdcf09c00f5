"""A decision as one plain document, for JSON and YAML: the same record that the pages read."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fleetui.apimachinery.errors import ManifestWarning
from fleetui.apimachinery.model import Semantics
from placements.engine.advice.changes import Change
from placements.engine.advice.search import Advice, Suggestion, evaluated_decision
from placements.engine.scheduling.comparison import SemanticsComparison
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import ClusterOutcome, Outcomes
from placements.engine.scheduling.replay import Candidate, Replay, RoundSummary
from placements.explain.advice import change_words
from placements.explain.comparison import difference_sentence, divergences
from placements.explain.decisions import course_sentences
from placements.explain.hub_status import Plain, condition_of
from placements.explain.vocabulary import MEASURES, outcome_sentences

MANY_ROUNDS, MANY_CLUSTERS = 50, 200
# Of a part of a response: counts of domains in rounds, or results of constraints for
# clusters.
MOST_FACTS = 100_000


def decision_document(
    decision: Decision,
    *,
    warnings: Iterable[ManifestWarning] = (),
    step: int | None = None,
    most_facts: int | None = None,
) -> Plain:
    """Return the whole decision; with `step` also the candidates of that round. Raise IndexError.

    A list that would have more than `most_facts` is null, and a warning says so; the round `step` is there in
    any case, without its last candidates and smallest domains if they are too many.
    """
    replay, rounds, domains = (
        Replay(decision),
        decision.number_of_rounds,
        decision.domains_in_round,
    )
    clusters = len(decision.cycle.fleet)
    facts_of_cluster = 1 + len(decision.cycle.policy.topology_spread_constraints)
    left_out = []
    if most_facts is not None and rounds * domains > most_facts:
        left_out.append(
            ManifestWarning(
                "shortened",
                "rounds",
                f"Left out: {rounds:,} rounds with {domains:,} domains each;"
                " request one as step",
            )
        )
    if most_facts is not None and clusters * facts_of_cluster > most_facts:
        left_out.append(
            ManifestWarning("shortened", "outcomes", f"Left out: {clusters:,} outcomes")
        )
    paths = {warning.path for warning in left_out}
    documents = (
        None if "rounds" in paths else [round_document(summary) for summary in replay]
    )
    if step is not None:
        shown = round_document(replay.step(step), most_counts=most_facts)
        most = None if most_facts is None else most_facts // facts_of_cluster
        shown["candidates"] = [
            candidate_document(candidate)
            for candidate in replay.candidates(step, most=most)
        ]
        documents = [
            shown if document["round"] == step else document
            for document in documents or [shown]
        ]
    return {
        **summary_document(decision, warnings=(*warnings, *left_out)),
        "rounds": documents,
        "outcomes": None
        if "outcomes" in paths
        else [outcome_document(outcome) for outcome in Outcomes(decision)],
    }


def bounded_document(
    decision: Decision, *, warnings: Iterable[ManifestWarning] = ()
) -> Plain:
    """Return a decision with the numbers of rounds and clusters, and the lists themselves unless long."""
    rounds, clusters = decision.number_of_rounds, len(decision.cycle.fleet)
    has_rounds = (
        rounds <= MANY_ROUNDS and rounds * decision.domains_in_round <= MOST_FACTS
    )
    return {
        **summary_document(decision, warnings=warnings),
        "numberOfRounds": rounds,
        "numberOfClusters": clusters,
        "rounds": [round_document(summary) for summary in Replay(decision)]
        if has_rounds
        else None,
        "outcomes": [outcome_document(outcome) for outcome in Outcomes(decision)]
        if clusters <= MANY_CLUSTERS
        else None,
    }


def summary_document(
    decision: Decision, *, warnings: Iterable[ManifestWarning] = ()
) -> Plain:
    """Return a decision without what grows with fleet and rounds together."""
    condition = condition_of(decision)
    return {
        "apiVersion": "fleetui.io/v1",
        "kind": "Decision",
        "id": decision.id,
        "semantics": str(decision.cycle.semantics),
        "fulfilled": decision.is_fulfilled,
        "picked": list(decision.picked_names),
        "kept": list(decision.kept),
        "unscheduled": list(decision.unscheduled),
        "notFound": list(decision.not_found),
        "scores": scores_of(decision),
        "condition": None if condition is None else {"type": "Scheduled", **condition},
        "warnings": [
            {"code": warning.code, "path": warning.path, "message": warning.message}
            for warning in warnings
        ],
    }


def scores_of(decision: Decision) -> Plain:
    return {
        picked.cluster: {
            "topologySpreadScore": _plain(picked.topology_spread_score),
            "affinityScore": picked.affinity_score,
        }
        for picked in decision.picked
        if picked.topology_spread_score is not None
    }


def round_document(step: RoundSummary, *, most_counts: int | None = None) -> Plain:
    """Return one round: its groups and skews, the winner, the next best.

    `measures` defines what `skewBefore` and `skewAfter` are: the skew, or the gap to the emptiest group.
    Of more groups than `most_counts` the smallest are left out, and `groupsCount` has their numbers.
    """
    # By its key, and by its place as well where several constraints have one key.
    keys = [spread.topology_key for spread in step.spreads]
    names = [
        f"{key}[{index}]" if keys.count(key) > 1 else key
        for index, key in enumerate(keys)
    ]
    spreads = dict(zip(names, step.spreads, strict=True))
    groups = {name: spread.before for name, spread in spreads.items()}
    totals = {name: len(counts) for name, counts in groups.items()}
    is_shortened = most_counts is not None and sum(totals.values()) > most_counts
    if most_counts is not None and is_shortened:
        most = most_counts // len(groups)
        groups = {
            name: dict(sorted(counts.items(), key=lambda pair: -pair[1])[:most])
            for name, counts in groups.items()
        }
    plain: Plain = {
        "round": step.number,
        "groups": groups,
        **({"groupsCount": totals} if is_shortened else {}),
        "measures": {
            name: MEASURES[spread.limits_skew] for name, spread in spreads.items()
        },
        "skewBefore": {name: spread.skew_before for name, spread in spreads.items()},
        "skewAfter": {name: spread.skew_after for name, spread in spreads.items()},
        "winner": step.winner,
        "runnerUp": step.runner_up,
        "decidedBy": step.decided_by,
    }
    if step.cut is not None:
        plain["cut"] = {
            "picked": step.cut.size,
            "lastIn": step.cut.last_in,
            "firstOut": step.cut.first_out,
            "decidedBy": step.cut.decided_by,
        }
    return plain


def candidate_document(one: Candidate) -> Plain:
    return {
        "cluster": one.cluster,
        "rank": one.rank,
        "topologySpreadScore": _plain(one.topology_spread_score),
        "affinityScore": one.affinity_score,
        "wasHere": one.was_here,
        "decidedBy": one.decided_by,
        "constraints": [verdict.facts for verdict in one.constraints],
        "preferred": list(one.preferred),
        **({"combined": one.combined} if one.combined else {}),
    }


def outcome_document(one: ClusterOutcome) -> Plain:
    return {
        "cluster": one.cluster,
        "outcome": str(one.outcome),
        "round": one.round,
        "stays": one.stays,
        "reasons": [
            {
                "code": str(reason.code),
                "deciding": reason.is_deciding,
                "facts": _plain(reason.facts),
                "words": words,
            }
            for reason, words in zip(one.reasons, outcome_sentences(one), strict=True)
        ],
    }


def _plain(value: Any) -> Any:
    """Turn enums into text and tuples into lists, so that YAML and JSON show the same."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def advice_document(advice: Advice, decision: Decision) -> Plain:
    cluster = advice.outcome.cluster
    return {
        "cluster": cluster,
        "outcome": outcome_document(advice.outcome),
        "course": course_sentences(evaluated_decision(decision, cluster), cluster),
        "isRescheduled": advice.is_rescheduled,
        "wouldHelp": [_suggestion(suggestion) for suggestion in advice.helps],
        "wouldNotHelp": [_suggestion(suggestion) for suggestion in advice.fails],
        "notTried": [_change_document(change) for change in advice.not_tried],
    }


def _suggestion(one: Suggestion) -> Plain:
    return {
        "change": _change_document(one.change),
        "upTo": None if one.furthest is None else _change_document(one.furthest),
        "gains": list(one.gains),
        "losses": list(one.losses),
    }


def _change_document(one: Change) -> Plain:
    return {
        "kind": str(one.kind),
        "facts": _plain(dict(one.facts)),
        "words": change_words(one),
    }


def comparison_document(
    comparison: SemanticsComparison,
    *,
    warnings: Mapping[Semantics, Iterable[ManifestWarning]] | None = None,
    write: Callable[..., Plain] = decision_document,
) -> Plain:
    """Return the decisions under several semantics, each as `write` returns it, and their divergences."""
    difference = comparison.first_difference
    return {
        "semantics": {
            str(semantics): write(
                decision, warnings=(warnings or {}).get(semantics, ())
            )
            for semantics, decision in comparison.decisions.items()
        },
        "sameClusters": comparison.is_same_set,
        "firstDifference": None
        if difference is None
        else {
            "place": difference.place,
            "choices": {
                str(semantics): name for semantics, name in difference.choices.items()
            },
            "because": difference_sentence(comparison),
        },
        "comparedWith": str(comparison.base),
        "partings": [
            {
                "semantics": str(divergence.semantics),
                "place": divergence.place,
                "byName": divergence.is_by_name,
                "words": divergence.words,
            }
            for divergence in divergences(comparison)
        ],
    }
