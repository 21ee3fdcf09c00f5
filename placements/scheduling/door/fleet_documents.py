"""What the smaller documents of Fleet have in common, and what may not change on them (lifecycle B.1)."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

from placements.scheduling.door import names
from placements.scheduling.door.fields import api_version, spelled
from placements.scheduling.door.kinds import ALPHA_VERSION, PLACEMENT_VERSIONS, refuse_other_kinds
from placements.scheduling.door.metadata import ObjectMeta
from placements.scheduling.door.parsing import Parsed, mapping_at, parse_model
from placements.scheduling.faults import Fault
from placements.scheduling.semantics import DEFAULT_SEMANTICS

Name: TypeAlias = Annotated[str, spelled(names.subdomain_problem, f"at most 253 {names.DNS_SUBDOMAIN}")]
Namespace: TypeAlias = Annotated[str, spelled(names.dns_label_problem, names.DNS_LABEL)]
WithAlpha: TypeAlias = Annotated[str, api_version(*PLACEMENT_VERSIONS, ALPHA_VERSION)]


class FleetDocument(Parsed):
    """A whole document, whose noun is its kind; its status is accepted and left aside."""

    left_aside: ClassVar[frozenset[str]] = frozenset({"status"})

    api_version: Annotated[str, api_version(*PLACEMENT_VERSIONS)]
    kind: str
    metadata: ObjectMeta

    def to_manifest(self) -> dict[str, Any]:
        """Give the document to export; parsing it gives an equal value."""
        return self.to_plain()


Model = TypeVar("Model", bound=FleetDocument)


def parse_document(model: type[Model], document: object) -> Model:
    """Turn a document into a value; raise Faults with all that is wrong, one only for another kind."""
    refuse_other_kinds(document, model.noun)
    return parse_model(model, document, semantics=DEFAULT_SEMANTICS, path="")


def immutable_faults(before: FleetDocument, after: FleetDocument, *paths: tuple[str, ...]) -> Iterator[Fault]:
    """Refuse every change at these places of a saved document."""
    old, new = before.to_manifest(), after.to_manifest()
    for keys in paths:
        was, becomes = (mapping_at(raw, *keys[:-1]).get(keys[-1]) for raw in (old, new))
        if was != becomes:
            yield Fault(".".join(keys), "immutable", "cannot change once it was set", _written(was))


def _written(value: object) -> str:
    return "nothing" if value is None else str(value)
