"""Reading the file of an import: clusters, and the objects of a hub of Open Cluster Management."""

from dataclasses import replace

from clusters.hub_objects import SET_KIND
from clusters.importing import NO_CHOICES, ImportChoices, ImportRead, read_members
from fleetui.apimachinery.errors import InvalidManifest
from placements.manifests.affinity import set_selector


def read_import(
    source: bytes, *, name: str, choices: ImportChoices = NO_CHOICES
) -> ImportRead:
    """Read a file as `read_members` does; a selector that no placement could be decided by is an error.

    Raise InvalidManifest.
    """
    found = read_members(source, name=name, choices=choices)
    for one in found.sets:
        if one.kind != SET_KIND:
            continue
        try:
            set_selector(one.content)
        except InvalidManifest as invalid:
            where = "spec.clusterSelector.labelSelector"
            errors = [
                replace(
                    error,
                    path=f"{where}.{error.path}".rstrip("."),
                    message=f"{one.kind} {one.name}: {error.message}",
                )
                for error in invalid.errors
            ]
            raise InvalidManifest(errors) from invalid
    return found
