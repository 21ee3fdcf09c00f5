"""`.fleetui.yaml`: what a change must keep, and what placements assert."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.fields import Flag, list_of, one_of, refusal
from fleetui.apimachinery.model import DEFAULT_SEMANTICS, ManifestModel, parse_manifest
from fleetui.apimachinery.yaml import attach_lines, load_documents
from placements.engine.checks.findings import Severity
from placements.engine.scheduling.selectors import selects
from placements.manifests.affinity import LabelSelector
from placements.manifests.assertions import AssertionEntry

NAME = ".fleetui.yaml"
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,6})?")


def _limit(value: object) -> Decimal:
    """Return a limit exactly as it is written."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not _NUMBER.fullmatch(str(value)):
        raise refusal(
            "wrong-type", "Invalid value: must be a number", "a number from 0"
        )
    return Decimal(str(value))


Limit: TypeAlias = Annotated[Decimal, BeforeValidator(_limit)]


class PlacementGates(ManifestModel):
    """The gates for one placement."""

    max_leaves: Limit | None = Field(None, alias="max-leaves")
    no_new_unfulfilled: Flag = Field(default=False, alias="no-new-unfulfilled")
    no_unschedule_everything: Flag = Field(
        default=False, alias="no-unschedule-everything"
    )
    checks: Annotated[Severity, one_of(Severity)] | None = None


class Gates(PlacementGates):
    """The gates for all placements."""

    max_moves_percent: Limit | None = Field(None, alias="max-moves-percent")


class GateOverride(ManifestModel):
    """Other gates for placements with some labels."""

    selector: LabelSelector
    gates: PlacementGates


class ChecksFile(ManifestModel):
    """What `.fleetui.yaml` has; the hub reads its assertions, `simulate --diff` its gates too."""

    gates: Gates = Field(default_factory=Gates)
    overrides: Annotated[tuple[GateOverride, ...], list_of()] = ()
    assertions: Annotated[
        tuple[AssertionEntry, ...], list_of(high=1000, ours=True)
    ] = ()

    def gates_for(self, labels: Mapping[str, str]) -> PlacementGates:
        """Return the gates for a placement: a later override replaces what an earlier one sets."""
        effective: PlacementGates = self.gates
        for override in self.overrides:
            if selects(override.selector, labels):
                gates = {
                    name: getattr(override.gates, name)
                    for name in override.gates.model_fields_set
                }
                effective = effective.model_copy(update=gates)
        return effective


def parse_checks_file(text: bytes | None) -> ChecksFile:
    """Parse `.fleetui.yaml`. Raise InvalidManifest."""
    documents = load_documents(text) if text else []
    if not documents or documents[0].data is None:
        return ChecksFile()
    try:
        return parse_manifest(
            ChecksFile, documents[0].data, semantics=DEFAULT_SEMANTICS, path=""
        )
    except InvalidManifest as invalid:
        raise InvalidManifest(
            attach_lines((documents[0], error) for error in invalid.errors)
        ) from invalid
