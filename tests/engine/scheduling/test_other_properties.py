"""What holds for every cycle of `ocm` and `kubernetes`; `test_others_against_plain.py` has what they pick."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.outcome import Outcomes
from placements.engine.scheduling.record import pack, unpack
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.scheduler import schedule
from tests.builders import cycle_of
from tests.engine.scheduling.partition import check_partition
from tests.engine.scheduling.plain_evaluation import passes_filters
from tests.engine.scheduling.plain_others import UNSET
from tests.engine.scheduling.random_other_cases import kubernetes_cases, ocm_cases

Case = dict[str, Any]
CASES = ocm_cases() | kubernetes_cases()
CONFORMANCE = Path(__file__).parents[2] / "data" / "conformance"


def _picking(case: Case) -> Decision:
    """Schedule a case; drop those in which PickN does not pick."""
    decision = schedule(cycle_of(case))
    assume(decision.kind is CycleKind.PICK)
    return decision


@given(CASES)
def test_pick_all_takes_what_passes_the_filters(case: Case) -> None:
    everything = {**case["policy"], "placementType": "PickAll"}
    for field in ("numberOfClusters", "topologySpreadConstraints"):
        del everything[field]
    everything["affinity"] = {"clusterAffinity": _without_preferences(case)}

    decision = schedule(cycle_of({**case, "policy": everything}))

    fit = {
        cluster["name"]
        for cluster in case["clusters"]
        if passes_filters(cluster, everything)
    }
    assert list(decision.picked_names) == sorted(fit - set(decision.kept))
    assert decision.is_fulfilled


def _without_preferences(case: Case) -> Case:
    affinity = case["policy"]["affinity"]["clusterAffinity"]
    return {key: value for key, value in affinity.items() if key.startswith("required")}


# Determinism and the record


@given(CASES)
def test_the_same_input_gives_the_same_decision_and_the_record_keeps_all_of_it(
    case: Case,
) -> None:
    one, other = schedule(cycle_of(case)), schedule(cycle_of(case))
    again = unpack(pack(one), one.cycle.fleet)

    for decision in (other, again):
        assert (decision.id, decision.picked, decision.bindings_after) == (
            one.id,
            one.picked,
            one.bindings_after,
        )
        assert (decision.kept, decision.unscheduled, decision.kind) == (
            one.kept,
            one.unscheduled,
            one.kind,
        )
        assert list(Replay(decision)) == list(Replay(one))
        assert list(Outcomes(decision)) == list(Outcomes(one))


IN_A_PROCESS = """
import lzma, sys
from pathlib import Path
from placements.services.simulate.cases import answers
for name in sys.argv[1:]:
    for answer in answers(lzma.decompress(Path(name).read_bytes()).splitlines()):
        print(answer)
