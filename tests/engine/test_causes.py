"""Root causes: what follows from several of them says so."""

from placements.engine.problems import Noun, ProblemFacts, ProblemLevel, causes_of


def _problem(noun: Noun, name: str, *causes: str) -> ProblemFacts:
    kind = "cluster-workloads" if noun is Noun.CLUSTER else "placement-degraded"
    level, words = ProblemLevel.ATTENTION, "Workloads not available."
    return ProblemFacts(kind, name, noun, name, level, words, "/", causes=causes)


def test_what_follows_from_two_causes_is_not_affected_by_one_alone() -> None:
    problems = [
        _problem(Noun.CLUSTER, "a"),
        _problem(Noun.CLUSTER, "b"),
        _problem(Noun.PLACEMENT, "batch", "a", "b"),
        _problem(Noun.PLACEMENT, "web", "a"),
    ]

    summaries = {cause.name: cause.summary for cause in causes_of(problems)}

    assert summaries == {
        "a": "1 placement affected by this and other causes (batch)"
        " · 1 placement affected by this alone (web)",
        "b": "1 placement affected by this and other causes (batch)",
    }
