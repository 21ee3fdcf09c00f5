"""Of what the number is composed that ranks a cluster, its spread left aside: in words, with the points."""

from dataclasses import dataclass

from placements.explain.sentences import preference_words
from placements.explain.wording import score_text
from placements.scheduling.candidates import Candidates
from placements.scheduling.decision import Decision
from placements.scheduling.fleet import Fleet
from placements.scheduling.policy import PreferredTerm
from placements.scheduling.preference import Addend, Source
from placements.scheduling.profile import profile_of
from placements.scheduling.scores.preferred import observed_range, term_scores
from placements.scheduling.spread.base import Scores

_OTHERS = {
    Source.STEADY: "Steady: stays where it is placed",
    Source.BALANCE: "Balance: few other placements",
    Source.CPU: "allocatable cpu",
    Source.MEMORY: "allocatable memory",
}


@dataclass(frozen=True)
class Composition:
    """Rows of words and points, and their sum; `noun` says what the sum is, `part` what a row is."""

    noun: str
    part: str
    rows: tuple[tuple[str, float], ...]
    total: float


def composition(decision: Decision, cluster: str) -> Composition:
    """Say what gives a cluster its points. Raises KeyError when the fleet has no such cluster.

    Where more than the preferred terms ranks, all of it is told, but only of a cycle that ranked.
    """
    position, candidates = decision.cycle.fleet.positions[cluster], decision.candidates
    if candidates is None or candidates.preference is candidates.affinity:
        return _of_terms(decision, position)
    rows = tuple(
        (_words(one, decision, candidates, position), _whole(one.points[position].item()))
        for one in profile_of(decision.cycle).preference.addends(decision.cycle, candidates.passes)
    )
    return Composition("preference", "score", rows, _whole(candidates.preference[position].item()))


def _whole(points: float) -> float:
    """Write whole numbers without a fraction."""
    return int(points) if points == int(points) else points


def _of_terms(decision: Decision, position: int) -> Composition:
    fleet, terms = decision.cycle.fleet, decision.cycle.policy.preferred_terms
    rows = tuple((_term(one, fleet), term_scores(one, fleet)[position].item()) for one in terms)
    return Composition("affinity score", "preferred term", rows, sum(points for _, points in rows))


def _words(one: Addend, decision: Decision, candidates: Candidates, position: int) -> str:
    if one.term is not None:
        return _term(one.term, decision.cycle.fleet)
    if one.raw is not None:
        return _stretched(one.raw, candidates, position)
    return f"{_OTHERS[one.source]} (weight {score_text(one.weight)})"


def _term(term: PreferredTerm, fleet: Fleet) -> str:
    words, sorter = preference_words(term), term.preference.property_sorter
    bounds = observed_range(sorter.name, fleet) if sorter else None
    if bounds:
        words += f", seen from {score_text(bounds[0])} to {score_text(bounds[1])}"
    return words


def _stretched(raw: Scores, candidates: Candidates, position: int) -> str:
    """Say what the rows came to before they were stretched over the candidates to −100 to 100."""
    own, among = _signed(raw[position].item()), raw[candidates.passes]
    if not len(among) or among.min() == among.max():
        return f"affinity rows: {own}, as for every candidate"
    return f"affinity rows: {own}; candidates {_signed(among.min().item())} to {_signed(among.max().item())}"


def _signed(points: float) -> str:
    return score_text(points).replace("-", "−")
