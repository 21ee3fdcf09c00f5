"""Importing clusters from a file: first what would be done with each, then doing it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils import timezone

from clusters.models import MemberCluster
from clusters.operations.joining import Did, Put, Wanted, foresee_clusters, put_clusters
from fleetui.roles import may_operate
from placements.admin.display import NONE
from placements.explain.wording import counted
from placements.imports import read_members
from placements.scheduling.faults import Faults

MOST_BYTES = 16 * 1024 * 1024
_SALT = "fleetui.import"


class ImportForm(forms.Form):
    """A file, or the same as text; `source` carries what was read to the confirmation."""

    file = forms.FileField(required=False, help_text="YAML, JSON or CSV.")
    text = forms.CharField(
        required=False, strip=False, label="or paste it here", widget=forms.Textarea(attrs={"rows": 12})
    )
    source = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        """Find the one source."""
        typed: dict[str, Any] = self.cleaned_data
        file = typed.get("file")
        if typed.get("source"):
            self.given = _opened(typed["source"])
        elif file and file.size > MOST_BYTES:
            raise forms.ValidationError(f"{file.name} has more than {MOST_BYTES >> 20} MiB.")
        elif file:
            self.given = (file.name, file.read())
        elif typed.get("text", "").strip():
            self.given = ("pasted text", typed["text"].encode())
        else:
            raise forms.ValidationError("Choose a file or paste its text.")
        return typed


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one cluster of the file."""

    name: str
    line: int | None
    did: str
    changes: tuple[str, ...]


def import_view(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Show the form, then what would be done, and on `apply` do it; a second time does nothing."""
    if not may_operate(request.user):
        raise PermissionDenied
    form = ImportForm(request.POST or None, request.FILES or None)
    steps: list[Step] | None = None
    if request.method == "POST" and form.is_valid():
        name, source = form.given
        try:
            members = read_members(source, name=name)
            wanted = [Wanted(one.document) for one in members]
            if "apply" in request.POST:
                done = put_clusters(wanted, by=request.user, now=timezone.now())  # type: ignore[arg-type]
                messages.success(request, f"Imported {name}: {_counts(done)}.")
                return redirect("admin:clusters_membercluster_changelist")
            foreseen = [
                Put(row.name, did, row.revision) for did, row in foresee_clusters(wanted, now=timezone.now())
            ]
            lines = [one.line for one in members]
            steps = list(_steps(wanted, foreseen, lines))
        except Faults as faults:
            for fault in faults.faults:
                form.add_error(None, str(fault))
    return _page(model_admin, request, form, steps)


def _page(
    model_admin: Any, request: HttpRequest, form: ImportForm, steps: list[Step] | None
) -> TemplateResponse:
    context = {
        **model_admin.admin_site.each_context(request),
        "title": "Import clusters",
        "opts": model_admin.opts,
        "media": model_admin.media,
        "form": form,
        "steps": steps,
    }
    if steps is not None:
        name, source = form.given
        context["source"] = signing.dumps([name, source.decode("latin-1")], salt=_SALT, compress=True)
        context["source_name"] = name
        context["changing"] = sum(step.did != Did.UNCHANGED for step in steps)
    template = "admin/clusters/membercluster/import.html"
    return TemplateResponse(request, template, context, status=422 if form.errors else 200)


def _opened(signed: str) -> tuple[str, bytes]:
    try:
        name, source = signing.loads(signed, salt=_SALT, max_age=3600)
    except signing.BadSignature as error:
        raise forms.ValidationError("The preview is too old: give the file again.") from error
    return str(name), source.encode("latin-1")


def _counts(done: list[Put]) -> str:
    sorts = {did: sum(one.did is did for one in done) for did in Did}
    return ", ".join(f"{counted(count, 'cluster')} {did}" for did, count in sorts.items() if count) or "empty"


def _steps(wanted: list[Wanted], foreseen: list[Put], lines: list[int | None]) -> Iterator[Step]:
    names = [one.name for one in foreseen]
    there = dict(MemberCluster.objects.filter(name__in=names).values_list("name", "document"))
    for one, put, line in zip(wanted, foreseen, lines, strict=True):
        changes = _differences(there.get(put.name), one.document) if put.did is Did.CHANGED else ()
        yield Step(put.name, line, put.did, changes)


def _differences(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what differs in labels and taints, and that something else does."""
    old, new = before or {}, after
    labels, wanted = _labels(old), _labels(new)
    said = [
        f"{key}: {labels.get(key, NONE)} → {wanted.get(key, NONE)}"
        for key in sorted({*labels, *wanted})
        if labels.get(key) != wanted.get(key)
    ]
    gone, come = _taints(old) - _taints(new), _taints(new) - _taints(old)
    said += [f"without taint {one}" for one in sorted(gone)] + [f"with taint {one}" for one in sorted(come)]
    return tuple(said) or ("something else of its manifest or report",)


def _labels(document: Mapping[str, Any]) -> Mapping[str, str]:
    return (document.get("metadata") or {}).get("labels") or {}


def _taints(document: Mapping[str, Any]) -> set[str]:
    taints = (document.get("spec") or {}).get("taints") or []
    return {f"{one.get('key')}={one.get('value') or ''}" for one in taints}
