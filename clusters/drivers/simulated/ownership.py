"""Which placements own an object of a simulated cluster, by the identity of the object."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from clusters.drivers.base import (
    FAILED_TO_TAKE_OVER,
    ObjectRef,
    Refusal,
    Version,
    owned_by_placement,
)
from clusters.drivers.simulated.state import HeldObject, PlacementState


@dataclass(frozen=True, slots=True)
class Ownership:
    """The placements that own an object, each with its consent to co-ownership.

    The object has the content that `writer`, one of them, sent last, with this digest. One that sends equal
    content afterwards changes nothing. Without a digest the content is what the writer has.
    """

    owners: Mapping[str, bool]
    writer: str
    digest: str = ""

    def without(self, placement: str) -> "Ownership | None":
        owners = {
            name: consent for name, consent in self.owners.items() if name != placement
        }
        if not owners:
            return None
        return (
            replace(self, owners=owners)
            if self.writer in owners
            else Ownership(owners, min(owners))
        )


Ownerships: TypeAlias = Mapping[ObjectRef, Ownership]


def refusal_of(
    version: Version,
    wanted: HeldObject,
    there: Ownership | None,
    digest: str,
) -> Refusal | None:
    """Return why a placement may not apply an object, in the order of a Kubernetes cluster.

    `digest` is that of the content that the object has.
    """
    if there is None or version.placement in there.owners:
        return None
    options, ref = version.options, wanted.ref
    if not (options.allow_co_ownership and all(there.owners.values())):
        return owned_by_placement(ref, min(there.owners))
    if options.when_to_take_over == "Never":
        return Refusal(ref, "NotTakenOver", "exists, and whenToTakeOver is Never")
    if options.when_to_take_over == "IfNoDiff" and digest != wanted.digest:
        message = "differs from its manifest, and whenToTakeOver is IfNoDiff"
        return Refusal(ref, FAILED_TO_TAKE_OVER, message)
    return None


def claimed(
    before: Ownerships,
    placement: str,
    held: Collection[HeldObject],
    written: Collection[ObjectRef],
    *,
    consent: bool,
) -> Ownerships:
    """Return the owners after a placement holds these objects and no others."""
    after = dict(before)
    refs = {one.ref: one.digest for one in held}
    for ref, ownership in before.items():
        if placement in ownership.owners and ref not in refs:
            left = ownership.without(placement)
            if left is None:
                del after[ref]
            else:
                after[ref] = left
    for ref, digest in refs.items():
        there = after.get(ref) or Ownership({}, placement, digest)
        if ref in written and there.digest != digest:
            there = replace(there, writer=placement, digest=digest)
        owners = {**there.owners, placement: consent}
        # Of a single owner it is what that has: a new content of its own changes no owners.
        kept_digest = there.digest if len(owners) > 1 else ""
        after[ref] = replace(there, owners=owners, digest=kept_digest)
    return after


def confirmed(
    ownerships: Ownerships, states: Mapping[str, PlacementState]
) -> Ownerships:
    """Drop from ownerships those placements of `states` that have lost the object meanwhile."""
    held = {
        name: {one.ref for one in state.placement.objects} if state.placement else set()
        for name, state in states.items()
    }
    after = {}
    for ref, ownership in ownerships.items():
        left: Ownership | None = ownership
        for name in ownership.owners:
            if left is not None and name in held and ref not in held[name]:
                left = left.without(name)
        if left is not None:
            after[ref] = left
    return after


def separated(
    states: Mapping[str, PlacementState],
) -> tuple[Ownerships, dict[str, PlacementState]]:
    """Return the owners of states from before there were any: who applied an object first.

    Also return the states of the other placements: these do not have the object, and say why.
    """
    ownerships: dict[ObjectRef, Ownership] = {}
    changed = {}
    held = [
        (name, state, state.placement)
        for name, state in states.items()
        if state.placement
    ]
    for name, state, placement in sorted(
        held, key=lambda item: (item[2].since, item[0])
    ):
        kept, refusals = [], list(placement.refusals)
        refused = {one.object for one in refusals}
        for record in placement.objects:
            there = ownerships.get(record.ref)
            if there is None:
                ownerships[record.ref] = Ownership({name: False}, name)
                kept.append(record)
            elif record.ref not in refused:
                refusals.append(owned_by_placement(record.ref, there.writer))
        if len(kept) < len(placement.objects):
            rest = replace(placement, objects=tuple(kept), refusals=tuple(refusals))
            changed[name] = replace(state, placement=rest)
    return ownerships, changed


def ownerships_to_plain(ownerships: Ownerships) -> dict[str, Any]:
    return {
        "owners": [
            [
                ref.group,
                ref.kind,
                ref.namespace,
                ref.name,
                dict(one.owners),
                one.writer,
                one.digest,
            ]
            for ref, one in ownerships.items()
        ]
    }


def ownerships_from_plain(plain: Mapping[str, Any]) -> dict[ObjectRef, Ownership]:
    return {
        ObjectRef(group, kind, namespace, name): Ownership(*ownership)
        for group, kind, namespace, name, *ownership in plain["owners"]
    }
