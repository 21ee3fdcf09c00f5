"""One resource on the hub: what it is called, and its document."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

Content: TypeAlias = Mapping[str, Any]
ObjectKey: TypeAlias = tuple[str, str, str, str]


@dataclass(frozen=True)
class HubObject:
    """A Kubernetes object on the hub; its content is the document as written and is never changed."""

    group: str
    version: str
    kind: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(hash=False)
    content: Content = field(hash=False, repr=False)

    @classmethod
    def of(cls, content: Content) -> "HubObject":
        """Read names and labels off a document that `parse_manifest` has accepted before."""
        group, _, version = content["apiVersion"].rpartition("/")
        metadata = content["metadata"]
        labels = metadata.get("labels") or {}
        namespace = metadata.get("namespace") or ""
        return cls(group, version, content["kind"], namespace, metadata["name"], dict(labels), content)

    @property
    def key(self) -> ObjectKey:
        """Give what tells objects apart: the same object in another API version has the same key."""
        return self.group, self.kind, self.namespace, self.name

    @property
    def api_version(self) -> str:
        """Give group and version as documents write them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Give the metadata of the document."""
        found: Mapping[str, Any] = self.content["metadata"]
        return found

    @cached_property
    def size(self) -> int:
        """Give how many bytes the document takes as canonical JSON."""
        return len(canonical_json(self.content))

    def __str__(self) -> str:
        """Write it as people call it, such as `apps/v1 Deployment shop/web`."""
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.api_version} {self.kind} {place}{self.name}"


def canonical_json(data: object) -> bytes:
    """Write plain data as JSON in the one way that hashes and sizes go by: sorted, compact, UTF-8."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
