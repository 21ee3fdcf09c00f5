"""What a simulated cluster keeps of an object, and how that object would look on a real one."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from clusters.drivers.base import ObjectRef
from placements.scheduling.hub.objects import canonical_json

_DAEMONS = 3
_MOST_IMAGES = 20


@dataclass(frozen=True, slots=True)
class HeldObject:
    """An object on a simulated cluster: no more of it than its readiness depends on."""

    api_version: str
    kind: str
    namespace: str
    name: str
    digest: str
    ready_at: datetime
    replicas: int = 1
    service_type: str = ""
    images: tuple[str, ...] = ()

    @property
    def ref(self) -> ObjectRef:
        """Give what tells the object from others."""
        return ObjectRef(self.api_version.rpartition("/")[0], self.kind, self.namespace, self.name)

    def to_plain(self) -> dict[str, Any]:
        """Give the JSON form."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {**plain, "ready_at": self.ready_at.isoformat(), "images": list(self.images)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "HeldObject":
        """Read the JSON form."""
        read = {"ready_at": datetime.fromisoformat(plain["ready_at"]), "images": tuple(plain["images"])}
        return cls(**{**plain, **read})


def held_object(manifest: Mapping[str, Any], *, ready_at: datetime) -> HeldObject:
    """Take on a manifest."""
    ref, spec = ObjectRef.of(manifest), manifest.get("spec") or {}
    replicas = spec.get("replicas")
    return HeldObject(
        manifest["apiVersion"],
        ref.kind,
        ref.namespace,
        ref.name,
        sha256(canonical_json(manifest)).hexdigest()[:16],
        ready_at,
        replicas if isinstance(replicas, int) else 1,
        str(spec.get("type") or "") if ref.kind == "Service" else "",
        images_in(manifest),
    )


def images_in(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Give the images that a workload runs."""
    template = (manifest.get("spec") or {}).get("template") or {}
    pod = template.get("spec") or {} if isinstance(template, Mapping) else {}
    containers = [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]
    return tuple(str(one["image"]) for one in containers if one.get("image"))[:_MOST_IMAGES]


def live_object(held: HeldObject, *, is_ready: bool) -> dict[str, Any]:
    """Give the object as a real cluster would show it, with as much status as readiness is judged by."""
    return {
        "apiVersion": held.api_version,
        "kind": held.kind,
        "metadata": {"name": held.name, "namespace": held.namespace, "generation": 1},
        "spec": {
            "replicas": held.replicas,
            "type": held.service_type,
            "clusterIPs": ["10.96.0.1"] if is_ready else [],
        },
        "status": {"observedGeneration": 1, **_status(held, is_ready=is_ready)},
    }


def _status(held: HeldObject, *, is_ready: bool) -> dict[str, Any]:
    there = held.replicas if is_ready else 0
    match held.kind:
        case "Deployment" | "StatefulSet":
            return {
                "availableReplicas": there,
                "unavailableReplicas": held.replicas - there,
                "updatedReplicas": held.replicas,
                "currentReplicas": held.replicas,
            }
        case "DaemonSet":
            return {"desiredNumberScheduled": _DAEMONS, "numberAvailable": _DAEMONS if is_ready else 0}
        case "Service":
            return {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}} if is_ready else {}
    told = ("Established", "NamesAccepted") if is_ready else ()
    conditions = [{"type": name, "status": "True"} for name in told]
    return {"conditions": [*conditions, {"type": "DisruptionAllowed", "status": str(not is_ready)}]}
