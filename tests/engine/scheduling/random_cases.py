"""Random cases for Hypothesis, in the form of the conformance files: small fleets, few label values."""

from typing import Any

from hypothesis import strategies as st

from tests.builders import (
    Document,
    expression,
    labelled,
    measured,
    prefer,
    sorted_by,
    spread,
    tolerate,
)

NAMES = [f"c{index:02}" for index in range(14)]
LABELS = {
    "region": ["east", "west", "north"],
    "zone": ["z1", "z2"],
    "env": ["prod", "test"],
    "only": ["one"],
}
GONE = "gone"
MALFORMED = "lots"

_KINDS = ["leaving", "noAgent", "staleHeartbeat", "notJoined", "noHealth", "unhealthy"]
_QUANTITIES = ["0", "500m", "1", "1500m", "2", "3", "1Ki"]
_TERMS = [
    labelled(env="prod"),
    labelled(region="east", env="prod"),
    expression("region", "In", "east", "west"),
    expression("zone", "NotIn", "z1"),
    expression("zone", "Exists"),
    expression("env", "DoesNotExist"),
    {**labelled(region="east"), **measured("cpu", "Gt", "1")},
    measured("cpu", "Ge", "1"),
    measured("cpu", "Ne", "2"),
    {},
]
_PREFERENCES = [
    {},
    labelled(env="prod"),
    expression("region", "NotIn", "east"),
    sorted_by("cpu"),
    sorted_by("cpu", "Ascending"),
    {**labelled(region="east"), **sorted_by("cpu")},
]
_TOLERATIONS = [
    tolerate(operator="Exists"),
    tolerate(key="gpu"),
    tolerate(key="gpu", value="a100"),
]

_constraints = st.builds(
    spread, st.sampled_from([*LABELS, "nowhere"]), st.integers(1, 3), hard=st.booleans()
)
_preferred = st.builds(
    prefer, st.sampled_from([0, 1, 5, 20, 100, -10]), st.sampled_from(_PREFERENCES)
)
_scores = st.none() | st.tuples(st.integers(-2, 2), st.integers(-10, 10))
_taints = st.sampled_from([()] * 15 + [("gpu", ""), ("gpu", "a100"), ("old", "")])
_states = st.sampled_from([None] * 24 + _KINDS)
_sizes = st.sampled_from(
    [0, 1, 2, *range(3, len(NAMES) + 1), *range(8, len(NAMES) + 1)]
)


@st.composite
def _clusters(draw: st.DrawFn, *, malformed: bool) -> list[Document]:
    quantities = st.sampled_from(
        [None, *_QUANTITIES, *([MALFORMED] if malformed else [])]
    )
    clusters = []
    for name in NAMES[: draw(_sizes)]:
        labels = {
            key: draw(st.sampled_from([*values * 3, None]))
            for key, values in LABELS.items()
        }
        cpu, taint = draw(quantities), draw(_taints)
        kind = draw(_states)
        clusters.append(
            {
                "name": name,
                "labels": {
                    key: value for key, value in labels.items() if value is not None
                },
                "properties": {} if cpu is None else {"cpu": cpu},
                "taints": [{"key": taint[0], "value": taint[1], "effect": "NoSchedule"}]
                if taint
                else [],
                "eligible": {
                    "value": kind is None,
                    "kind": kind,
                    "reason": f"because of {kind}",
                },
            }
        )
    return draw(st.permutations(clusters))


@st.composite
def _bindings(draw: st.DrawFn, names: list[str]) -> list[Document]:
    bindings = []
    for name in draw(
        st.lists(st.sampled_from([*names, GONE]), unique=True, max_size=5)
    ):
        scores = draw(_scores) or (None, None)
        bindings.append(
            {
                "cluster": name,
                "state": draw(
                    st.sampled_from(["Scheduled", "Bound", "Bound", "Unscheduled"])
                ),
                "policy": draw(st.sampled_from(["current", "obsolete"])),
                "previousState": draw(st.sampled_from(["Scheduled", "Bound"])),
                "topologySpreadScore": scores[0],
                "affinityScore": scores[1],
            }
        )
    return bindings


@st.composite
def _policies(draw: st.DrawFn, types: list[str]) -> Document:
    placement_type = draw(st.sampled_from(types))
    if placement_type == "PickFixed":
        names = st.lists(st.sampled_from([*NAMES, GONE]), unique=True, max_size=6)
        return {"placementType": "PickFixed", "clusterNames": draw(names)}
    affinity: Document = {}
    if required := draw(st.just([]) | st.lists(st.sampled_from(_TERMS), max_size=2)):
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "clusterSelectorTerms": required
        }
    policy: Document = {
        "placementType": placement_type,
        "affinity": {"clusterAffinity": affinity},
    }
    policy["tolerations"] = draw(
        st.lists(st.sampled_from(_TOLERATIONS), unique_by=str, max_size=2)
    )
    if placement_type == "PickN":
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = draw(
            st.lists(_preferred, max_size=3)
        )
        policy["numberOfClusters"] = draw(st.integers(0, len(NAMES)))
        policy["topologySpreadConstraints"] = draw(st.lists(_constraints, max_size=4))
    return policy


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    types: tuple[str, ...] = ("PickN", "PickAll", "PickFixed"),
    malformed: bool = True,
) -> Any:
    """Draw a whole case; without malformed properties where a test wants no cycle to fail."""
    clusters = draw(_clusters(malformed=malformed))
    return {
        "semantics": draw(st.sampled_from(["fleet", "kubefleet"])),
        "clusters": clusters,
        "bindings": draw(_bindings([cluster["name"] for cluster in clusters])),
        "policy": draw(_policies(list(types))),
    }