"""


def test_another_process_with_another_hash_seed_decides_the_same() -> None:
    files = [
        str(CONFORMANCE / f"{name}.jsonl.xz")
        for name in ("ocm-spread", "kubernetes-topology-spread")
    ]
    printed = [
        subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS, *files],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=CONFORMANCE.parents[2],
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]

    assert printed[0]
    assert printed[0] == printed[1]


@given(CASES)
def test_every_round_replays_to_its_pick(case: Case) -> None:
    decision = _picking(case)
    assume(case["policy"]["topologySpreadConstraints"])
    replay = Replay(decision)

    assert [step.winner for step in replay if step.winner] == list(
        decision.picked_names
    )
    for number, picked in enumerate(decision.picked, start=1):
        one = replay.candidate(number, picked.cluster)
        assert (one.rank, one.topology_spread_score) == (
            1,
            picked.topology_spread_score,
        )
        assert (one.affinity_score, one.decided_by) == (picked.affinity_score, None)
        assert replay.verdicts(number, picked.cluster) == one.constraints
        assert not any(verdict.is_forbidden for verdict in one.constraints)
        after = [
            (verdict.skew_after, verdict.max_skew)
            for verdict in one.constraints
            if verdict.is_hard
        ]
        assert all(skew is None or skew <= limit for skew, limit in after)


@given(CASES)
def test_every_cluster_has_exactly_one_outcome_and_one_deciding_reason(
    case: Case,
) -> None:
    decision = schedule(cycle_of(case))

    assert sorted(decision.cycle.fleet.names) == sorted(
        cluster["name"] for cluster in case["clusters"]
    )
    check_partition(decision)


@given(ocm_cases())
def test_ocm_keeps_nothing_and_ends_every_binding_that_is_not_chosen_again(
    case: Case,
) -> None:
    assume(case["policy"]["numberOfClusters"])
    decision = schedule(cycle_of(case))

    active = {
        binding["cluster"]
        for binding in case["bindings"]
        if binding["state"] != "Unscheduled"
    }
    assert decision.kept == ()
    assert set(decision.unscheduled) == active - set(decision.picked_names)


@given(kubernetes_cases())
def test_kubernetes_run_again_on_what_a_cycle_left_changes_nothing(case: Case) -> None:
    first = schedule(cycle_of(case))

    second = schedule(replace(first.cycle, bindings=first.bindings_after))

    assert (second.picked, second.unscheduled) == ((), ())
    assert second.bindings_after == first.bindings_after


@given(ocm_cases())
def test_ocm_run_again_on_a_first_choice_chooses_the_same_in_the_same_order(
    case: Case,
) -> None:
    """Steady gives all of them the same, so none of them loses to another or to one left out."""
    assume(case["ocm"]["steadyWeight"] >= 0)
    first = _picking({**case, "bindings": []})

    second = schedule(replace(first.cycle, bindings=first.bindings_after))

    assert (second.picked, second.unscheduled) == (first.picked, ())
    assert second.bindings_after == first.bindings_after


@given(ocm_cases())
def test_ocm_fails_instead_exactly_where_it_would_publish_fewer(case: Case) -> None:
    fewer = _picking(case)

    error = schedule(
        cycle_of({**case, "ocm": {**case["ocm"], "unsatisfiable": "error"}})
    )

    assert error.is_failed is not fewer.is_fulfilled
    assert error.picked_names == (fewer.picked_names if fewer.is_fulfilled else ())


# Order, prefixes, limits


@given(CASES, st.randoms(use_true_random=False))
def test_the_order_of_the_input_never_matters(case: Case, random: Any) -> None:
    shuffled = _shuffled(case, random)

    one, other = schedule(cycle_of(case)), schedule(cycle_of(shuffled))

    assert one.picked == other.picked
    assert (one.kept, one.unscheduled, one.kind) == (
        other.kept,
        other.unscheduled,
        other.kind,
    )
    assert one.bindings_after == other.bindings_after


@given(CASES)
def test_the_order_of_clusters_and_bindings_does_not_even_change_the_id(
    case: Case,
) -> None:
    backwards = {
        **case,
        "clusters": case["clusters"][::-1],
        "bindings": case["bindings"][::-1],
    }

    one, other = schedule(cycle_of(case)), schedule(cycle_of(backwards))

    assert (one.id, one.picked) == (other.id, other.picked)
    assert list(Outcomes(one)) == list(Outcomes(other))


def _shuffled(case: Case, random: Any) -> Case:
    """Shuffle all lists whose order means nothing; that of Even terms does, under `ocm`."""

    def mixed(values: list[Any]) -> list[Any]:
        return list(random.sample(values, len(values)))

    policy = dict(case["policy"])
    affinity = {
        key: _mixed_terms(terms, mixed)
        for key, terms in policy["affinity"]["clusterAffinity"].items()
    }
    policy |= {
        "affinity": {"clusterAffinity": affinity},
        "tolerations": mixed(policy["tolerations"]),
    }
    found = {
        **case,
        "clusters": mixed(case["clusters"]),
        "bindings": mixed(case["bindings"]),
    }
    if case["semantics"] == "kubernetes":
        policy["topologySpreadConstraints"] = mixed(policy["topologySpreadConstraints"])
        return {**found, "policy": policy}
    terms = [
        {**term, "topologyWeights": mixed(term["topologyWeights"])}
        for term in mixed(case["ocm"]["affinityTerms"])
    ]
    return {**found, "policy": policy, "ocm": {**case["ocm"], "affinityTerms": terms}}


def _mixed_terms(terms: Any, mixed: Any) -> Any:
    if isinstance(terms, Mapping):
        return {"clusterSelectorTerms": mixed(terms["clusterSelectorTerms"])}
    return mixed(terms)


@given(CASES)
def test_picks_for_n_are_a_prefix_of_picks_for_one_more(case: Case) -> None:
    fewer = _picking(case)
    number = fewer.cycle.policy.number_of_clusters or 0

    policy = fewer.cycle.policy.model_copy(update={"number_of_clusters": number + 1})
    more = schedule(replace(fewer.cycle, policy=policy))

    assert more.picked[: len(fewer.picked)] == fewer.picked
    assert len(more.picked) <= len(fewer.picked) + 1


@given(ocm_cases())
def test_no_pick_of_ocm_is_too_far_above_its_emptiest_sibling(case: Case) -> None:
    decision = _picking(case)
    constraints = case["policy"]["topologySpreadConstraints"]

    for index, constraint in enumerate(constraints):
        if constraint["whenUnsatisfiable"] == "DoNotSchedule":
            domains = _domains(case, constraints[: index + 1])
            _check_limit(decision.picked_names, domains, constraint["maxSkew"])


def _domains(case: Case, constraints: list[Case]) -> dict[str, tuple[str, str | None]]:
    """Return the group above and the own group of every candidate; None is outside the spread."""
    options, own = case["ocm"], constraints[-1]
    found = {}
    for cluster in case["clusters"]:
        values = [
            _at(cluster, constraint)
            for constraint in case["policy"]["topologySpreadConstraints"]
        ]
        is_excluded = options["unsetPolicy"] == "exclude" and None in values
        if passes_filters(cluster, case["policy"]) and not is_excluded:
            above = (
                "/".join(
                    _at(cluster, constraint) or UNSET for constraint in constraints[:-1]
                )
                if options["nested"]
                else ""
            )
            value = _at(cluster, own)
            found[cluster["name"]] = (
                above,
                value if options["unsetPolicy"] == "free" else value or UNSET,
            )
    return found


def _at(cluster: Case, constraint: Case) -> str | None:
    place = "properties" if constraint["topologyKeyType"] == "Claim" else "labels"
    value: str | None = cluster[place].get(constraint["topologyKey"])
    return value


def _check_limit(
    picked: tuple[str, ...],
    domains: Mapping[str, tuple[str, str | None]],
    max_skew: int,
) -> None:
    for number, name in enumerate(picked, start=1):
        above, own = domains[name]
        siblings = {
            domain: 0
            for domain in domains.values()
            if domain[0] == above and domain[1] is not None
        }
        for before in picked[: number - 1]:
            if domains[before] in siblings:
                siblings[domains[before]] += 1
        if own is not None:
            assert siblings[above, own] + 1 - min(siblings.values()) <= max_skew


@given(kubernetes_cases())
def test_no_pick_of_kubernetes_is_too_far_above_the_emptiest_group_that_counts(
    case: Case,
) -> None:
    """Counted here over all clusters with the hard keys that affinity admits; Honor is left out."""
    decision = _picking(case)
    hard = [
        constraint
        for constraint in case["policy"]["topologySpreadConstraints"]
        if constraint["whenUnsatisfiable"] == "DoNotSchedule"
    ]
    keys = [one["topologyKey"] for one in hard]
    labels = {cluster["name"]: cluster["labels"] for cluster in case["clusters"]}

    assert all(key in labels[name] for name in decision.picked_names for key in keys)
    for constraint in hard:
        if constraint.get("nodeTaintsPolicy") != "Honor":
            counted = {
                name for name in labels if all(key in labels[name] for key in keys)
            }
            if constraint.get("nodeAffinityPolicy") != "Ignore":
                counted &= _admitted(case)
            values = {name: labels[name][constraint["topologyKey"]] for name in counted}
            _check_kubernetes(decision, constraint, values)


def _admitted(case: Case) -> set[str]:
    terms = {"affinity": case["policy"]["affinity"]}
    return {
        cluster["name"]
        for cluster in case["clusters"]
        if passes_filters(
            {"labels": cluster["labels"], "properties": cluster["properties"]}, terms
        )
    }


def _check_kubernetes(
    decision: Decision, constraint: Case, values: Mapping[str, str]
) -> None:
    counts = dict.fromkeys(values.values(), 0)
    for name in decision.kept:
        if name in values:
            counts[values[name]] += 1
    for name in decision.picked_names:
        enough = len(counts) >= constraint.get("minDomains", 1)
        smallest = min(counts.values()) if enough else 0
        counts[values[name]] += 1
        assert counts[values[name]] - smallest <= constraint["maxSkew"]
