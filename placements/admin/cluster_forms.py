"""The form of a cluster: it writes the manifest for the operation, and carries faults to their fields."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from django import forms
from django.forms.models import BaseInlineFormSet

from clusters.drivers.registry import SIMULATED
from clusters.models import ClusterLabel, ClusterTaint, MemberCluster
from clusters.operations.joining import CLUSTER, Wanted
from fleetui.revisions import StaleEditError, refuse_stale
from placements.scheduling.door.kinds import MEMBER_KIND, MEMBER_VERSIONS
from placements.scheduling.door.names import label_key_problem
from placements.scheduling.faults import Fault, Faults, format_path, split_path
from placements.scheduling.fleet import NO_SCHEDULE
from placements.scheduling.member import parse_member

Document = dict[str, Any]
_FIELDS: Mapping[tuple[str | int, ...], str] = {
    ("metadata", "name"): "name",
    ("spec", "identity"): "identity_name",
    ("spec", "identity", "kind"): "identity_kind",
    ("spec", "identity", "name"): "identity_name",
    ("spec", "identity", "namespace"): "identity_namespace",
    ("spec", "identity", "apiGroup"): "identity_group",
    ("spec", "heartbeatPeriodSeconds"): "heartbeat_period",
}
_IDENTITY = {"kind": "kind", "name": "name", "namespace": "namespace", "apiGroup": "group"}


class ClusterRow(forms.ModelForm):
    """A label or a taint as typed; what is wrong with it the parser says, in the words of every door."""

    key = forms.CharField(required=False, widget=forms.TextInput(attrs={"size": 50}))
    value = forms.CharField(required=False, widget=forms.TextInput(attrs={"size": 40}))

    class Meta:
        fields = ("key", "value")

    def _post_clean(self) -> None:
        """Leave the row in the database alone."""

    @property
    def pair(self) -> tuple[str, str]:
        """Give what was typed."""
        typed = self.cleaned_data if hasattr(self, "cleaned_data") else {}
        return typed.get("key", ""), typed.get("value", "")


class LabelRow(ClusterRow):
    """One label."""

    class Meta(ClusterRow.Meta):
        model = ClusterLabel


class TaintRow(ClusterRow):
    """One taint; there is one effect only."""

    class Meta(ClusterRow.Meta):
        model = ClusterTaint


class ClusterRows(BaseInlineFormSet):
    """The labels or the taints of the form; the form itself, which sees both, judges them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.instance.__dict__.setdefault("row_sets", {})[self.model] = self

    def add_fields(self, form: Any, index: int | None) -> None:
        """Take any row id: every save writes the rows anew, so an older form names rows that are gone."""
        super().add_fields(form, index)
        initial = form.fields["id"].initial
        form.fields["id"] = forms.CharField(initial=initial, required=False, widget=forms.HiddenInput)

    def validate_unique(self) -> None:
        """Leave this to the parser."""

    @property
    def rows(self) -> list[Any]:
        """Give the rows that are meant: not the deleted ones, nor those left blank."""
        self.is_valid()
        meant = [form for form in self.initial_forms if form not in self.deleted_forms]
        return [*meant, *(form for form in self.extra_forms if form.has_changed())]


