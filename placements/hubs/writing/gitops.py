"""Which GitOps tool manages an object: it reverts what is changed elsewhere (`rules/live-hub.md#bodies`)."""

from fleetui.apimachinery.model import items_at, mapping_at
from placements.hubs.kinds.base import Manifest, text_of

_MANAGERS = frozenset({"argocd-controller", "kustomize-controller", "helm-controller"})
_GO_CLIENT = "Go-http-client"
_ARGO = "argocd.argoproj.io/"
_TRACKING = (f"{_ARGO}instance", f"{_ARGO}tracking-id")
_LABELS = (
    "app.kubernetes.io/managed-by",
    f"{_ARGO}instance",
    "kustomize.toolkit.fluxcd.io/name",
)


def gitops_marks(live: Manifest | None) -> tuple[str, ...]:
    """Return what shows that a GitOps tool manages an object, such as `field manager argocd-controller`."""
    metadata = mapping_at(live, "metadata")
    labels, annotations = (
        mapping_at(metadata, "labels"),
        mapping_at(metadata, "annotations"),
    )
    is_tracked = any(key in labels or key in annotations for key in _TRACKING)
    marks = []
    for entry in items_at(metadata, "managedFields"):
        name = text_of(mapping_at(entry).get("manager"))
        # Versions of Argo CD before server-side apply wrote as the client library.
        if (
            name in _MANAGERS
            or name.startswith("flux")
            or (name == _GO_CLIENT and is_tracked)
        ):
            marks.append(f"field manager {name}")
    marks += [
        f"label {key}={text_of(labels[key])}" for key in _LABELS if labels.get(key)
    ]
    marks += [f"annotation {key}" for key in _TRACKING if key in annotations]
    return tuple(dict.fromkeys(marks))
