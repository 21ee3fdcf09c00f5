"""Roles of groups on single hubs, for superusers only."""

from django.contrib import admin

from clusters.models import HubGrant
from fleetui.access.admin import RecordedAdmin


@admin.register(HubGrant)
class HubGrantsAdmin(RecordedAdmin, admin.ModelAdmin):
    list_display = ("hub", "group", "role")
    list_filter = ("hub", "role")
