"""Each rule of the checks finds what it is about, nothing else, and its fix removes the finding."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given

from clusters.fleet import Cluster, Fleet
from fleetui.apimachinery.model import Semantics, parse_manifest
from placements.engine.checks import examination
from placements.engine.checks.change import GatedChange
from placements.engine.checks.examination import (
    RULES,
    examine_fleet,
    examine_placement,
    rank,
)
from placements.engine.checks.file import Gates
from placements.engine.checks.findings import (
    Case,
    Finding,
    Fix,
    Needs,
    NotCheckedError,
    Rule,
    Severity,
    flat,
    put,
)
from placements.engine.checks.overrides import OverridesOnFleet
from placements.engine.checks.predicates import AssertionResult, AssertionState
from placements.engine.exact.moves import MovePlan, plan_moves
from placements.engine.overlaps import Overlap
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.assertions import Assertion
from placements.manifests.override import parse_override
from placements.manifests.policy import PlacementPolicy, parse_policy
from placements.manifests.strategy import RollingUpdate
from tests.builders import (
    cluster,
    cycle_of,
    expression,
    fleet,
    labelled,
    pick_all,
    pick_fixed,
    pick_n,
    prefer,
    sorted_by,
    spread,
    taint,
    tolerate,
)
from tests.effort import examples
from tests.engine.exact.random_problems import dead_end
from tests.engine.scheduling.random_cases import cases


def _many(count: int, prefix: str = "c", **labels: str) -> list[Cluster]:
    return [cluster(f"{prefix}{number:03}", labels) for number in range(count)]


def _regions(*counts: int, **labels: str) -> list[Cluster]:
    names = ("east", "west", "south", "north")
    return [
        one
        for name, count in zip(names, counts, strict=False)
        for one in _many(count, name, region=name, **labels)
    ]


@dataclass(frozen=True)
class Example:
    """What a rule finds, and what it does not find."""

    found: tuple[Iterable[Cluster], PlacementPolicy]
    not_found: tuple[Iterable[Cluster], PlacementPolicy]
    strategy: dict[str, Any] = field(default_factory=dict)
    quiet_strategy: dict[str, Any] = field(default_factory=dict)
    has_fix: bool = True
    overlaps: tuple[Overlap, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


ALL, TWO = pick_all(), pick_n(2)
EAST, CANARY = labelled(region="east"), labelled(env="canary")
ZONES = [
    one
    for zone, region in (("a", "east"), ("b", "east"), ("c", "west"), ("d", "west"))
    for one in _many(20, zone, zone=zone, region=region)
]
TAINTED = [cluster("gpu", taints=(taint("gpu"),), region="east"), *_regions(2, 2)]
CORDON = [cluster("gone", taints=(taint("cordon"),), region="east"), *_regions(2, 2)]
IN_LOCATIONS = parse_override(
    {
        "apiVersion": "placement.kubernetes-fleet.io/v1",
        "kind": "ResourceOverride",
        "metadata": {"name": "host", "namespace": "shop"},
        "spec": {
            "resourceSelectors": [
                {"group": "", "version": "v1", "kind": "ConfigMap", "name": "settings"}
            ],
            "policy": {
                "overrideRules": [
                    {
                        "clusterSelector": {
                            "clusterSelectorTerms": [expression("location", "Exists")]
                        },
                        "jsonPatchOverrides": [
                            {"op": "add", "path": "/data/host", "value": "x"}
                        ],
                    }
                ]
            },
        },
    }
)
EXAMPLES = {
    "H01": Example(
        ([*_many(97, region="east"), *_many(3, "x", regoin="east")], ALL),
        (
            [*_many(97, region="east"), *_many(3, "x", region="east", regoin="east")],
            ALL,
        ),
    ),
    "H02": Example(
        ([*_many(45, env="prod"), *_many(2, "x", env="Prod")], ALL),
        ([*_many(45, env="prod"), *_many(10, "x", env="Prod")], ALL),
    ),
    "H03": Example(
        (
            [
                *_many(60, env="production"),
                *_many(1, "x", env="prodution"),
                *_many(9, "y", env="dev"),
            ],
            ALL,
        ),
        ([*_many(60, env="eastus1"), *_many(1, "x", env="eastus2")], ALL),
    ),
    "H04": Example(
        ([*ZONES, cluster("odd", zone="a"), cluster("other", zone="c")], ALL),
        ([*_many(80, zone="a"), *_many(20, "x")], ALL),
    ),
    "H07": Example(
        (
            [
                cluster("a", properties={"cpu": "many"}),
                cluster("b", properties={"cpu": "4"}),
            ],
            ALL,
        ),
        (
            [
                cluster("a", properties={"cpu": "500m"}),
                cluster("b", properties={"cpu": "4"}),
            ],
            ALL,
        ),
        has_fix=False,
    ),
    "H06": Example(
        ([*ZONES, cluster("odd", zone="a", region="west")], ALL), (ZONES, ALL)
    ),
    "O01": Example((_many(2), ALL), (_many(2, location="here"), ALL), has_fix=False),
    "S01": Example(
        (_regions(3, 3), pick_n(2, spread=[spread("regoin")])),
        (_regions(3, 3), pick_n(2, spread=[spread("region")])),
    ),
    "S02": Example(
        (_regions(3), pick_n(2, spread=[spread("region")])),
        (_regions(3, 3), pick_n(2, spread=[spread("region")])),
        has_fix=False,
    ),
    "S03": Example(
        (
            [cluster(f"c{at}", host=f"h{at}") for at in range(8)],
            pick_n(2, spread=[spread("host")]),
        ),
        (_regions(2, 2, 2), pick_n(2, spread=[spread("region")])),
        has_fix=False,
    ),
    "S04": Example(
        (
            [*_regions(3, 3), cluster("s", region="south", not_eligible="unhealthy")],
            pick_n(4, spread=[spread("region")]),
        ),
        (_regions(3, 3, 3), pick_n(4, spread=[spread("region")])),
    ),
    "S05": Example(
        (_regions(4, 4), pick_n(6, spread=[spread("region", 9)])),
        (_regions(4, 4), pick_n(6, spread=[spread("region", 2)])),
    ),
    "S06": Example(
        ([*_regions(3, 3), cluster("bare")], pick_n(2, spread=[spread("region")])),
        (_regions(3, 3), pick_n(2, spread=[spread("region")])),
    ),
    "S07": Example(
        (_regions(1, 1), pick_n(2, spread=[spread("region")])),
        (_regions(3, 3), pick_n(2, spread=[spread("region")])),
        has_fix=False,
    ),
    "S08": Example(
        (dead_end().cycle.fleet, dead_end().cycle.policy),
        (_regions(3, 3), pick_n(4, spread=[spread("region")])),
    ),
    "S09": Example(
        (_regions(4, 4, 1), pick_n(7, spread=[spread("region")])),
        (_regions(4, 4, 1), pick_n(5, spread=[spread("region")])),
    ),
    "A01": Example(
        (_regions(3, 3), pick_n(2, required=[labelled(regoin="east")])),
        (_regions(3, 3), pick_n(2, required=[EAST])),
    ),
    "A02": Example(
        (_regions(3, 3), pick_n(2, required=[EAST, labelled(region="east")])),
        (_regions(1, 1), pick_n(2, required=[EAST, labelled(region="west")])),
        has_fix=False,
    ),
    "A03": Example(
        (_regions(3, 3), pick_n(2, prefer=[prefer(10, labelled(region="north"))])),
        (
            _regions(3, 3),
            pick_n(2, prefer=[prefer(10, EAST), prefer(10, labelled(regoin="east"))]),
        ),
        has_fix=False,
    ),
    "A04": Example(
        (_regions(3, 3), pick_n(2, prefer=[prefer(10, labelled(region="west"))])),
        (_regions(3, 3), pick_n(2, prefer=[prefer(10, EAST)])),
        has_fix=False,
    ),
    "A05": Example(
        (_regions(3, 3), pick_n(2, prefer=[prefer(10, EAST)])),
        (_regions(3, 3), pick_n(2, prefer=[prefer(10, EAST)])),
        has_fix=False,
        options={
            "affinityTerms": [
                {
                    "topologyKey": "region",
                    "topologyWeights": [
                        {"weight": 5, "operator": "In", "values": ["east"]}
                    ],
                }
            ]
        },
    ),
    "T01": Example(
        (_regions(3), pick_n(2, tolerations=[tolerate(key="gpu", operator="Exists")])),
        (TAINTED, pick_n(2, tolerations=[tolerate(key="gpu", operator="Exists")])),
        has_fix=False,
    ),
    "T02": Example(
        (CORDON, pick_n(2, tolerations=[tolerate(operator="Exists")])),
        (CORDON, pick_n(2, tolerations=[tolerate(key="gpu", operator="Exists")])),
    ),
    "T03": Example(
        (
            TAINTED,
            pick_n(
                1,
                required=[labelled(region="west")],
                tolerations=[tolerate(key="gpu", operator="Exists")],
            ),
        ),
        (
            TAINTED,
            pick_n(
                3, required=[EAST], tolerations=[tolerate(key="gpu", operator="Exists")]
            ),
        ),
        has_fix=False,
    ),
    "N01": Example((_regions(3), pick_n(5)), (_regions(3), pick_n(2))),
    "N02": Example((_regions(3), pick_n(3)), (_regions(4), pick_n(3))),
    "N04": Example((_regions(1, 4), pick_n(2)), (_regions(1, 1), pick_n(2))),
    "N05": Example(
        (_regions(3), TWO),
        (_regions(3), TWO),
        has_fix=False,
        overlaps=(Overlap("other", (("", "Namespace", "", "shop"),), 2),),
    ),
    "R01": Example(
        (_regions(3), TWO),
        (_regions(3), TWO),
        {"maxUnavailable": 0},
        {"maxUnavailable": 1},
    ),
    "R02": Example(
        (_regions(3), TWO),
        (_regions(3), TWO),
        {"maxUnavailable": "100%"},
        {"maxUnavailable": "50%"},
    ),
    "R03": Example(
        (_many(100), ALL),
        (_many(100), ALL),
        {"maxUnavailable": 1, "unavailablePeriodSeconds": 600},
        {"maxUnavailable": 10, "unavailablePeriodSeconds": 600},
    ),
    "F01": Example(
        (_regions(3), pick_fixed("east00")), (_regions(3), pick_fixed("east000"))
    ),
    "F02": Example(
        (_regions(3, 3), pick_fixed("east000", "east001")),
        (_regions(3, 3), pick_fixed("east000", "west000")),
        has_fix=False,
    ),
}


def _case(
    clusters: Iterable[Cluster], policy: PlacementPolicy, strategy: dict[str, Any]
) -> Case:
    return Case(Cycle(fleet(*clusters), policy), _rolling(strategy), is_timed=True)


def _rolling(plain: dict[str, Any]) -> RollingUpdate:
    return parse_manifest(
        RollingUpdate, plain, semantics=Semantics.FLEET, path="rollingUpdate"
    )


def _check(rule: str, case: Case) -> list[Finding]:
    subject: object = case
    if RULES[rule].needs is Needs.LABELS:
        subject = case.fleet
    elif RULES[rule].needs is Needs.OVERRIDES:
        subject = OverridesOnFleet(case.fleet, [IN_LOCATIONS])
    return list(RULES[rule].check(subject))


def _fixed(case: Case, fix: Fix) -> Case:
    """Apply a fix as a person would."""
    plain = {
        "policy": case.policy.to_plain(),
        "strategy": {
            "rollingUpdate": case.strategy.to_plain() if case.strategy else {}
        },
    }
    for path, value in fix.edits:
        put(plain, path, value)
    labels: dict[str, dict[str, str | None]] = {}
    for name, key, value in fix.labels:
        labels.setdefault(name, {})[key] = value
    clusters = [
        one.with_changes(
            labels={
                key: value
                for key, value in {**one.labels, **labels.get(one.name, {})}.items()
                if value is not None
            }
        )
        for one in case.fleet
    ]
    policy = parse_policy(plain["policy"], semantics=case.cycle.semantics)
    return Case(
        replace(case.cycle, fleet=Fleet(clusters), policy=policy),
        _rolling(plain["strategy"]["rollingUpdate"]),
        is_timed=case.is_timed,
    )


RESULTS = {
    "P01": AssertionResult(
        Assertion("minFree", 1, refuses=True), AssertionState.BROKEN
    ),
    "P02": AssertionResult(
        Assertion("apart", "web", "gold"), AssertionState.UNKNOWN, reason="not found"
    ),
}
HOLDS = AssertionResult(Assertion("minFree", 0), AssertionState.HOLDS)
LIMITS = Gates.model_validate(
    {
        "max-moves-percent": 10,
        "max-leaves": 1,
        "no-new-unfulfilled": True,
        "no-unschedule-everything": True,
    }
)
CHANGES = {
    "G01": (GatedChange(LIMITS, "", 2, 19), GatedChange(LIMITS, "", 2, 20)),
    "G02": (
        GatedChange(LIMITS, "web", 2, 20, 18),
        GatedChange(LIMITS, "web", 1, 20, 19),
    ),
    "G03": (
        GatedChange(LIMITS, "web", 0, 2, 2, becomes_unfulfilled=True),
        GatedChange(LIMITS, "web", 0, 2, 2),
    ),
    "G04": (GatedChange(LIMITS, "web", 1, 1, 0), GatedChange(LIMITS, "web", 0, 0, 0)),
}


def test_every_rule_has_an_example_and_an_id_of_its_own() -> None:
    assert {*EXAMPLES, *RESULTS, *CHANGES} == set(RULES)
    assert len({rule.title for rule in RULES.values()}) == len(RULES)


@pytest.mark.parametrize("rule", EXAMPLES)
def test_a_rule_finds_its_fault_and_the_fix_removes_it(rule: str) -> None:
    example = EXAMPLES[rule]
    case = _case(*example.found, example.strategy)
    case.overlaps = example.overlaps
    if example.options:
        case.cycle = replace(
            case.cycle, semantics=Semantics.OCM, options=example.options
        )

    found = _check(rule, case)

    assert found, "positive example"
    assert all(finding.rule == rule for finding in found)
    assert _check(rule, _case(*example.not_found, example.quiet_strategy)) == [], (
        "negative example"
    )
    fixes = [finding.fix for finding in found if finding.fix]
    assert bool(fixes) == example.has_fix
    if rule == "S08":
        plan = plan_moves(replace(case.cycle, bindings=case.decision.bindings_after))
        assert isinstance(plan, MovePlan)
        assert plan.chosen.placed == case.policy.number_of_clusters
    elif fixes:
        left = _check(rule, _fixed(case, fixes[0]))
        assert len(left) < len(found), fixes[0]


@pytest.mark.parametrize("rule", CHANGES)
def test_a_gate_finds_what_a_change_does_beyond_it(rule: str) -> None:
    beyond, within = CHANGES[rule]
    without = replace(beyond, gates=Gates())

    found = [
        [one.rule for one in RULES[rule].check(change)]
        for change in (beyond, within, without)
    ]

    assert found == [[rule], [], []]


def test_an_assertion_is_a_finding_while_it_is_broken_or_unknown() -> None:
    case = _case(_regions(3, 3), TWO, {})
    case.asserted = (*RESULTS.values(), HOLDS)

    found = [
        (finding.rule, finding.severity, finding.path)
        for finding in examine_placement(case).findings
        if finding.rule[0] == "P"
    ]

    assert found == [
        ("P01", "error", 'metadata.annotations["fleetui.io/assertions"]'),
        ("P02", "info", "metadata.name"),
    ]


def test_a_rollout_of_objects_that_report_their_readiness_has_no_lower_bound() -> None:
    example = EXAMPLES["R03"]
    timed = _case(*example.found, example.strategy)

    assert _check("R03", timed)
    assert _check("R03", replace(timed, is_timed=False)) == []


def test_a_name_that_only_a_preference_has_is_a_warning_with_a_fix_and_the_cause_of_others() -> (
    None
):
    policy = pick_n(
        2, prefer=[prefer(10, labelled(regoin="east")), prefer(10, sorted_by("speed"))]
    )
    case = _case(_regions(3, 3), policy, {})

    findings = examine_placement(case).findings

    assert [
        (finding.rule, finding.severity, finding.code)
        for finding in findings
        if finding.rule[0] == "A"
    ] == [
        ("A01", Severity.WARNING, "unknown-key"),
        ("A01", Severity.WARNING, "unknown-property"),
    ]
    renamed, unknown = findings[:2]
    assert renamed.fix is not None
    assert [
        finding.message for finding in _check("A01", _fixed(case, renamed.fix))
    ] == [unknown.message]


@pytest.mark.parametrize(
    ("semantics", "effect"),
    [
        (Semantics.FLEET, "not limited by the constraint, and often selected first"),
        (Semantics.KUBERNETES, "never selected"),
    ],
)
def test_what_a_missing_key_means_depends_on_the_semantics(
    semantics: Semantics, effect: str
) -> None:
    case = _case(*EXAMPLES["S06"].found, {})
    case.cycle = replace(case.cycle, semantics=semantics)

    [finding] = _check("S06", case)

    assert finding.message == f"1 candidate without region (bare): {effect}."


def test_leaving_a_part_out_equals_two_runs() -> None:
    policy = pick_n(3, spread=[spread("region")], prefer=[prefer(10, EAST)])
    case = _case(_regions(3, 3, 2), policy, {})
    found = {finding.rule for rule in ("S07", "A04") for finding in _check(rule, case)}

    def picks(**fields: Any) -> set[str]:
        return set(schedule(Cycle(case.fleet, pick_n(3, **fields))).picked_names)

    both = set(case.decision.picked_names)
    assert ("S07" in found) == (picks(prefer=[prefer(10, EAST)]) == both)
    assert ("A04" in found) == (picks(spread=[spread("region")]) == both)


def test_domains_and_labels_with_one_cause_are_one_finding() -> None:
    closed = [
        cluster(f"{name}{at}", {"region": name}, not_eligible="unhealthy")
        for name in ("south", "north")
        for at in range(8)
    ]
    bare = [cluster(f"bare{at}", env="prod") for at in range(2)]
    several = [
        *_many(40, region="east", zone="a"),
        *_many(40, "w", region="west", zone="b"),
        *closed,
    ]
    [blocked] = _check("S04", _case(several, pick_n(8, spread=[spread("region")]), {}))
    assert (
        "north, south keep the minimum at 0: no cluster there is a candidate"
        in blocked.message
    )
    assert blocked.evidence == (("region", "north"), ("region", "south"))

    [lacking] = _check("H04", _case([*several[:80], *bare], ALL, {}))
    assert (
        "2 of 82 clusters without the labels region and zone: bare0, bare1."
        in lacking.message
    )
    assert lacking.fix is None  # nothing says in which region they are
    [known] = _check("H04", _case(EXAMPLES["H04"].found[0], ALL, {}))
    assert known.fix
    assert known.fix.labels == (("odd", "region", "east"), ("other", "region", "west"))


@pytest.mark.parametrize("rule", ["S07", "A02", "A04", "T03"])
def test_where_nothing_is_picked_no_part_is_without_effect(rule: str) -> None:
    nowhere = labelled(region="nowhere")
    policy = pick_n(
        2,
        required=[nowhere, labelled(region="elsewhere")],
        prefer=[prefer(10, EAST)],
        spread=[spread("region")],
        tolerations=[tolerate(key="gpu", operator="Exists")],
    )
    assert _check(rule, _case(TAINTED, policy, {})) == []


def test_one_misspelt_value_is_one_finding_with_its_consequences() -> None:
    clusters = [
        *_regions(30, 30),
        cluster("odd", region="East", not_eligible="unhealthy"),
    ]
    policy = pick_n(20, spread=[spread("region")])
    hygiene = examine_fleet(fleet(*clusters)).findings

    found = examine_placement(
        Case(Cycle(fleet(*clusters), policy), RollingUpdate()), hygiene
    ).findings

    [root] = [finding for finding in found if finding.rule == "H02"]
    assert {"S04", "S09"} <= {finding.rule for finding in root.caused}
    assert not {"S04", "S09"} & {finding.rule for finding in found}


def test_a_number_that_is_placed_and_not_possible_again_is_a_warning() -> None:
    case = _case(_regions(4, 4, 1), pick_n(7, spread=[spread("region")]), {})

    [error] = _check("S09", case)
    [warning] = _check("S09", replace(case, placed=7))

    assert (error.severity, warning.severity) == (Severity.ERROR, Severity.WARNING)
    assert warning.message == (
        f"{error.message} All 7 are placed and stay, unless rescheduled."
    )


def test_an_impossible_number_is_fixed_by_a_correction_that_the_scheduler_reaches_or_lowered() -> (
    None
):
    domains = [("r0", "prod", 6), ("r1", "dev", 1), ("r0", "dev", 1), ("r1", "prod", 1)]
    clusters = [
        one
        for at, (region, env, count) in enumerate(domains)
        for one in _many(count, f"d{at}", region=region, env=env)
    ]
    both = _case(clusters, pick_n(9, spread=[spread("region"), spread("env")]), {})
    affinity = _case(
        _regions(4, 4), pick_n(5, required=[EAST], spread=[spread("region")]), {}
    )

    [raised], [lowered] = _check("S09", both), _check("S09", affinity)

    assert (
        "Conflict: env spread (maxSkew 1); region spread (maxSkew 1)." in raised.message
    )
    assert "Conflict: the required affinity." in lowered.message
    assert raised.fix
    assert _fixed(both, raised.fix).decision.is_fulfilled
    assert lowered.fix
    assert _fixed(affinity, lowered.fix).policy.number_of_clusters == 1


def test_a_rule_that_fails_or_is_too_expensive_is_not_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_: Case) -> Iterable[Finding]:
        raise ZeroDivisionError

    def expensive(_: Case) -> Iterable[Finding]:
        raise NotCheckedError

    rules = {
        name: replace(RULES[name], check=check)
        for name, check in (("N01", fails), ("S07", expensive))
    }
    monkeypatch.setattr(examination, "RULES", {**RULES, **rules})

    found = examine_placement(_case(_regions(1, 4), TWO, {}), muted=("N04",))

    assert found.not_checked == ("S07", "N01")
    assert (found.muted, [finding.rule for finding in found.findings]) == (1, [])


def test_without_a_fleet_the_rules_about_the_policy_alone_inform() -> None:
    case = _case(
        [], pick_n(2, tolerations=[tolerate(operator="Exists")]), {"maxUnavailable": 0}
    )

    assert [
        (finding.rule, finding.severity) for finding in examine_placement(case).findings
    ] == [
        ("T02", "info"),
        ("R01", "info"),
    ]


GUARDS = {
    "clusterSelectorTerms",
    "preferredDuringSchedulingIgnoredDuringExecution",
    "tolerations",
    "topologySpreadConstraints",
}


def _edits(findings: Iterable[Finding]) -> list[tuple[Any, Any]]:
    return [
        edit for finding in flat(findings) if finding.fix for edit in finding.fix.edits
    ]


@examples(200)
@given(cases(types=("PickN", "PickAll"), malformed=False))
def test_no_fix_removes_a_guard_and_none_edits_the_policy_while_a_cluster_is_down(
    case: Any,
) -> None:
    cycle = replace(cycle_of(case), bindings=())
    down = any(
        one["eligible"]["kind"] not in (None, "leaving") for one in case["clusters"]
    )

    edits = _edits(examine_placement(Case(cycle, RollingUpdate())).findings)

    assert not any(value is None and path[-2] in GUARDS for path, value in edits)
    assert not (down and any(path[0] == "policy" for path, _ in edits))


def test_a_cluster_that_is_down_takes_the_policy_out_of_the_fixes_and_leaves_the_others() -> (
    None
):
    policy = pick_n(2, spread=[spread("regoin")])
    strategy = _rolling({"maxUnavailable": 0})

    def fixes(*more: Cluster) -> set[str]:
        found = examine_placement(
            Case(Cycle(fleet(*_regions(3, 3), *more), policy), strategy)
        ).findings
        return {finding.fix.words for finding in flat(found) if finding.fix}

    assert {"Use the key region.", "Set maxUnavailable to 25%."} <= fixes()
    assert fixes(cluster("x", region="west", not_eligible="staleHeartbeat")) == {
        "Set maxUnavailable to 25%."
    }
    assert "Use the key region." in fixes(
        cluster("x", region="west", not_eligible="leaving")
    )


def test_ranks_put_the_cause_first() -> None:
    assert sorted(["N01", "S04", "A01", "H02"], key=rank) == [
        "H02",
        "A01",
        "S04",
        "N01",
    ]
    assert isinstance(RULES["H01"], Rule)
    assert [finding.rule for finding in flat([])] == []
