"""Placements: the wish, and how far the answer is behind it."""

from django.db import models
from django.db.models import F, Q

from fleetui.written import WrittenField
from placements.models.closed_sets import one_of
from placements.scheduling.door.strategy import StrategyType
from placements.scheduling.policy import PlacementType
from placements.scheduling.semantics import Semantics

LONGEST_NAME = 63


class Placement(models.Model):
    """The wish: these resources, on these clusters, this carefully.

    `document` is the manifest as it was written, without status; the columns beside it are read off it.
    A scheduling cycle is due while `answered` is behind `asked`; a worker that takes it on holds the lease.
    Likewise its resources have to be selected anew while `resources_answered` is behind `resources_asked`,
    and its rollout looked at while `advance_answered` is behind `advance_asked`, or from `advance_at` on.
    `held_number` is the resource snapshot that a rollback holds it at; `deletion_number` how many clusters
    were selected when it was deleted.
    `scheduled` is the condition of that name, unknown from an edit to its decision; `conditions` are the
    others as last noted, each with its value and since when.
    `keeps_looking` says that a change of the fleet may change the answer.
    """

    name = models.CharField(max_length=LONGEST_NAME, unique=True)
    document = WrittenField()
    revision = models.PositiveBigIntegerField(default=1)
    is_demo = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    deleting_since = models.DateTimeField(null=True)

    placement_type = models.CharField(max_length=10)
    number_of_clusters = models.PositiveIntegerField(null=True)
    semantics = models.CharField(max_length=20)
    label_keys_read = models.JSONField(default=list)
    property_names_read = models.JSONField(default=list)
    revision_history_limit = models.PositiveIntegerField(default=10)

    asked = models.PositiveBigIntegerField(default=0)
    answered = models.PositiveBigIntegerField(default=0)
    resources_asked = models.PositiveBigIntegerField(default=0)
    resources_answered = models.PositiveBigIntegerField(default=0)
    asked_because = models.CharField(max_length=200)
    asked_by = models.CharField(max_length=150)
    lease_until = models.DateTimeField(null=True)
    lease_token = models.CharField(max_length=32, blank=True)

    advance_asked = models.PositiveBigIntegerField(default=0)
    advance_answered = models.PositiveBigIntegerField(default=0)
    advance_at = models.DateTimeField(null=True)
    advance_lease_until = models.DateTimeField(null=True)
    paused_since = models.DateTimeField(null=True)
    paused_by = models.CharField(max_length=150, blank=True)
    is_stopped = models.BooleanField(default=False)
    held_number = models.PositiveIntegerField(null=True)
    runs_made = models.PositiveIntegerField(default=0)
    deletion_number = models.PositiveIntegerField(default=0)

    keeps_looking = models.BooleanField(default=True)
    is_fulfilled = models.BooleanField(null=True)
    placed_count = models.PositiveIntegerField(default=0)
    decisions_made = models.PositiveIntegerField(default=0)
    selection_faults = models.JSONField(default=list)
    scheduled = models.CharField(max_length=7, blank=True)
    scheduled_since = models.DateTimeField(null=True)
    conditions = models.JSONField(default=dict)

    class Meta:
        indexes = [
            models.Index(fields=["lease_until"], name="placement_due", condition=Q(answered__lt=F("asked"))),
            models.Index(
                fields=["advance_at"],
                name="placement_to_advance",
                condition=Q(advance_answered__lt=F("advance_asked")) | Q(advance_at__isnull=False),
            ),
            models.Index(fields=["is_fulfilled", "name"], name="placement_by_fulfilment"),
        ]
        constraints = [
            models.CheckConstraint(condition=~Q(name=""), name="placement_has_name"),
            models.CheckConstraint(
                condition=Q(advance_answered__lte=F("advance_asked")), name="placement_advances_when_asked"
            ),
            models.CheckConstraint(
                condition=Q(answered__lte=F("asked")), name="placement_answers_what_asked"
            ),
            models.CheckConstraint(
                condition=one_of("placement_type", PlacementType), name="placement_type_known"
            ),
            models.CheckConstraint(
                condition=one_of("semantics", Semantics), name="placement_semantics_known"
            ),
            models.CheckConstraint(
                condition=Q(placement_type=PlacementType.PICK_N.value, number_of_clusters__isnull=False)
                | (~Q(placement_type=PlacementType.PICK_N.value) & Q(number_of_clusters__isnull=True)),
                name="placement_number_goes_with_pick_n",
            ),
            models.CheckConstraint(
                condition=Q(revision_history_limit__gte=1, revision_history_limit__lte=1000),
                name="placement_history_limit",
            ),
        ]

    def __str__(self) -> str:
        """Give its name."""
        return self.name

    @property
    def is_staged(self) -> bool:
        """Tell whether staged runs, and no rolling update, carry it out."""
        strategy = self.document["spec"].get("strategy") or {}
        return bool(strategy.get("type") == StrategyType.EXTERNAL)

    @property
    def wants_resources(self) -> bool:
        """Tell whether its resources have to be selected anew."""
        return self.resources_answered < self.resources_asked

    @property
    def wants_a_look(self) -> bool:
        """Tell whether its rollout has to be looked at, since something changed that it depends on."""
        return self.advance_answered < self.advance_asked

    @property
    def is_due(self) -> bool:
        """Tell whether a scheduling cycle is due."""
        return self.answered < self.asked
