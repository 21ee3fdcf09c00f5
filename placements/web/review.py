"""What a review sends along, so that the next one can say which clusters would be placed otherwise."""

from django.http import HttpRequest

from placements.services.editor.preview import SchedulePreview

_MOST_NAMES = 300


def names_after(schedule: SchedulePreview) -> str:
    """Return the clusters that would be placed, for comparing later; nothing where they are too many."""
    return " ".join(schedule.placed_after) if len(schedule.placed_after) <= _MOST_NAMES else ""


def names_changed_since(request: HttpRequest, schedule: SchedulePreview) -> list[tuple[str, list[str]]]:
    """Return which clusters are selected now and were not in the confirmed review, and the reverse."""
    before, now = set(request.POST.get("after", "").split()), set(names_after(schedule).split())
    if not before or not now:
        return []
    changes = (("joins", now - before), ("leaves", before - now))
    return [(sign, sorted(names)) for sign, names in changes if names]
