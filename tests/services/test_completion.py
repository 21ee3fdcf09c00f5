"""Completion in the YAML of a manifest that is being typed: `|` is the cursor."""

import pytest

from clusters.fleet import Cluster, Fleet
from fleetui.apimachinery.secrets import HubObject
from placements.services.editor.hints import completions, cursor_at

_HEAD = """\
apiVersion: placement.kubernetes-fleet.io/v1
kind: ClusterResourcePlacement
metadata:
  name: web
spec:
"""
_RULE = """\
  policy:
    affinity:
      clusterAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          clusterSelectorTerms:
            - labelSelector:
                matchExpressions:
                - {key}
                  operator: {operator}
                  values: {values}
"""


_SELECTOR = "  resourceSelectors:\n    - kind: {}\n      {}\n"


def _proposals(text: str) -> list[str]:
    fleet = Fleet(
        [
            Cluster("bravelion", {"region": "east"}),
            Cluster("nimblefox", {"region": "west", "env": "prod"}),
        ]
    )
    objects = [
        HubObject("", "v1", "Namespace", "", name, {}, {})
        for name in ("shop", "kube-system")
    ] + [
        HubObject(
            "rbac.authorization.k8s.io", "v1", "ClusterRole", "", "reader", {}, {}
        )
    ]
    before, _, _ = text.partition("|")
    row, column = before.count("\n"), len(before.rpartition("\n")[2])
    cursor = cursor_at(text.replace("|", ""), row, column)
    return [
        completion.value
        for completion in completions(cursor, fleet=fleet, objects=objects)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{_HEAD}  |", ["resourceSelectors:", "policy:", "strategy:", "revisionHistoryLimit: "]),
        (f"{_HEAD}  pol|\n  strategy:\n    type: External\n", ["resourceSelectors:", "policy:"]),
        (f"{_HEAD}  policy:\n    placementType: Pi|", ["PickAll", "PickN", "PickFixed"]),
        (f"{_HEAD}  policy:\n    topologySpreadConstraints:\n    - topologyKey: |", ["region", "env"]),
        (f"{_HEAD}  policy:\n    topologySpreadConstraints:\n      - topologyKey: region\n        |\n",
         ["maxSkew: ", "whenUnsatisfiable: "]),
        (f"{_HEAD}  policy:\n    clusterNames:\n      - b|", ["bravelion", "nimblefox"]),
        (_HEAD + _RULE.format(key="key: |", operator="In", values="[]"), ["region", "env"]),
        (_HEAD + _RULE.format(key="key: region", operator="|", values="[]"), ["In", "NotIn"]),
        (_HEAD + _RULE.format(key="key: region", operator="In", values="[east, |"), ["east", "west"]),
        (_HEAD + _RULE.format(key="key: env", operator="In", values="\n                  - |"), ["prod"]),
        (_HEAD + _SELECTOR.format("|", ""), ["ClusterRole", "Namespace"]),
        (_HEAD + _SELECTOR.format("ClusterRole", "group: |"), ["rbac.authorization.k8s.io"]),
        (_HEAD + _SELECTOR.format("ClusterRole", "name: |"), ["reader"]),
        (_HEAD + _SELECTOR.format("Namespace", "name: |"), ["shop"]),
        (f"{_HEAD}  unknown:\n    |", []),
        ("|", ["apiVersion: ", "kind: ", "metadata:", "spec:"]),
    ],
)  # fmt: skip
def test_proposes_what_is_valid_at_the_cursor(text: str, expected: list[str]) -> None:
    proposals = _proposals(text)

    assert proposals[: len(expected)] == expected
    assert proposals or not expected
