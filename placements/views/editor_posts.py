"""What a post of the editor says: typed into the form or the YAML, or one of its buttons."""

from dataclasses import dataclass
from enum import StrEnum

from django.http import QueryDict

from placements.drafting.applying import OutdatedFormError, add_row, apply_form, remove_row, tidy
from placements.drafting.checking import check
from placements.drafting.fields import at
from placements.drafting.form import POLICY, SEMANTICS, STRATEGY, Form
from placements.manifests import MEBIBYTE
from placements.scheduling.faults import Keys
from placements.yaml_edits import CannotEditError

_RESHAPING: tuple[Keys, ...] = ((*POLICY, "placementType"), (*STRATEGY, "type"), SEMANTICS)
_ELSEWHERE = (
    "The draft was changed in another window: it is shown as it is now. What you typed last is not in it."
)
_TOO_LARGE = "The text has more than 1 MiB and was not kept."


class Mode(StrEnum):
    """The two sides of the editor."""

    FORM = "form"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Posted:
    """The text that comes of a post, and what to show.

    `is_structural` asks for the whole editor anew, otherwise only what stands beside the fields changes;
    `trouble` says what could not be done; `focus` names the field to go to.
    """

    text: str
    mode: Mode
    is_structural: bool = False
    trouble: str = ""
    focus: str = ""


def read_post(post: QueryDict, text: str) -> Posted:
    """Work out the text after a post, from the text before it."""
    was = Mode.YAML if post.get("mode") == Mode.YAML else Mode.FORM
    mode = Mode(str(post["as"])) if post.get("as") in list(Mode) else was
    is_structural = any(name in post for name in ("as", "add", "remove", "tidy"))
    try:
        typed = _typed(post, text, was)
        done, focus = _pressed(post, typed)
    except OutdatedFormError:
        return Posted(text, mode, is_structural=True, trouble=_ELSEWHERE)
    except CannotEditError as error:
        trouble = f"The form cannot do that in this text: {error}. Change it as YAML."
        return Posted(text, mode, is_structural=True, trouble=trouble)
    if len(done) > MEBIBYTE:
        return Posted(text, mode, is_structural=True, trouble=_TOO_LARGE)
    is_structural = is_structural or (was is Mode.FORM and _is_reshaped(text, done))
    return Posted(done, mode, is_structural, focus=focus)


def is_handed_over(post: QueryDict) -> bool:
    """Tell whether another page sends a whole manifest to begin with, such as an old policy."""
    return post.get("do") == "draft" and "manifest" in post


def _typed(post: QueryDict, text: str, mode: Mode) -> str:
    if mode is Mode.YAML or is_handed_over(post):
        return str(post.get("manifest", text)).replace("\r\n", "\n").removeprefix("\ufeff")
    if check(text).form is None or "shape" not in post:
        return text
    return apply_form(text, {name: str(post[name]) for name in post}, shape=str(post["shape"]))


def _pressed(post: QueryDict, text: str) -> tuple[str, str]:
    """Do what a button says; give the text, and the field to go to."""
    if not any(name in post for name in ("add", "remove", "tidy")):
        return text, ""
    if check(text).form is None:
        raise CannotEditError("it has no form")
    try:
        if "add" in post:
            done = add_row(text, str(post["add"]))
            return done, _first_field(done, str(post["add"]))
        if "remove" in post:
            return remove_row(text, str(post["remove"])), ""
        return tidy(text, post.getlist("tidy-place")), ""
    except (KeyError, ValueError) as error:
        raise CannotEditError("that row is not there any more") from error


def _first_field(text: str, group: str) -> str:
    form = check(text).form
    rows = [row for one in form.all_groups if one.name == group for row in one.rows] if form else []
    fields = [*_fields(form, rows[-1].name)] if rows and form else []
    return fields[0] if fields else ""


def _fields(form: Form, row: str) -> list[str]:
    names = [one.name for one in form.fields]
    return [name for name in names if name.startswith(row)]


def _is_reshaped(before: str, after: str) -> bool:
    """Tell whether other fields go with the document now."""
    if before == after:
        return False
    old, new = check(before), check(after)
    if old.form is None or new.form is None:
        return True
    return any(at(old.data, keys) != at(new.data, keys) for keys in _RESHAPING)
