"""The stored version of a hub, by which pages that poll know whether something may have changed."""

from datetime import UTC, datetime

from placements.models import ProblemBook


def stored_version(hub: int) -> int:
    """Return it; a hub whose problems were never compared gets its row."""
    version = (
        ProblemBook.objects.filter(hub=hub).values_list("version", flat=True).first()
    )
    if version is None:
        new = ProblemBook(hub_id=hub, compared_at=datetime(2000, 1, 1, tzinfo=UTC))
        ProblemBook.objects.bulk_create([new], ignore_conflicts=True)
    return version or 0
