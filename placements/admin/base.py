"""What all admins share: permissions by role, and how values are shown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from fleetui.permissions import may_operate, may_read

NONE = "–"  # noqa: RUF001 -- the dash of tables


class RoleAdmin(admin.ModelAdmin):
    """A list that counts no more than it has to; every role reads, operators add and change.

    Rows are deleted by operations only, and those of a live hub are changed by its projection only.
    """

    list_per_page = 50
    list_max_show_all = 500
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def has_module_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_read(request.user)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_operate(request.user) and current_hub_id() == LOCAL_HUB

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_view_permission, has_change_permission = (
        has_module_permission,
        has_add_permission,
    )

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, str] | None = None
    ) -> Any:
        title = str(self.opts.verbose_name_plural).capitalize()
        return super().changelist_view(
            request, {"title": title, **(extra_context or {})}
        )


def list_filter(
    title: str,
    parameter: str,
    choices: Sequence[tuple[str, str]],
    narrow: Callable[[QuerySet[Any], str], QuerySet[Any]],
) -> type[admin.SimpleListFilter]:
    """Return a filter of a list: its values with their words, and what `narrow` leaves of the rows."""

    class Filter(admin.SimpleListFilter):
        def lookups(
            self, request: HttpRequest, model_admin: Any
        ) -> Sequence[tuple[str, str]]:
            return choices

        def queryset(
            self, request: HttpRequest, queryset: QuerySet[Any]
        ) -> QuerySet[Any]:
            value = self.value()
            return narrow(queryset, value) if value else queryset

    Filter.title, Filter.parameter_name = title, parameter
    return Filter


def column(
    description: str, write: Callable[[Any], Any], *, ordering: str | None = None
) -> Any:
    """Return a column or field of an admin: what `write` makes of a row."""

    def show(_model_admin: Any, row: Any) -> Any:
        return write(row)

    return admin.display(show, description=description, ordering=ordering)


def moment(at: datetime | None) -> str:
    """Return a time: pages of the admin are not kept current, so an age would become wrong."""
    return "Never" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def badge(sort: str, words: str, more: str = "") -> SafeString:
    """Return a status as a colored word, and its message beside it."""
    word = format_html('<span class="state-{}">{}</span>', sort, words)
    return (
        format_html('{} <span class="state-why">{}</span>', word, more)
        if more
        else word
    )


def chips(links: Iterable[tuple[str, str]], *, hidden: int = 0) -> SafeString:
    """Return short texts with their links, and the number of those that are not shown."""
    visible = format_html_join(" ", '<a class="chip" href="{}">{}</a>', links)
    return (
        format_html('{} <span class="quiet">+{}</span>', visible, hidden)
        if hidden
        else visible
    )


def table(rows: Mapping[str, Any]) -> SafeString:
    if not rows:
        return format_html("{}", NONE)
    lines = format_html_join(
        "", '<tr><th scope="row">{}</th><td>{}</td></tr>', sorted(rows.items())
    )
    return format_html('<table class="facts">{}</table>', lines)
