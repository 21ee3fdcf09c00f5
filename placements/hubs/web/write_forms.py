"""The forms of actions on a live hub: what is entered, as the fields of the catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.http import QueryDict

from clusters.models import MemberCluster
from fleetui.apimachinery.errors import InvalidManifest
from placements.hubs.kinds.kubefleet import PREFIX
from placements.models import StagedStrategy
from placements.services.fleet import forms
from placements.web.request import number_of

FIXED = ("name", "namespace", "placement", "cluster", "kind")
"""What the address says: which object it is about."""
_TEXTS = ("labels", "taints")
"""Actions whose only field is a text of several lines."""


@dataclass(frozen=True, slots=True)
class FormInput:
    """One input; `choices` make it a list, `rows` a text of several lines."""

    name: str
    label: str
    hint: str = ""
    type: str = "text"
    rows: int = 0
    choices: tuple[str, ...] = ()
    is_required: bool = False
    value: str = ""


INPUTS: Mapping[str, tuple[FormInput, ...]] = {
    "scale": (
        FormInput(
            "numberOfClusters", "Number of clusters", type="number", is_required=True
        ),
    ),
    "labels": (
        FormInput(
            "labels",
            "Labels",
            "One per line: key=value. A line that is removed removes the label.",
            rows=6,
        ),
    ),
    "taints": (
        FormInput("taints", "Taints", "One per line: key=value:NoSchedule.", rows=4),
    ),
    "start-run": (
        FormInput("strategy", "Staged update strategy", is_required=True),
        FormInput("resourceSnapshotIndex", "Resource snapshot", "Empty: the latest."),
        FormInput("state", "State", choices=("Run", "Initialize")),
    ),
    "run-state": (
        FormInput("state", "State", choices=("Run", "Stop"), is_required=True),
    ),
    "approve": (FormInput("comment", "Comment", "Part of the message on the hub."),),
}


def fixed_fields(params: QueryDict) -> dict[str, str]:
    """Return which object the address names."""
    return {name: str(params[name]) for name in FIXED if params.get(name)}


def inputs_for(
    action: str, params: QueryDict, fields: Mapping[str, Any]
) -> list[FormInput]:
    """Return the inputs of an action with what was entered, or with what there is."""
    inputs = []
    for one in INPUTS.get(action, ()):
        value, choices = params.get(one.name), one.choices
        if value is None:
            value = str(fields.get(one.name, ""))
        if action in _TEXTS and one.name not in params:
            value = present_text(action, params.get("name", ""))
        if one.name == "strategy":  # without any in the mirror, the name is typed
            namespace = params.get("namespace", "")
            rows = StagedStrategy.objects.filter(namespace=namespace).order_by("name")
            choices = tuple(rows.values_list("name", flat=True))
        inputs.append(replace(one, value=value, choices=choices))
    return inputs


def present_text(action: str, name: str) -> str:
    """Return the labels or taints of a cluster as they are entered, without those of the hub itself."""
    cluster = MemberCluster.objects.filter(name=name).first()
    if action == "labels":
        return forms.write_labels(own_labels(cluster))
    spec = cluster.document.get("spec", {}) if cluster else {}
    return forms.write_taints(spec.get("taints") or [])


def own_labels(cluster: MemberCluster | None) -> dict[str, str]:
    labels = cluster.document["metadata"].get("labels") if cluster else None
    return {
        key: value
        for key, value in (labels or {}).items()
        if not key.startswith(PREFIX)
    }


def entered_fields(action: str, params: QueryDict) -> dict[str, Any]:
    """Return the fields of an action. Raise InvalidManifest."""
    fields: dict[str, Any] = dict(fixed_fields(params))
    if action in _TEXTS:
        return {**fields, action: read_text(action, params)}
    for one in INPUTS.get(action, ()):
        value = params.get(one.name, "").strip()
        if one.type == "number":
            number = number_of(value)
            fields[one.name] = value if number is None else number
        elif value:
            fields[one.name] = value
    return fields


def read_text(action: str, params: QueryDict) -> Any:
    """Return the labels with null for those that were removed, or the whole list of taints."""
    text = params.get(action, "")
    texts = {"labels": "", "taints": "", action: text}
    typed = forms.read_cluster(texts["labels"], texts["taints"])
    if typed.errors:
        raise InvalidManifest(typed.errors)
    if action == "taints":
        return typed.taints
    cluster = MemberCluster.objects.filter(name=params.get("name", "")).first()
    before = own_labels(cluster)
    entered = {**dict.fromkeys(before), **typed.labels}
    # What is as in the mirror is left out: the hub may have another value since.
    return {key: one for key, one in entered.items() if before.get(key) != one}
