"""What a review carries along, so that the next one can say who would be placed otherwise."""

from django.http import HttpRequest

from placements.queries.drafts import DraftPreview

_MOST_NAMES = 300


def names_after(shown: DraftPreview) -> str:
    """Give the names of who would be placed, for comparing later; nothing where they are too many."""
    names = [one.cluster for one in shown.preview.decision.bindings_after if one.is_active]
    return " ".join(names) if len(names) <= _MOST_NAMES else ""


def moved_since(request: HttpRequest, shown: DraftPreview) -> list[tuple[str, list[str]]]:
    """Say who would be placed now, and was not in the review that was confirmed; and the reverse."""
    then, now = (set(text.split()) for text in (request.POST.get("after", ""), names_after(shown)))
    if not then or not now:
        return []
    return [
        (words, sorted(names)) for words, names in (("joins", now - then), ("leaves", then - now)) if names
    ]
