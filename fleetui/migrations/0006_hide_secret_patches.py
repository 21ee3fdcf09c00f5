"""Take what overrides put into Secrets out of the events of before it was hidden; nothing brings it back.

`placements.scheduling.hub.secrets` says what is hidden today; a migration has to stay as it is.
"""

from collections.abc import Mapping
from typing import Any

from django.db import migrations

_HIDDEN = "(hidden)"
_COPY = "kubectl.kubernetes.io/last-applied-configuration"
_SELECTORS = ("clusterResourceSelectors", "resourceSelectors")


def hide(apps: Any, _: object) -> None:
    """Keep the paths and the keys, not the values."""
    rows = apps.get_model("fleetui", "Event").objects.filter(kind__in=("override", "cluster-override"))
    for event in rows.iterator():
        event.before, event.after = _hidden(event.before), _hidden(event.after)
        event.save(update_fields=["before", "after"])


def _hidden(content: Any) -> Any:
    spec = content.get("spec") if isinstance(content, Mapping) else None
    if not isinstance(spec, Mapping) or not _reaches_secrets(spec):
        return content
    policy = dict(spec.get("policy") or {})
    policy["overrideRules"] = [_rule(rule) for rule in policy.get("overrideRules") or ()]
    metadata = dict(content.get("metadata") or {})
    if _COPY in (metadata.get("annotations") or {}):
        metadata["annotations"] = {**metadata["annotations"], _COPY: _HIDDEN}
    return {**content, "metadata": metadata, "spec": {**spec, "policy": policy}}


def _reaches_secrets(spec: Mapping[str, Any]) -> bool:
    selected = (one for field in _SELECTORS for one in spec.get(field) or ())
    return any(one.get("kind") in ("Secret", "Namespace") for one in selected)


def _rule(rule: Mapping[str, Any]) -> Mapping[str, Any]:
    patches = rule.get("jsonPatchOverrides")
    return {**rule, "jsonPatchOverrides": [_patch(one) for one in patches]} if patches else rule


def _patch(patch: Mapping[str, Any]) -> Mapping[str, Any]:
    if "value" not in patch:
        return patch
    path, value = str(patch.get("path")), patch["value"]
    if path.split("/")[1:2] in (["data"], ["stringData"]):
        value = dict.fromkeys(value, _HIDDEN) if isinstance(value, Mapping) else _HIDDEN
    elif path == "/metadata/annotations/" + _COPY.replace("/", "~1"):
        value = _HIDDEN
    elif path == "/metadata/annotations" and isinstance(value, Mapping) and _COPY in value:
        value = {**value, _COPY: _HIDDEN}
    return {**patch, "value": value}


class Migration(migrations.Migration):
    """Events are there since the first migration."""

    dependencies = [("fleetui", "0005_events_as_written")]
    operations = [migrations.RunPython(hide, migrations.RunPython.noop)]
