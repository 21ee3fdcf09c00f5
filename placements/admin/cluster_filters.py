"""What the list of clusters is narrowed down by: state, verdict, any label, words."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from clusters.listing import ClusterFilter, State, clusters_matching, groups_of, label_keys
from clusters.models import ClusterLabel, MemberCluster
from placements.explain.wording import ELIGIBILITY_WORDS

_STATE_WORDS = {
    State.ELIGIBLE: "eligible",
    State.NOT_ELIGIBLE: "not eligible",
    State.CORDONED: "cordoned",
    State.JOINING: "joining",
    State.LEAVING: "leaving",
}
_KEYS_SHOWN = 15


class StateFilter(admin.SimpleListFilter):
    """Eligible or not, cordoned, on the way in or out."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Give the states."""
        return [(state.value, words) for state, words in _STATE_WORDS.items()]

    def queryset(self, request: HttpRequest, rows: QuerySet[MemberCluster]) -> QuerySet[MemberCluster]:
        """Keep the clusters in that state."""
        wanted = self.value()
        if wanted not in set(State):
            return rows
        return rows.filter(pk__in=clusters_matching(ClusterFilter(state=State(wanted))).values("pk"))


class VerdictFilter(admin.SimpleListFilter):
    """Why a cluster is not eligible."""

    title = "reason for not being eligible"
    parameter_name = "verdict"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Give the verdicts in the words of decisions."""
        return [(kind.value, words) for kind, words in ELIGIBILITY_WORDS.items()]

    def queryset(self, request: HttpRequest, rows: QuerySet[MemberCluster]) -> QuerySet[MemberCluster]:
        """Keep the clusters with that verdict."""
        return rows.filter(verdict=self.value()) if self.value() else rows


class DemoFilter(admin.SimpleListFilter):
    """What a demo brought, or what it did not."""

    title = "demo"
    parameter_name = "demo"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Give both sides."""
        return [("yes", "demo"), ("no", "not demo")]

    def queryset(self, request: HttpRequest, rows: QuerySet[MemberCluster]) -> QuerySet[MemberCluster]:
        """Keep one side."""
        return rows.filter(is_demo=self.value() == "yes") if self.value() in ("yes", "no") else rows


class LabelFilter(admin.ListFilter):
    """Any label: `label=region:east`, or `label=region` for whoever carries the key; all of several hold.

    Keys are offered first, then the values of a key that is chosen, so thousands of values do no harm.
    """

    title = "label"
    parameter_name = "label"
    template = "admin/clusters/membercluster/label_filter.html"

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        given = params.pop(self.parameter_name, [])
        self.wanted = tuple(dict.fromkeys(one.strip() for one in given if one.strip() and "\0" not in one))
        if self.wanted:
            self.used_parameters[self.parameter_name] = list(self.wanted)

    def has_output(self) -> bool:
        """Always show it: it is a field to type into."""
        return True

    def expected_parameters(self) -> list[str | None]:
        """Name the parameter."""
        return [self.parameter_name]

    def queryset(self, request: HttpRequest, rows: QuerySet[MemberCluster]) -> QuerySet[MemberCluster]:
        """Keep the clusters that carry all of the labels."""
        if not self.wanted:
            return rows
        return rows.filter(pk__in=clusters_matching(ClusterFilter(labels=self.wanted)).values("pk"))

    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:
        """Give the whole of the filter to its template: what is chosen, and what may be chosen next."""
        yield {
            "name": self.parameter_name,
            "chosen": [
                {"display": one, "query_string": self._link(changelist, without=one)} for one in self.wanted
            ],
            "next": list(self._next(changelist)),
            "kept": [(name, value) for name, values in changelist.filter_params.items() for value in values],
        }

    def _next(self, changelist: ChangeList) -> Iterator[dict[str, str | int]]:
        """Offer the values of the keys that were chosen alone; without one, the keys."""
        alone = [one for one in self.wanted if ":" not in one]
        for key in alone:
            for value, count in groups_of([key], most=_KEYS_SHOWN)[key]:
                link = self._link(changelist, without=key, plus=f"{key}:{value}")
                yield {"display": f"{key}:{value}", "count": count, "query_string": link}
        if alone:
            return
        taken = {one.partition(":")[0] for one in self.wanted}
        by_use = sorted(label_keys(), key=lambda row: (-row[1], row[0]))
        for key, count in [row for row in by_use if row[0] not in taken][:_KEYS_SHOWN]:
            yield {"display": key, "count": count, "query_string": self._link(changelist, plus=key)}

    def _link(self, changelist: ChangeList, *, without: str = "", plus: str = "") -> str:
        left = [one for one in self.wanted if one != without]
        labels = [*left, plus] if plus else left
        return changelist.get_query_string({self.parameter_name: labels or None})


def matching_words(rows: QuerySet[MemberCluster], text: str) -> QuerySet[MemberCluster]:
    """Keep the clusters that every word finds: by part of the name, by a label's value, or as `key:value`."""
    for word in text.split():
        key, colon, value = word.replace("=", ":", 1).partition(":")
        labels = ClusterLabel.objects.filter(value=word)
        if colon:
            labels = ClusterLabel.objects.filter(key=key, value__startswith=value)
        rows = rows.filter(Q(name__contains=word.lower()) | Q(pk__in=labels.values("cluster_id")))
    return rows
