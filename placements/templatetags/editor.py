"""Tags of the editor: what stands beside a field, and lists of suggestions."""

from typing import Any

from django import template

register = template.Library()


@register.inclusion_tag("drafts/_beside.html", takes_context=True)
def beside(context: dict[str, Any], name: str) -> dict[str, Any]:
    """Show faults, warnings and hints beside the field, row or list of that name."""
    return {"one": context["besides"].get(name), "oob": False}


@register.inclusion_tag("drafts/_beside.html")
def beside_again(one: Any) -> dict[str, Any]:
    """Show the same once more, to take the place of what stands in the page."""
    return {"one": one, "oob": True}


@register.inclusion_tag("drafts/_field.html", takes_context=True)
def field(context: dict[str, Any], one: Any, *, style: str = "") -> dict[str, Any]:
    """Show a field with its label and what stands beside it."""
    said = context["besides"].get(one.name)
    return {
        "field": one,
        "style": style,
        "besides": context["besides"],
        "is_at_fault": bool(said and said.faults),
        "has_focus": context["focus"] == one.name,
        "is_fixed": one.name == "metadata.name" and context["is_saved"],
    }


@register.inclusion_tag("drafts/_group.html", takes_context=True)
def group(context: dict[str, Any], one: Any, *, style: str = "") -> dict[str, Any]:
    """Show a list inside a row."""
    return {"group": one, "style": style, **{key: context[key] for key in _PASSED_ON}}


_PASSED_ON = ("besides", "focus", "is_saved")
