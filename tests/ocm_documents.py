"""Placements of Open Cluster Management for tests: the proposal's own examples, and small ones."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from fleetui.apimachinery.yaml import load_documents
from tests.documents import SHARED

PROPOSAL = SHARED / "guides" / "ocm-spread-policy-proposal.md"
needs_proposal = pytest.mark.skipif(not PROPOSAL.exists(), reason="needs ../shared")
NAMESPACE = {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}
RESOURCES = "fleetui.io/resource-selectors"
STRATEGY = "fleetui.io/strategy"


PROVIDERS = {
    "us-east-1": "aws",
    "us-west-1": "aws",
    "cn-hangzhou": "alibaba",
    "cn-shenzhen": "alibaba",
}
"""The regions of the proposal's examples."""


def regional(sizes: Mapping[str, int]) -> Iterator[tuple[str, dict[str, str]]]:
    """Return names and labels of clusters in the proposal's regions."""
    for region, size in sizes.items():
        for number in range(1, size + 1):
            yield (
                f"{region}-{number}",
                {"provider": PROVIDERS[region], "region": region},
            )


def proposed(number: int) -> str:
    """Return the text of an API example of the proposal."""
    return re.findall(r"```yaml\n(.*?)```", PROPOSAL.read_text(), re.DOTALL)[number - 1]


def proposed_document(number: int) -> dict[str, Any]:
    """Return the same as data."""
    found: dict[str, Any] = load_documents(proposed(number))[0].data
    return found


def ocm_document(
    name: str = "shop",
    *,
    namespace: str = "",
    annotations: Mapping[str, object] | None = None,
    version: str = "v1beta1",
    **spec: Any,
) -> dict[str, Any]:
    """Write a Placement; other arguments are fields of its spec."""
    metadata: dict[str, Any] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if annotations:
        texts = {
            key: one if isinstance(one, str) else json.dumps(one)
            for key, one in annotations.items()
        }
        metadata["annotations"] = texts
    return {
        "apiVersion": f"cluster.open-cluster-management.io/{version}",
        "kind": "Placement",
        "metadata": metadata,
        "spec": spec,
    }


def with_resources(
    document: Mapping[str, Any], *selectors: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a document with the annotation that selects resources."""
    annotations = {
        **document["metadata"].get("annotations", {}),
        RESOURCES: json.dumps(list(selectors)),
    }
    return {
        **document,
        "metadata": {**document["metadata"], "annotations": annotations},
    }