class ClusterForm(forms.ModelForm):
    """Joins a cluster, or edits its manifest; saving is the operation's business."""

    name = forms.CharField(
        required=False, help_text="A DNS name of at most 63 characters; it stays for good."
    )
    driver = forms.ChoiceField(
        required=False,
        choices=[("", "none: nobody observes it"), (SIMULATED, "simulated: exists only here")],
        help_text="How this console speaks to the cluster.",
    )
    identity_kind = forms.CharField(required=False, initial="User", label="Kind")
    identity_name = forms.CharField(required=False, label="Name", help_text="Who the agent is on the hub.")
    identity_namespace = forms.CharField(required=False, label="Namespace")
    identity_group = forms.CharField(required=False, label="API group")
    heartbeat_period = forms.IntegerField(
        required=False, label="Heartbeat period", help_text="Seconds between heartbeats; 60 if left out."
    )
    started_from = forms.IntegerField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = MemberCluster
        fields = ("name", "driver")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.instance.pk:
            return
        spec = self.instance.document["spec"]
        identity = spec.get("identity") or {}
        found = {f"identity_{field}": identity.get(key, "") for key, field in _IDENTITY.items()}
        found["heartbeat_period"] = spec.get("heartbeatPeriodSeconds")
        self.initial = {**self.initial, **found, "started_from": self.instance.revision}

    def _post_clean(self) -> None:
        """Leave the instance as it is in the database."""

    def clean(self) -> dict[str, Any]:
        """Refuse a stale edit, then what the parser refuses, each fault at its field or row."""
        typed: dict[str, Any] = super().clean() or self.cleaned_data
        try:
            refuse_stale(
                CLUSTER,
                self.instance.name or typed.get("name", ""),
                expected=typed.get("started_from") or 0,
                revision=self._current_revision(typed),
            )
            parse_member(self._document(typed))
        except StaleEditError as error:
            self.add_error("name" if "name" in self.fields else None, str(error))
        except Faults as faults:
            for fault in faults.faults:
                self._place(fault)
        for fault in self._repeated_labels():
            self._place(fault, last=True)
        return typed

    @property
    def wanted(self) -> Wanted:
        """Give the cluster as it is to be."""
        driver = None if self.instance.pk else self.cleaned_data.get("driver", "")
        return Wanted(self._document(self.cleaned_data), driver=driver)

    def _current_revision(self, typed: Mapping[str, Any]) -> int:
        if self.instance.pk:
            return self.instance.revision
        taken = MemberCluster.objects.filter(name=typed.get("name", ""))
        return taken.values_list("revision", flat=True).first() or 0

    def _document(self, typed: Mapping[str, Any]) -> Document:
        """Write the manifest; what did not change is left as it was written."""
        document = deepcopy(self.instance.document) if self.instance.pk else _blank(typed.get("name", ""))
        metadata, spec = document["metadata"], document["spec"]
        _put(metadata, "labels", dict(row.pair for row in self._rows(ClusterLabel)))
        taints = [_taint(row.pair) for row in self._rows(ClusterTaint)]
        if taints != [_taint((one["key"], one.get("value") or "")) for one in spec.get("taints") or ()]:
            _put(spec, "taints", taints)
        identity = spec.setdefault("identity", {})
        for key, field in _IDENTITY.items():
            value = typed.get(f"identity_{field}", "")
            if value != identity.get(key, "") or key in ("kind", "name"):
                identity[key] = value
        if typed.get("heartbeat_period") != spec.get("heartbeatPeriodSeconds"):
            _put(spec, "heartbeatPeriodSeconds", typed.get("heartbeat_period"))
        return document

    def _rows(self, model: type) -> list[Any]:
        row_sets: dict[type, ClusterRows] = self.instance.__dict__.get("row_sets", {})
        return row_sets[model].rows if model in row_sets else []

    def _repeated_labels(self) -> Iterator[Fault]:
        """Find keys that stand twice, which a manifest could not even say."""
        seen: set[str] = set()
        for key, _ in (row.pair for row in self._rows(ClusterLabel)):
            if key in seen:
                path = format_path(("metadata", "labels", key))
                yield Fault(path, "duplicate", "stands twice in the same object", "each key once")
            seen.add(key)

    def _place(self, fault: Fault, *, last: bool = False) -> None:
        """Put a fault where it belongs: at the row of its label or taint, at its field, or above all."""
        match split_path(fault.path):
            case ("metadata", "labels", str(key)):
                rows = [row for row in self._rows(ClusterLabel) if row.pair[0] == key]
                rows[-1 if last else 0].add_error(_label_field(key, rows[0], last=last), str(fault))
            case ("spec", "taints", int(index), *rest):
                field = rest[0] if rest and rest[0] in ("key", "value") else "key"
                self._rows(ClusterTaint)[index].add_error(field, str(fault))
            case keys:
                found = _FIELDS.get(keys)
                self.add_error(found if found in self.fields else None, str(fault))


def _label_field(key: str, row: forms.ModelForm, *, last: bool) -> str:
    is_key = last or (label_key_problem(key) is not None and "key" not in row.errors)
    return "key" if is_key else "value"


def _blank(name: str) -> Document:
    return {"apiVersion": MEMBER_VERSIONS[0], "kind": MEMBER_KIND, "metadata": {"name": name}, "spec": {}}


def _taint(pair: tuple[str, str]) -> dict[str, str]:
    key, value = pair
    return {"key": key, **({"value": value} if value else {}), "effect": NO_SCHEDULE}


def _put(holder: Document, key: str, value: Any) -> None:
    """Write a value; an empty one takes away what was there, and adds no key."""
    if value or holder.get(key):
        holder[key] = value
    if not holder.get(key):
        holder.pop(key, None)
