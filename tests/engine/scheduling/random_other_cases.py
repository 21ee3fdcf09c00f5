"""Random cases of `ocm` and `kubernetes` for Hypothesis, in the form of the conformance files."""

from typing import Any

from hypothesis import strategies as st

from tests.builders import (
    Document,
    expression,
    labelled,
    prefer,
    sorted_by,
    spread,
    tolerate,
)
from tests.engine.scheduling.random_cases import GONE

NAMES = [f"c{index:02}" for index in range(11)]
KEYS = {"region": ["east", "west"], "zone": ["z1", "z2", "z3"], "rack": ["r1", "r2"]}
"""Every key is there as a label and, with values of its own, as a claim."""

_keys = st.sampled_from([list(KEYS)] * 7 + [["nowhere", *KEYS]]).flatmap(
    st.permutations
)
_TERMS = [
    labelled(region="east"),
    expression("zone", "NotIn", "z1"),
    expression("rack", "Exists"),
    {},
]
_CLAIM = {
    "claimSelector": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
}
_PREFERENCES = [
    labelled(region="east"),
    expression("zone", "In", "z1", "z2"),
    sorted_by("cpu"),
]
_preferred = st.builds(prefer, st.integers(-100, 100), st.sampled_from(_PREFERENCES))
_scores = st.none() | st.integers(-2, 100)
_level_scores = _scores | st.lists(st.integers(-3, 0), max_size=2)
_kinds = st.sampled_from([None] * 24 + ["leaving", "unhealthy"])
_taints = st.sampled_from([()] * 16 + [("gpu",), ("gpu", "old")])
_sizes = st.sampled_from([*range(8, len(NAMES) + 1)] * 3 + [*range(8)])
_numbers = st.sampled_from([*range(7, len(NAMES) + 1)] * 3 + [*range(7)])
_lengths = st.sampled_from([1, 1, 1, 2, 2, 2, 3, 0])
_amounts = st.sampled_from([None, "1", "2", "5"])


@st.composite
def _clusters(draw: st.DrawFn) -> list[Document]:
    clusters = []
    for name in NAMES[: draw(_sizes)]:
        kind = draw(_kinds)
        amounts = {resource: draw(_amounts) for resource in ("cpu", "memory")}
        known = {
            resource: amount
            for resource, amount in amounts.items()
            if amount is not None
        }
        clusters.append(
            {
                "name": name,
                "labels": draw(_values()),
                "properties": draw(_values())
                | {key: known[key] for key in known if key == "cpu"},
                "taints": [
                    {"key": key, "value": "", "effect": "NoSchedule"}
                    for key in draw(_taints)
                ],
                "resourceUsage": {
                    "capacity": draw(st.sampled_from([known, {}])),
                    "allocatable": known,
                    "available": {},
                },
                "eligible": {"value": kind is None, "kind": kind, "reason": ""},
            }
        )
    return draw(st.permutations(clusters))


@st.composite
def _values(draw: st.DrawFn) -> dict[str, str]:
    drawn = {
        key: draw(st.sampled_from([*values * 4, None])) for key, values in KEYS.items()
    }
    return {key: value for key, value in drawn.items() if value is not None}


@st.composite
def _bindings(
    draw: st.DrawFn, names: list[str], scores: st.SearchStrategy[Any]
) -> list[Document]:
    return [
        {
            "cluster": name,
            "state": draw(
                st.sampled_from(["Bound", "Bound", "Scheduled", "Unscheduled"])
            ),
            "policy": draw(st.sampled_from(["current", "current", "obsolete"])),
            "previousState": "Bound",
            "topologySpreadScore": draw(scores),
            "affinityScore": draw(_scores),
        }
        for name in draw(
            st.lists(st.sampled_from([*names, GONE]), unique=True, max_size=5)
        )
    ]


@st.composite
def _policy(
    draw: st.DrawFn, constraints: list[Document], terms: list[Document]
) -> Document:
    affinity: Document = {}
    if required := draw(
        st.sampled_from([[]] * 5 + [terms[:1], terms[1:2], terms[1:3], terms[-1:]])
    ):
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "clusterSelectorTerms": required
        }
    preferred = draw(st.lists(_preferred, max_size=2))
    if preferred:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return {
        "placementType": "PickN",
        "numberOfClusters": draw(_numbers),
        "affinity": {"clusterAffinity": affinity},
        "tolerations": draw(
            st.sampled_from([[], [tolerate(key="gpu")], [tolerate(operator="Exists")]])
        ),
        "topologySpreadConstraints": constraints,
    }


