"""Writing placements as YAML: check what it would decide, then save; and deleting them."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from fleetui.access import for_operators
from fleetui.events import events_since
from fleetui.revisions import StaleEditError
from placements.explain.diffs import differences
from placements.explain.sentences import policy_sentence
from placements.forms import lines_of, read_placement
from placements.manifests import dump_yaml
from placements.models import Binding, Placement
from placements.operations.emptying import EmptiesPlacementError
from placements.operations.placements import delete_placement, save_placement
from placements.queries.preview import Preview, preview
from placements.scheduling.bindings import BindingState
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.spec import OcmPlacement
from placements.views.people import is_confirmed, user_of
from placements.views.semantics import draft_sides

_LISTED = 20
_TEMPLATE = """\
apiVersion: placement.kubernetes-fleet.io/v1
kind: ClusterResourcePlacement
metadata:
  name: my-placement
spec:
  resourceSelectors:
    - group: ""
      version: v1
      kind: Namespace
      name: my-namespace
  policy:
    placementType: PickN
    numberOfClusters: 3
    topologySpreadConstraints:
      - topologyKey: region
        maxSkew: 1
        whenUnsatisfiable: DoNotSchedule
"""


@dataclass
class Editor:
    """What the editing page shows."""

    text: str
    revision: int
    placement: Placement | None = None
    faults: tuple[Fault, ...] = ()
    stale: StaleEditError | None = None
    empties: EmptiesPlacementError | None = None
    preview: Preview | None = None
    sentence: str = ""
    is_ocm: bool = False
    sides: dict[str, Any] = field(default_factory=dict)
    lists: list[tuple[str, str, tuple[str, ...], int]] = field(default_factory=list)


@for_operators("write placements")
@require_http_methods(["GET", "HEAD", "POST"])
def new_placement(request: HttpRequest) -> HttpResponse:
    """Write a new placement."""
    if request.method != "POST":
        return _page(request, Editor(_TEMPLATE, 0))
    return _posted(request, Editor(_text(request), 0))


@for_operators("edit placements")
@require_http_methods(["GET", "HEAD", "POST"])
def edit_placement(request: HttpRequest, name: str) -> HttpResponse:
    """Change a placement by its whole manifest."""
    found = get_object_or_404(Placement, name=name)
    if request.method != "POST":
        return _page(request, Editor(dump_yaml(found.document), found.revision, found))
    given = request.POST.get("revision", "")
    return _posted(request, Editor(_text(request), int(given) if given.isdecimal() else 0, found))


def _text(request: HttpRequest) -> str:
    return request.POST.get("manifest", "").replace("\r\n", "\n")


def _posted(request: HttpRequest, editor: Editor) -> HttpResponse:
    """Check the text, or save it; what is wrong with it stands beside it."""
    try:
        if request.POST.get("do") == "semantics":
            return _page(request, _compared(editor))
        if request.POST.get("do") != "save":
            return _page(request, _checked(editor))
        name = _save(request, editor)
    except Faults as found:
        editor.faults = found.faults
        return _page(request, editor, status=422)
    except StaleEditError as stale:
        editor.stale = stale
        return _page(request, editor, status=409)
    except EmptiesPlacementError as error:
        editor.empties = error
        return _page(request, editor, status=409)
    messages.success(request, f"Saved {name}. The scheduler decides it now.")
    return redirect("pages:placement", name)


def _save(request: HttpRequest, editor: Editor) -> str:
    document, _ = read_placement(editor.text, name=_name_of(editor))
    with lines_of(document):
        saved = save_placement(
            document.data,
            by=user_of(request),
            now=datetime.now(UTC),
            expected=editor.revision,
            confirmed=is_confirmed(request),
        )
    return saved.placement.name


def _name_of(editor: Editor) -> str:
    return editor.placement.name if editor.placement else ""


def _checked(editor: Editor) -> Editor:
    document, draft = read_placement(editor.text, name=_name_of(editor))
    with lines_of(document):
        found = preview(draft)
    editor.preview, editor.sentence = found, policy_sentence(draft.spec.policy)
    editor.is_ocm = isinstance(draft, OcmPlacement)
    named = (("join", "joins", found.joins), ("leave", "leaves", found.leaves), ("stay", "", found.stays))
    editor.lists = [
        (words, sign, names[:_LISTED], max(0, len(names) - _LISTED)) for words, sign, names in named
    ]
    return editor


def _compared(editor: Editor) -> Editor:
    document, draft = read_placement(editor.text, name=_name_of(editor))
    with lines_of(document):
        editor.sides = draft_sides(draft)
    return editor


def _page(request: HttpRequest, editor: Editor, *, status: int = 200) -> HttpResponse:
    context = {"editor": editor, "theirs": [], **editor.sides}
    if editor.stale and editor.placement:
        first = next((one for one in _events_since(editor)), None)
        context["theirs"] = differences(first, editor.placement.document) if first else []
    return render(request, "placements/edit.html", context, status=status)


def _events_since(editor: Editor) -> list[dict[str, object]]:
    """Give the manifests as they were before what others saved meanwhile, oldest first."""
    since = events_since("placement", _name_of(editor), editor.revision)
    return [event.before for event in since if event.before]


@for_operators("delete placements")
@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, name: str) -> HttpResponse:
    """Say what deleting would do, or do it."""
    found = get_object_or_404(Placement, name=name)
    placed = Binding.objects.filter(placement=found).exclude(state=BindingState.UNSCHEDULED)
    if request.method != "POST":
        context = {
            "placement": found,
            "placed": placed.order_by("cluster_name")[:_LISTED],
            "more": max(0, placed.count() - _LISTED),
            "carried_out": placed.exclude(state=BindingState.SCHEDULED).count(),
        }
        return render(request, "placements/delete.html", context)
    gone = delete_placement(name, by=user_of(request), now=datetime.now(UTC))
    messages.success(request, f"{name} is deleted." if gone else f"{name} is being deleted.")
    return redirect("pages:placements") if gone else redirect("pages:placement", name)
