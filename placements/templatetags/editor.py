"""Tags of the editor: fields and rows with the errors, warnings and hints that are shown beside them."""

from typing import Any

from django import template

register = template.Library()


@register.inclusion_tag("editor/_field_notes.html", takes_context=True)
def notes(context: dict[str, Any], name: str) -> dict[str, Any]:
    """Show errors, warnings and hints beside the field, row or list of that name."""
    return {"one": context["preview"].notes.by_name.get(name), "oob": False}


@register.inclusion_tag("editor/_field_notes.html")
def notes_oob(one: Any) -> dict[str, Any]:
    """Show the same again, to replace what is in the page."""
    return {"one": one, "oob": True}


@register.inclusion_tag("editor/_field.html", takes_context=True)
def field(context: dict[str, Any], one: Any, *, style: str = "") -> dict[str, Any]:
    note = context["preview"].notes.by_name.get(one.name)
    return {
        "field": one,
        "style": style,
        "preview": context["preview"],
        "has_errors": bool(note and note.errors),
        "has_focus": context["focus"] == one.name,
        "is_fixed": one.name in ("metadata.name", "metadata.namespace")
        and context["is_saved"],
    }


@register.inclusion_tag("editor/_group.html", takes_context=True)
def group(
    context: dict[str, Any], one: Any, *, is_only: bool = False
) -> dict[str, Any]:
    passed_on = {key: context[key] for key in ("preview", "focus", "is_saved")}
    return {"group": one, "is_only": is_only, **passed_on}


@register.filter
def summary_of(preview: Any, row: Any) -> str:
    """Return what a row is in words; nothing where it differs from what is saved, or something is noted."""
    names = (row.name, *(one.name for one in row.fields)) if row else ()
    notes = [preview.notes.by_name[name] for name in names]
    is_noted = any(
        note.was or note.errors or note.warnings or note.absent_namespace
        for note in notes
    )
    return "" if preview.saved is None or is_noted or not row else row.summary
