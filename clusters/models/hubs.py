"""Hubs: this console, and the live hubs that it is connected to; who may do what on each."""

from uuid import uuid4

from django.contrib.auth.models import Group
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q

from clusters.hub_state import HubState
from fleetui import LOCAL_HUB_NAME
from fleetui.hub_scope import LOCAL_HUB, HubManager, current_hub_id

LONGEST_HUB_NAME = 63
RESERVED_HUB_NAMES = (LOCAL_HUB_NAME, "new", "api", "admin", "static")
"""Names that no live hub may have: they have another meaning in addresses or in commands."""
HUB_ROLES = ("viewer", "operator", "approver")


class HubKind(models.TextChoices):
    LOCAL = "local"
    KUBEFLEET = "kubefleet"


class HubMode(models.TextChoices):
    READ = "read"
    OPERATE = "operate"


class HubIdentity(models.TextChoices):
    """In whose name requests are sent: one account for all, or the impersonated requester."""

    SHARED = "shared"
    IMPERSONATE = "impersonate"


class Hub(models.Model):
    """A control plane with a fleet; the row stays after a removal, because decisions refer to it.

    The local hub has the primary key 1; its `uid` identifies this installation on the member clusters.
    `connection` is not secret: server, CA, tlsServerName, proxy, context name. Empty `namespaces` are all.
    `found` has the `permissions` that the last check or discovery found. The watcher holds the lease.
    """

    uid = models.UUIDField(default=uuid4, editable=False)
    name = models.CharField(
        max_length=LONGEST_HUB_NAME,
        validators=[RegexValidator(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")],
    )
    title = models.CharField(max_length=120, blank=True)
    kind = models.CharField(
        max_length=10, choices=HubKind.choices, default=HubKind.KUBEFLEET
    )
    mode = models.CharField(max_length=7, choices=HubMode.choices, default=HubMode.READ)
    connection = models.JSONField(default=dict, blank=True)
    identity = models.CharField(
        max_length=11, choices=HubIdentity.choices, default=HubIdentity.SHARED
    )
    user_prefix = models.CharField(max_length=63, blank=True, default="fleetui:")
    group_prefix = models.CharField(max_length=63, blank=True, default="fleetui:")
    extra_groups = models.JSONField(default=list, blank=True)
    field_manager = models.CharField(max_length=128, default="fleetui")
    namespaces = models.JSONField(default=list, blank=True)
    state = models.CharField(
        max_length=11,
        choices=[
            (hub_state.value, hub_state.value.capitalize()) for hub_state in HubState
        ],
        default=HubState.NEW,
    )
    state_reason = models.CharField(max_length=500, blank=True)
    state_since = models.DateTimeField(null=True)
    is_paused = models.BooleanField(default=False)
    server_version = models.CharField(max_length=60, blank=True)
    found = models.JSONField(default=dict, blank=True)
    clock_offset_seconds = models.FloatField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    lease_token = models.CharField(max_length=32, blank=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    removed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["name"],
                condition=Q(removed_at__isnull=True),
                name="hub_name_once",
            ),
            models.CheckConstraint(condition=~Q(name=""), name="hub_has_name"),
            models.CheckConstraint(
                condition=Q(id=LOCAL_HUB) | ~Q(name__in=RESERVED_HUB_NAMES),
                name="hub_name_not_reserved",
            ),
            models.CheckConstraint(
                condition=Q(id=LOCAL_HUB, kind=HubKind.LOCAL)
                | (~Q(id=LOCAL_HUB) & ~Q(kind=HubKind.LOCAL)),
                name="local_hub_is_the_first",
            ),
            models.CheckConstraint(
                condition=~Q(id=LOCAL_HUB) | Q(removed_at__isnull=True),
                name="local_hub_is_not_removed",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=HubKind.values), name="hub_kind_known"
            ),
            models.CheckConstraint(
                condition=Q(mode__in=HubMode.values), name="hub_mode_known"
            ),
            models.CheckConstraint(
                condition=Q(identity__in=HubIdentity.values), name="hub_identity_known"
            ),
            models.CheckConstraint(
                condition=Q(state__in=list(HubState)), name="hub_state_known"
            ),
            models.CheckConstraint(
                condition=Q(state=HubState.REMOVED, removed_at__isnull=False)
                | (~Q(state=HubState.REMOVED) & Q(removed_at__isnull=True)),
                name="hub_removed_at",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_local(self) -> bool:
        return self.pk == LOCAL_HUB


class HubRow(models.Model):
    """A row that belongs to a hub; queries find those of the hub in scope, and new rows belong to it.

    Without an index of its own: SQLite would take it for as selective as any other one.
    """

    hub = models.ForeignKey(
        Hub,
        models.PROTECT,
        default=current_hub_id,
        editable=False,
        db_index=False,
        related_name="+",
    )

    objects = HubManager()

    class Meta:
        abstract = True

    @property
    def is_mirrored(self) -> bool:  # a live hub decides and acts on it
        return self.hub_id != LOCAL_HUB


class StoredCredential(models.Model):
    """The secret of a connection, encrypted, and what may be shown of it.

    `revision` increases with every change. After two consecutive 401 answers nothing makes a call until
    `blocked_until`. `renew_at` is when the token is renewed next; `notified_days`, how many days before the
    expiry the last notice was.
    """

    ciphertext = models.TextField()
    revision = models.PositiveBigIntegerField(default=1)
    kind = models.CharField(max_length=11)
    subject = models.CharField(max_length=250, blank=True)
    fingerprint = models.CharField(max_length=16)
    expires_at = models.DateTimeField(null=True)
    set_by = models.CharField(max_length=150)
    set_at = models.DateTimeField()
    unauthorized_since = models.DateTimeField(null=True)
    blocked_until = models.DateTimeField(null=True)
    renew_at = models.DateTimeField(null=True)
    renewal_error = models.CharField(max_length=200, blank=True)
    notified_days = models.PositiveSmallIntegerField(null=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.kind} {self.subject} {self.fingerprint}"


class HubGrant(models.Model):
    """A role that a group has on one hub; once a hub has any, the roles of its groups do not count there."""

    hub = models.ForeignKey(Hub, models.CASCADE, related_name="grants")
    group = models.ForeignKey(Group, models.CASCADE, related_name="hub_grants")
    role = models.CharField(max_length=8, choices=[(role, role) for role in HUB_ROLES])

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hub", "group", "role"], name="hub_grant_once"
            ),
            models.CheckConstraint(
                condition=Q(role__in=HUB_ROLES), name="hub_grant_role_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.group} is {self.role} on {self.hub}"
