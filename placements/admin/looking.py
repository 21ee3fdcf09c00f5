"""What every list shares that is there to look at."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from placements.admin.access import ReadOnly


class LookOnly(ReadOnly, admin.ModelAdmin):
    """A list that counts no more than it has to, and pages without a form."""

    list_per_page = 50
    list_max_show_all = 500
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    actions = None

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, str] | None = None) -> Any:
        """Show the list under its own name."""
        title = str(self.opts.verbose_name_plural).capitalize()
        return super().changelist_view(request, {"title": title, **(extra_context or {})})
