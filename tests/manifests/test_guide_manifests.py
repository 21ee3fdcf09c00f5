"""The manifests of the three Fleet guides, named after their place, and the two that are misprinted.

The guides leave the resource selectors open (`- ...`); here every placement selects one namespace.
"""

import pytest

from fleetui.apimachinery.yaml import load_documents
from placements.manifests.placement import ClusterResourcePlacement, parse_placement
from placements.manifests.policy import PlacementType
from tests.documents import Document, errors_in, placement

PREFERRED = "spec.policy.affinity.clusterAffinity.preferredDuringSchedulingIgnoredDuringExecution"

POLICIES = {
    "affinity: matchLabels": """
        placementType: PickAll
        affinity:
          clusterAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
              clusterSelectorTerms:
              - labelSelector:
                  matchLabels:
                    system: critical
        """,
    "affinity: matchExpressions": """
        placementType: PickAll
        affinity:
          clusterAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
              clusterSelectorTerms:
              - labelSelector:
                  matchExpressions:
                  - key: system
                    operator: In
                    values:
                    - critical
                    - standard
        """,
    "affinity: matchLabels and matchExpressions": """
        placementType: PickAll
        affinity:
          clusterAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
              clusterSelectorTerms:
              - labelSelector:
                  matchLabels:
                    region: east
                  matchExpressions:
                  - key: system
                    operator: Exists
        """,
    "affinity: several required terms": """
        placementType: PickAll
        affinity:
          clusterAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
              clusterSelectorTerms:
              - labelSelector:
                  matchLabels:
                    region: west
              - labelSelector:
                  matchExpressions:
                  - key: system
                    operator: DoesNotExist
        """,
    "affinity: a preferred term, corrected": """
        placementType: PickN
        numberOfClusters: 10
        affinity:
          clusterAffinity:
            preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 20
              preference:
                labelSelector:
                  matchLabels:
                    region: west
        """,
    "affinity: several preferred terms": """
        placementType: PickN
        numberOfClusters: 10
        affinity:
          clusterAffinity:
            preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 20
              preference:
                labelSelector:
                  matchLabels:
                    region: west
            - weight: -20
              preference:
                labelSelector:
                  matchLabels:
                    environment: prod
        """,
    "affinity: both kinds of terms": """
        placementType: PickN
        numberOfClusters: 10
        affinity:
          clusterAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
              clusterSelectorTerms:
              - labelSelector:
                  matchExpressions:
                  - key: system
                    operator: Exists
            preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 20
              preference:
                labelSelector:
                  matchLabels:
                    region: west
        """,
    "placement: PickFixed": """
        placementType: PickFixed
        clusterNames:
          - bravelion
          - smartfish
        """,
    "placement: PickAll": """
        placementType: PickAll
        affinity:
          clusterAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
              clusterSelectorTerms:
                - labelSelector:
                    matchLabels:
                      system: critical
        """,
    "placement: PickN, corrected": """
        placementType: PickN
        numberOfClusters: 3
        affinity:
          clusterAffinity:
            preferredDuringSchedulingIgnoredDuringExecution:
              - weight: 20
                preference:
                  labelSelector:
                    matchLabels:
                      critical-level: "1"
        """,
    "spread: the constraint": """
        placementType: PickN
        numberOfClusters: 3
        topologySpreadConstraints:
          - maxSkew: 2
            topologyKey: system
            whenUnsatisfiable: DoNotSchedule
        """,
    "spread: the walk-through": """
        placementType: PickN
        numberOfClusters: 2
        topologySpreadConstraints:
          - maxSkew: 1
            topologyKey: region
            whenUnsatisfiable: DoNotSchedule
        """,
    "spread: several constraints": """
        placementType: PickN
        numberOfClusters: 2
        topologySpreadConstraints:
          - maxSkew: 2
            topologyKey: region
            whenUnsatisfiable: DoNotSchedule
          - maxSkew: 3
            topologyKey: environment
            whenUnsatisfiable: ScheduleAnyway
        """,
}

SPECS = {
    "placement: one cluster role": """
        resourceSelectors:
          - group: "rbac.authorization.k8s.io"
            kind: ClusterRole
            version: v1
            name: secretReader
        """,
    "placement: one namespace": """
        resourceSelectors:
          - group: ""
            kind: Namespace
            version: v1
            name: work
        """,
    "placement: namespaces by label": """
        resourceSelectors:
          - group: ""
            kind: Namespace
            version: v1
            labelSelector:
              matchLabels:
                system: critical
        """,
    "placement: all of a kind": """
        resourceSelectors:
          - group: "rbac.authorization.k8s.io"
            kind: ClusterRole
            version: v1
        """,
    "placement: several selectors": """
        resourceSelectors:
          - group: ""
            kind: Namespace
            version: v1
            name: work
          - group: "rbac.authorization.k8s.io"
            kind: ClusterRole
            version: v1
            name: secretReader
        """,
    "placement: rollout strategy": """
        resourceSelectors: [{group: "", kind: Namespace, version: v1, name: work}]
        strategy:
          type: RollingUpdate
          rollingUpdate:
            maxUnavailable: 25%
            maxSurge: 25%
            unavailablePeriodSeconds: 60
        """,
    "placement: revision history": """
        resourceSelectors: [{group: "", kind: Namespace, version: v1, name: work}]
        revisionHistoryLimit: 10
        """,
}


def read(text: str) -> Document:
    (document,) = load_documents(text)
    return dict(document.data)


def with_policy(text: str) -> Document:
    return placement(policy=read(text))


@pytest.mark.nightly
@pytest.mark.parametrize("text", POLICIES.values(), ids=POLICIES.keys())
def test_policies_load(text: str) -> None:
    found = parse_placement(with_policy(text))

    assert isinstance(found, ClusterResourcePlacement)
    assert parse_placement(found.to_manifest()) == found


@pytest.mark.parametrize("text", SPECS.values(), ids=SPECS.keys())
def test_specs_load(text: str) -> None:
    found = parse_placement({**placement(), "spec": read(text)})

    assert found.spec.policy.placement_type is PlacementType.PICK_ALL
    assert parse_placement(found.to_manifest()) == found


def test_labels_indented_too_little_are_unknown_fields() -> None:
    misprinted = POLICIES["affinity: a preferred term, corrected"].replace(
        "    region", "  region"
    )

    assert errors_in(parse_placement, with_policy(misprinted)) == [
        (f"{PREFERRED}[0].preference.labelSelector.region", "unknown-field")
    ]


def test_a_preference_as_a_list_with_a_number_as_a_label_has_both_faults() -> None:
    misprinted = POLICIES["placement: PickN, corrected"].replace('"1"', "1")
    misprinted = misprinted.replace(
        "                  labelSelector", "                  - labelSelector"
    )
    misprinted = misprinted.replace("  matchLabels", "    matchLabels").replace(
        "  critical", "    critical"
    )

    assert errors_in(parse_placement, with_policy(misprinted)) == [
        (f"{PREFERRED}[0].preference", "wrong-type"),
        (
            f'{PREFERRED}[0].preference[0].labelSelector.matchLabels["critical-level"]',
            "wrong-type",
        ),
    ]


def test_the_placeholder_for_selectors_is_no_selector() -> None:
    document = {**placement(), "spec": read("resourceSelectors:\n  - ...\n")}

    assert errors_in(parse_placement, document) == [
        ("spec.resourceSelectors[0]", "wrong-type")
    ]
