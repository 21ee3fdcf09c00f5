"""The mirror of live hubs: streams, objects, what happened to bindings; credentials and writes of a hub."""

from django.db import models
from django.db.models import Q

from clusters.models.hubs import Hub, HubRow, StoredCredential

LONGEST_UID = 64


class HubCredential(StoredCredential):
    """The secret of a live hub, which the watcher reads again when `revision` changes."""

    hub = models.OneToOneField(Hub, models.CASCADE, related_name="credential")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=["token", "certificate"]),
                name="hub_credential_kind_known",
            ),
            models.CheckConstraint(
                condition=~Q(ciphertext=""), name="hub_credential_has_ciphertext"
            ),
        ]


class HubStream(HubRow):
    """One list and watch of one kind of a hub; `resource_version` is where its watch continues.

    `heard_at` is the time of the last event or bookmark; `failures` are those in a row; `events_per_minute`
    is an average since the counters were written before. `field_selector` is empty since nothing is watched
    in part. `has_removals`: objects were deleted since the last projection, which removes that mark.
    """

    is_shown = False

    group = models.CharField(max_length=253, blank=True)
    version = models.CharField(max_length=63)
    plural = models.CharField(max_length=100)
    kind = models.CharField(max_length=100)
    namespace = models.CharField(max_length=63, blank=True)
    field_selector = models.CharField(max_length=200, blank=True)
    form = models.CharField(max_length=8)
    is_required = models.BooleanField(default=False)
    state = models.CharField(max_length=9, default="idle")
    resource_version = models.CharField(max_length=64, blank=True)
    listed_at = models.DateTimeField(null=True)
    heard_at = models.DateTimeField(null=True)
    object_count = models.PositiveBigIntegerField(default=0)
    events = models.PositiveBigIntegerField(default=0)
    events_per_minute = models.FloatField(default=0)
    bytes = models.PositiveBigIntegerField(default=0)
    relists = models.PositiveBigIntegerField(default=0)
    skipped = models.PositiveBigIntegerField(default=0)
    failures = models.PositiveIntegerField(default=0)
    retry_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=500, blank=True)
    has_removals = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hub", "group", "plural", "namespace", "field_selector"],
                name="hub_stream_once",
            ),
            models.CheckConstraint(
                condition=Q(
                    state__in=[
                        "idle",
                        "listing",
                        "watching",
                        "absent",
                        "forbidden",
                        "failing",
                    ]
                ),
                name="hub_stream_state_known",
            ),
            models.CheckConstraint(
                condition=Q(form__in=["full", "metadata"]), name="hub_stream_form_known"
            ),
        ]

    def __str__(self) -> str:
        place = f" in {self.namespace}" if self.namespace else ""
        return f"{self.resource}{place}"

    @property
    def resource(self) -> str:
        return ".".join(filter(None, (self.plural, self.group)))


class MirroredObject(HubRow):
    """An object of a live hub as the mirror has it; deleted with the object.

    `manifest` is deflated JSON (see the trimming of the mirror) of `size` bytes. `owner` is the key of its
    placement, `[namespace/]name`. `digest` decides whether a change counts: of a binding it covers state and
    policy snapshot, of a cluster all that no heartbeat changes. The projection removes `is_dirty`; it records
    the paths that are `not_understood`, and why an object is not shown (`projection_error`); with one of the
    two it `is_unresolved`.
    """

    is_shown = False

    stream = models.ForeignKey(
        HubStream, models.CASCADE, db_index=False, related_name="+"
    )
    group = models.CharField(max_length=253, blank=True)
    kind = models.CharField(max_length=100)
    namespace = models.CharField(max_length=253, blank=True)
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=LONGEST_UID)
    resource_version = models.CharField(max_length=64)
    generation = models.PositiveBigIntegerField(default=0)
    owner = models.CharField(max_length=127, blank=True)
    cluster = models.CharField(max_length=253, blank=True)
    number = models.PositiveIntegerField(null=True)
    is_latest = models.BooleanField(default=False)
    is_deleting = models.BooleanField(default=False)
    manifest = models.BinaryField()
    size = models.PositiveIntegerField()
    digest = models.CharField(max_length=16, blank=True)
    heartbeat_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    is_dirty = models.BooleanField(default=True)
    not_understood = models.JSONField(default=list)
    projection_error = models.CharField(max_length=300, blank=True)
    is_unresolved = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hub", "group", "kind", "namespace", "name"],
                name="mirrored_object_once",
            )
        ]
        indexes = [
            models.Index(fields=["hub", "kind", "owner"], name="mirrored_by_owner"),
            models.Index(fields=["hub", "kind", "cluster"], name="mirrored_by_cluster"),
            models.Index(
                fields=["hub"], condition=Q(is_dirty=True), name="mirrored_dirty"
            ),
            models.Index(
                fields=["hub"],
                condition=Q(is_unresolved=True),
                name="mirrored_unresolved",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(filter(None, (self.namespace, self.name)))}"


class BindingChange(HubRow):
    """A change of a binding as a cycle sees it: state, policy snapshot, or whether it exists (Gone).

    The newest row at or before a moment is the binding at that moment.
    """

    is_shown = False

    owner = models.CharField(max_length=127)
    cluster = models.CharField(max_length=253)
    uid = models.CharField(max_length=LONGEST_UID)
    state = models.CharField(max_length=30, blank=True)
    policy_snapshot = models.CharField(max_length=253, blank=True)
    resource_version = models.CharField(max_length=64)
    seen_at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(
                fields=["hub", "owner", "seen_at"], name="binding_change_by_owner"
            ),
            models.Index(fields=["seen_at"], name="binding_change_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.owner} on {self.cluster}: {self.state}"


class HubWriteState(models.TextChoices):
    """What became of a write; `not-applied` was unknown, until the object showed that nothing came of it."""

    PLANNED = "planned"
    SENT = "sent"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    CONFLICT = "conflict"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"
    NOT_APPLIED = "not-applied"


class HubWrite(HubRow):
    """A request that a person had sent to a live hub; never changed after a final state.

    `body` has no secrets. `precondition` is the resourceVersion that it named.
    """

    at = models.DateTimeField()
    requested_by = models.CharField(max_length=150)
    verb = models.CharField(max_length=10)
    group = models.CharField(max_length=253, blank=True)
    kind = models.CharField(max_length=100)
    namespace = models.CharField(max_length=63, blank=True)
    name = models.CharField(max_length=253)
    subresource = models.CharField(max_length=30, blank=True)
    body = models.JSONField(null=True)
    dry_run_digest = models.CharField(max_length=64, blank=True)
    precondition = models.CharField(max_length=64, blank=True)
    state = models.CharField(
        max_length=11, choices=HubWriteState.choices, default=HubWriteState.PLANNED
    )
    status = models.PositiveSmallIntegerField(null=True)
    answer = models.CharField(max_length=4096, blank=True)
    resource_version_after = models.CharField(max_length=64, blank=True)
    request_id = models.CharField(max_length=64, blank=True)

    class Meta:
        indexes = [models.Index(fields=["hub", "-at", "-id"], name="hub_write_newest")]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=HubWriteState.values),
                name="hub_write_state_known",
            )
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.kind} {self.name}: {self.state}"
