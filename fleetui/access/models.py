"""API tokens, service accounts, roles by label, and the access log."""

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q

from fleetui.access.grants import check_clusters, check_kinds, check_namespaces
from fleetui.hub_scope import LOCAL_HUB

SCOPES = ("read", "operate", "approve")
TEAM_ROLES = ("operator", "approver")
LONGEST_TOKEN_NAME = 63


class ApiToken(models.Model):
    """What a program sends as `Authorization: Token …`; only a hash of it is stored.

    `scopes` are separated by spaces; they restrict what the roles of the user allow.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="api_tokens"
    )
    name = models.CharField(max_length=LONGEST_TOKEN_NAME)
    prefix = models.CharField(max_length=16)
    digest = models.CharField(max_length=64, unique=True)
    scopes = models.CharField(max_length=40)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "API token"
        constraints = [
            models.UniqueConstraint(
                fields=["user", "name"], name="api_token_name_once"
            ),
            models.CheckConstraint(
                condition=~Q(name="") & ~Q(scopes=""),
                name="api_token_has_name_and_scope",
            ),
            models.CheckConstraint(
                condition=Q(expires_at__gt=models.F("created_at")),
                name="api_token_expires_later",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"

    @property
    def scope_names(self) -> list[str]:
        return self.scopes.split()


class ServiceAccount(models.Model):
    """A user for programs: it has roles and API tokens, and cannot log in on pages."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        primary_key=True,
        related_name="service_account",
    )
    purpose = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    def __str__(self) -> str:
        return str(self.user)


class TeamGrant(models.Model):
    """A role that a group has on one hub for placements and resources with one label, and its boundary.

    Patterns are separated by white space (`fleetui/access/grants.py`).
    """

    hub = models.ForeignKey(
        settings.HUB_MODEL,
        models.CASCADE,
        default=LOCAL_HUB,
        related_name="team_grants",
    )
    group = models.ForeignKey(Group, models.CASCADE, related_name="team_grants")
    role = models.CharField(max_length=8, choices=[(role, role) for role in TEAM_ROLES])
    key = models.CharField("label", max_length=317, help_text="For example team.")
    value = models.CharField(max_length=63, help_text="For example payments.")
    namespaces = models.TextField(
        blank=True,
        default="",
        db_default="",
        validators=[check_namespaces],
        help_text="Patterns such as payments-*, for namespaces beside those that have the label.",
    )
    kinds = models.TextField(
        blank=True,
        default="",
        db_default="",
        validators=[check_kinds],
        help_text="Cluster-scoped kinds and RBAC, such as scheduling.k8s.io/PriorityClass. Default: none.",
    )
    clusters = models.TextField(
        blank=True,
        default="",
        db_default="",
        validators=[check_clusters],
        help_text="Names such as edge-*, and labels such as region=east. Default: all clusters.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hub", "group", "role", "key", "value"], name="team_grant_once"
            ),
            models.CheckConstraint(
                condition=Q(role__in=TEAM_ROLES), name="team_grant_role_known"
            ),
            models.CheckConstraint(
                condition=~Q(key="") & ~Q(value=""), name="team_grant_has_label"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.group} is {self.role} of {self.key}={self.value} on {self.hub}"


class AccessEvent(models.Model):
    """A login, a change of access, or something refused; immutable, and of no hub.

    The actor is no foreign key: a deleted user changes no line.
    """

    at = models.DateTimeField()
    actor_name = models.CharField(max_length=150, blank=True)
    verb = models.CharField(max_length=40)
    subject = models.CharField(max_length=700, blank=True)
    address = models.CharField(max_length=64, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    details = models.JSONField(default=dict)

    class Meta:
        permissions = [("view_access_log", "Can view the access log")]
        indexes = [
            models.Index(fields=["-at", "-id"], name="access_by_time"),
            models.Index(fields=["actor_name", "-at", "-id"], name="access_of_actor"),
            models.Index(fields=["verb", "-at", "-id"], name="access_of_verb"),
        ]
        constraints = [
            models.CheckConstraint(condition=~Q(verb=""), name="access_event_has_verb"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name or '-'} {self.verb} {self.subject}"
