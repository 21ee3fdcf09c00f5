"""What bindings said of their failures in words goes into the columns that keep it as facts."""

from collections.abc import Iterator
from typing import Any

from django.db import migrations

_CODE = "ManifestApplyFailed"
_OVERRIDE = "Nothing is sent to "


def _read(apps: Any, schema_editor: Any) -> None:
    bindings = apps.get_model("placements", "Binding").objects.filter(phase__in=["failed", "remove-failed"])
    for binding in list(bindings.select_related("resource_snapshot")):
        if binding.message.startswith(_OVERRIDE):
            binding.failure, binding.faulty_override = "override", _override_in(binding.message)
        else:
            binding.failure, binding.faulty_objects = "refused", list(_objects_in(binding))
        binding.save(update_fields=["failure", "faulty_objects", "faulty_override"])


def _override_in(message: str) -> dict[str, str]:
    """Take the sentence apart: override NAME at PATH does not fit OBJECT: MESSAGE."""
    place, _, rest = message.partition(": override ")[2].partition(" does not fit ")
    override, _, path = place.partition(" at ")
    fitted, _, said = rest.partition(": ")
    return {"override": override, "path": path, "object": fitted, "message": said.removesuffix(".")}


def _objects_in(binding: Any) -> Iterator[dict[str, str]]:
    """Find the objects before whose names stands what was said of each."""
    snapshot = binding.resource_snapshot
    named = {_name(one): one for one in (snapshot.identities if snapshot else ())}
    for said in binding.message.split("; "):
        words, colon, reason = said.partition(": ")
        if colon and words in named:
            api_version, kind, namespace, name = named[words]
            group, _, version = api_version.rpartition("/")
            found = {"group": group, "version": version, "kind": kind, "namespace": namespace, "name": name}
            yield {**found, "code": _CODE, "message": reason}


def _name(identity: list[str]) -> str:
    _, kind, namespace, name = identity
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


class Migration(migrations.Migration):
    """Backwards nothing is lost: the words stay where they are."""

    dependencies = [("placements", "0005_failures")]

    operations = [migrations.RunPython(_read, migrations.RunPython.noop)]