@st.composite
def kubernetes_cases(draw: st.DrawFn) -> Any:
    """Draw cases of `kubernetes`: hard and soft constraints with all three fields of its own."""
    clusters = draw(_clusters())
    policies = st.sampled_from([None, "Honor", "Ignore"])
    pairs = [(key, hard) for key in draw(_keys) for hard in (True, False)]
    constraints = []
    for key, hard in draw(st.permutations(pairs))[: draw(_lengths)]:
        more: Document = {
            "nodeAffinityPolicy": draw(policies),
            "nodeTaintsPolicy": draw(policies),
        }
        more["minDomains"] = draw(st.sampled_from([None, 1, 2, 3])) if hard else None
        given = {name: value for name, value in more.items() if value is not None}
        constraints.append({**spread(key, draw(st.integers(1, 3)), hard=hard), **given})
    bindings = draw(_bindings([cluster["name"] for cluster in clusters], _scores))
    policy = draw(_policy(constraints, _TERMS))
    return {
        "semantics": "kubernetes",
        "clusters": clusters,
        "bindings": bindings,
        "policy": policy,
    }


@st.composite
def ocm_cases(draw: st.DrawFn) -> Any:
    """Draw cases of `ocm` with every option."""
    clusters = draw(_clusters())
    names = [cluster["name"] for cluster in clusters]
    kinds = st.sampled_from(["Label", "Label", "Claim"])
    constraints = [
        {
            **spread(key, draw(st.integers(1, 2)), hard=draw(st.booleans())),
            "topologyKeyType": draw(kinds),
        }
        for key in draw(_keys)[: draw(_lengths)]
    ]
    soft = [
        constraint["topologyKey"]
        for constraint in constraints
        if constraint["whenUnsatisfiable"] == "ScheduleAnyway"
    ]
    return {
        "semantics": "ocm",
        "clusters": clusters,
        "bindings": draw(_bindings(names, _level_scores)),
        "policy": draw(_policy(constraints, [*_TERMS, _CLAIM])),
        "ocm": draw(_options(names, soft)),
    }


@st.composite
def _options(draw: st.DrawFn, names: list[str], soft: list[str]) -> Document:
    weights = {key: draw(st.none() | _domain_weights(key)) for key in soft}
    weighs = st.sampled_from([0, 1, 1, 2, -1])
    return {
        "mode": draw(st.sampled_from(["strict", "weighted"])),
        "u": draw(st.sampled_from([0, 0.25, 0.5, 1, 2, 2.5])),
        "nested": draw(st.booleans()),
        "unsetPolicy": draw(st.sampled_from(["bucket", "exclude", "free"])),
        "unsatisfiable": "fewer",
        "steadyWeight": draw(st.sampled_from([0, 100, 100, 33.3, -50])),
        "balance": {
            name: draw(st.integers(0, 4)) for name in names if draw(st.booleans())
        },
        "domainWeights": {
            key: given for key, given in weights.items() if given is not None
        },
        "balanceWeight": draw(weighs),
        "cpuWeight": draw(weighs),
        "memoryWeight": draw(st.sampled_from([0, 0, 1])),
        "affinityTerms": draw(st.just([]) | st.lists(_affinity_term(), max_size=2)),
    }


def _domain_weights(key: str) -> st.SearchStrategy[dict[str, int]]:
    return st.dictionaries(st.sampled_from(KEYS.get(key, ["x"])), st.integers(1, 4))


@st.composite
def _affinity_term(draw: st.DrawFn) -> Document:
    key = draw(st.sampled_from(list(KEYS)))
    rows = []
    for operator in draw(
        st.lists(
            st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
            min_size=1,
            max_size=3,
        )
    ):
        row: Document = {"weight": draw(st.integers(-100, 100)), "operator": operator}
        if operator in ("In", "NotIn"):
            row["values"] = draw(
                st.lists(
                    st.sampled_from(KEYS[key]), min_size=1, max_size=2, unique=True
                )
            )
        rows.append(row)
    return {
        "topologyKey": key,
        "topologyKeyType": draw(st.sampled_from(["Label", "Claim"])),
        "topologyWeights": rows,
    }
