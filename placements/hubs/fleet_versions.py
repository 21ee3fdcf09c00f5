"""Versions of the fleet of a live hub: written as it changes, found for a moment.

See `rules/live-hub.md#versions-of-the-fleet`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from clusters.fleet import Fleet
from clusters.queries import load_fleet
from placements.models import FleetVersion, HubDecision, Placement
from placements.models.hub_decisions import COALESCING
from placements.services.decisions.records import fleet_of, stored_fleet

CLOCK_TOLERANCE = timedelta(seconds=2)
"""Creation times have no fractions, and our clock and that of the hub are a little apart."""


def properties_read() -> list[str]:
    rows = Placement.objects.exclude(property_names_read=[]).values_list(
        "property_names_read", flat=True
    )
    return sorted({name for names in rows for name in names})


def latest_version() -> FleetVersion | None:
    return FleetVersion.objects.order_by("-number").first()


def write_version(*, resource_version: str, now: datetime) -> None:
    """Write the fleet of the hub in scope as a version.

    Requires the lock of the fleet. A version of this very second is replaced, unless a decision cites it.
    """
    latest = latest_version()
    changes = {
        "properties": properties_read(),
        "since": now.isoformat(),
        "since_version": resource_version,
    }
    is_cited = HubDecision.objects.filter(fleet_version=latest).exists()
    if latest is not None and now - latest.seen_at < COALESCING and not is_cited:
        changes |= {key: latest.changes[key] for key in ("since", "since_version")}
        latest.from_resource_version = resource_version or latest.from_resource_version
    else:
        number = latest.number + 1 if latest else 1
        latest = FleetVersion(number=number, from_resource_version=resource_version)
    latest.fleet, latest.changes = stored_fleet(load_fleet()), changes
    latest.seen_at = now
    latest.save()


def write_newly_read(*, now: datetime) -> None:
    """Write a version if policies read properties now of which the newest version may have old values."""
    latest = latest_version()
    if latest and not set(properties_read()) <= set(latest.changes["properties"]):
        write_version(resource_version="", now=now)


def is_at_or_before(version: FleetVersion, resource_version: str, at: datetime) -> bool:
    """Return whether a version was there at a moment: by resourceVersions where both are numbers."""
    if version.from_resource_version.isdecimal() and resource_version.isdecimal():
        return int(version.from_resource_version) < int(resource_version)
    return version.seen_at <= at


def version_at(resource_version: str, at: datetime) -> FleetVersion | None:
    """Return the newest version at a moment; None if the mirror is younger."""
    versions = FleetVersion.objects.order_by("-number").iterator(chunk_size=20)
    return next(
        (
            version
            for version in versions
            if is_at_or_before(version, resource_version, at)
        ),
        None,
    )


def neighbours(version: FleetVersion) -> Sequence[FleetVersion]:
    """Return the versions right after and right before another one."""
    after = FleetVersion.objects.filter(number__gt=version.number).order_by("number")[
        :1
    ]
    before = FleetVersion.objects.filter(number__lt=version.number).order_by("-number")[
        :1
    ]
    return [*after, *before]


def fleet_at(version: FleetVersion) -> Fleet:
    return fleet_of(version.fleet_id)
