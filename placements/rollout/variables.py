"""Variables in the values of overrides: the name and the labels of the cluster (lifecycle B.1.8)."""

from collections.abc import Mapping
from typing import Any

from placements.scheduling.fleet import Cluster

_NAME = "${MEMBER-CLUSTER-NAME}"
_LABEL = "${MEMBER-CLUSTER-LABEL-KEY-"


class VariableError(ValueError):
    """A variable has no end, or names a label that the cluster does not have."""


def replaced(value: Any, cluster: Cluster) -> Any:
    """Give a copy of a value in which every text, keys too, speaks of this cluster. Raises VariableError."""
    if isinstance(value, str):
        return _text(value, cluster)
    if isinstance(value, Mapping):
        return {_text(key, cluster): replaced(item, cluster) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [replaced(item, cluster) for item in value]
    return value


def _text(text: str, cluster: Cluster) -> str:
    """Replace from left to right; what a label holds is not looked at again."""
    before, *parts = text.replace(_NAME, cluster.name).split(_LABEL)
    return before + "".join(_label(part, cluster) for part in parts)


def _label(part: str, cluster: Cluster) -> str:
    key, brace, rest = part.partition("}")
    if not brace:
        raise VariableError(f"{_LABEL}… has no closing brace")  # what follows may be a secret
    if key not in cluster.labels:
        raise VariableError(f"the cluster has no label {key}")
    return cluster.labels[key] + rest
