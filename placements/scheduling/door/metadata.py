"""The part of Kubernetes object metadata that matters here (`spec/lifecycle.md` B.1.2, B.1.6)."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from placements.scheduling.door.fields import Annotations, ClusterName, Labels
from placements.scheduling.door.parsing import Parsed, Refusal

WRITTEN_BY_A_HUB = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)


class ObjectMeta(Parsed):
    """Name, labels and annotations; what a hub adds on its own is accepted and dropped."""

    noun: ClassVar[str] = "document's metadata"
    left_aside: ClassVar[frozenset[str]] = WRITTEN_BY_A_HUB
    refused: ClassVar[Mapping[str, Refusal]] = {
        "namespace": Refusal("misplaced", "this kind lives outside namespaces; leave it out")
    }

    name: ClusterName
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)
