"""Placements with the state of their scheduling and rollout, and the drafts of users."""

from collections.abc import Sized
from datetime import timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.db import connection, models, transaction
from django.db.models import F, Q
from django.db.models.lookups import Exact, In

from clusters.models import HubRow
from fleetui.apimachinery.model import Semantics
from fleetui.fields import SealedTextField
from fleetui.hub_scope import LOCAL_HUB, HubManager
from placements.engine.rollout.state import Suspension
from placements.manifests.ocm import OCM_KIND
from placements.manifests.policy import PlacementType
from placements.manifests.strategy import StrategyType
from placements.models.closed_sets import known
from placements.models.full_names import LONGEST_NAMESPACE, full_name_column
from placements.models.objects import ObjectRow

LONGEST_NAME = 63
LONGEST_FULL_NAME = LONGEST_NAMESPACE + 1 + LONGEST_NAME
"""Of a placement with its namespace."""


AWAITS_DECISION = Q(
    scheduled__in=("Unknown", ""), observed_generation__lt=F("generation")
)
"""An edit has made the last decision void. A change of the fleet does not."""
UNFULFILLED = Q(is_fulfilled=False, deleting_since=None) & ~AWAITS_DECISION
"""The last decision selected fewer clusters than are wanted. One that is being deleted wants none."""


class PlacementQuerySet(models.QuerySet["Placement"]):
    """Locks several rows in the order of their keys."""

    def update(self, **columns: Any) -> int:
        """Update rows that are locked before, as PostgreSQL updates them in the order of the table.

        Who locks them in another order, and some of these at the same time, waits for the other one forever.
        """
        keys = (
            condition.rhs if isinstance(condition, In) else [condition.rhs]
            for condition in self.query.where.children
            if isinstance(condition, Exact | In)
            and getattr(condition.lhs, "target", None) == self.model._meta.pk
        )
        is_one = any(isinstance(key, Sized) and len(key) == 1 for key in keys)
        if is_one or not connection.features.has_select_for_update:
            return super().update(**columns)
        with transaction.atomic(savepoint=False):
            rows = self.select_for_update(of=("self",), no_key=True).order_by("pk")
            list(rows.values_list("pk", flat=True))
            return super().update(**columns)


class Placement(ObjectRow):
    """Which resources are placed on which clusters, and how they are rolled out.

    `namespace` is empty for one that is cluster-scoped; others refer to a placement by `full_name`.
    `document` is the manifest as it was written, without status; the columns beside it are derived from it.
    A scheduling cycle is due while `observed_generation` is behind `generation`; the worker that runs it
    holds the lease. Likewise its resources have to be selected again while `selection_observed` is behind
    `selection_generation`, and its rollout is due while `rollout_observed` is behind `rollout_generation`,
    or from `rollout_requeue_at` on. `pinned_snapshot` is the resource snapshot that a rollback pinned;
    `deletion_number` how many clusters were selected when it was deleted. `scheduled` is the condition of
    that name, unknown from an edit that needs a decision to that one; `conditions` are the others as last
    recorded, each with its value and since when. `selected_count` is how many resources the selectors match,
    None until they were evaluated; `has_newer_resources` means that these differ from the latest resource
    snapshot of a staged placement. `named_count` is how many clusters a PickFixed policy names.
    `reschedules_on_fleet_change` means that a change of the fleet may change the decision. `hub_conditions`
    are all conditions of a placement of a live hub, as that wrote them; `observe_rollout` is set when
    something changed there that its observed rollout depends on. `revision` of such a placement is the
    generation that the hub gives it, and `hub_changes` counts what else changed: metadata, status, verdicts;
    of a local placement, changes of its scheduling rules, which are annotations and raise no generation.
    `decide_again_at` is when a score expires or a toleration ends that the last decision read; without one it
    stays until something changes.
    `health` is the status (`PlacementHealth`) as the last comparison of problems found it, and `health_level`
    its level, empty before the first comparison.
    """

    namespace = models.CharField(max_length=LONGEST_NAMESPACE, blank=True, default="")
    name = models.CharField(max_length=LONGEST_NAME)
    full_name = full_name_column(LONGEST_NAME)
    is_demo = models.BooleanField(default=False)
    deleting_since = models.DateTimeField(null=True)

    placement_type = models.CharField(max_length=10)
    number_of_clusters = models.PositiveIntegerField(null=True)
    semantics = models.CharField(max_length=20)
    has_assertions = models.BooleanField(default=False)
    label_keys_read = models.JSONField(default=list)
    property_names_read = models.JSONField(default=list)
    revision_history_limit = models.PositiveIntegerField(default=10)
    named_count = models.PositiveIntegerField(null=True)
    strategy_type = models.CharField(
        max_length=13, default=StrategyType.ROLLING_UPDATE.value
    )
    unavailable_period = models.DurationField(default=timedelta(seconds=60))

    hub_changes = models.PositiveBigIntegerField(default=0, db_default=0)
    decide_again_at = models.DateTimeField(null=True)
    generation = models.PositiveBigIntegerField(default=0)
    observed_generation = models.PositiveBigIntegerField(default=0)
    selection_generation = models.PositiveBigIntegerField(default=0)
    selection_observed = models.PositiveBigIntegerField(default=0)
    trigger = models.CharField(max_length=200)
    triggered_by = models.CharField(max_length=150)
    lease_expires_at = models.DateTimeField(null=True)
    lease_token = models.CharField(max_length=32, blank=True)

    rollout_generation = models.PositiveBigIntegerField(default=0)
    rollout_observed = models.PositiveBigIntegerField(default=0)
    rollout_requeue_at = models.DateTimeField(null=True)
    rollout_lease_expires_at = models.DateTimeField(null=True)
    paused_since = models.DateTimeField(null=True)
    paused_by = models.CharField(max_length=150, blank=True)
    is_stopped = models.BooleanField(default=False)
    pinned_snapshot = models.PositiveIntegerField(null=True)
    runs_made = models.PositiveIntegerField(default=0)
    deletion_number = models.PositiveIntegerField(default=0)

    reschedules_on_fleet_change = models.BooleanField(default=True)
    is_fulfilled = models.BooleanField(null=True)
    placed_count = models.PositiveIntegerField(default=0)
    decisions_made = models.PositiveIntegerField(default=0)
    selection_faults = models.JSONField(default=list)
    selected_count = models.PositiveIntegerField(null=True)
    has_newer_resources = models.BooleanField(default=False, db_default=False)
    scheduled = models.CharField(max_length=7, blank=True)
    scheduled_since = models.DateTimeField(null=True)
    conditions = models.JSONField(default=dict)
    hub_conditions = models.JSONField(default=list)
    observe_rollout = models.BooleanField(default=False)
    health_level = models.CharField(max_length=10, default="", db_default="")
    health = models.JSONField(null=True)

    objects: ClassVar[HubManager["Placement"]] = HubManager.from_queryset(
        PlacementQuerySet
    )()

    class Meta:
        indexes = [
            models.Index(fields=["hub", "name", "full_name"], name="placement_of_hub"),
            models.Index(
                fields=["hub"],
                condition=Q(observe_rollout=True),
                name="placement_to_observe",
            ),
            models.Index(
                fields=["hub", "lease_expires_at"],
                name="placement_due",
                condition=Q(observed_generation__lt=F("generation")),
            ),
            models.Index(
                fields=["hub", "decide_again_at"],
                name="placement_to_decide_again",
                condition=Q(decide_again_at__isnull=False),
            ),
            models.Index(
                fields=["hub", "rollout_requeue_at"],
                name="placement_to_advance",
                condition=Q(rollout_observed__lt=F("rollout_generation"))
                | Q(rollout_requeue_at__isnull=False),
            ),
            models.Index(
                fields=["hub", "is_fulfilled", "full_name"],
                name="placement_by_fulfilment",
            ),
            models.Index(
                fields=["hub"],
                condition=Q(health_level=""),
                name="placement_without_status",
            ),
        ]
        constraints = [
            # The name first, for lookups through other tables, which know no hub.
            models.UniqueConstraint(
                fields=["full_name", "hub"], name="placement_full_name_once"
            ),
            models.UniqueConstraint(
                fields=["hub", "namespace", "name"], name="placement_name_once"
            ),
            models.CheckConstraint(condition=~Q(name=""), name="placement_has_name"),
            models.CheckConstraint(
                condition=Q(hub=LOCAL_HUB)
                | Q(
                    observed_generation=F("generation"),
                    selection_observed=F("selection_generation"),
                    rollout_observed=F("rollout_generation"),
                    rollout_requeue_at__isnull=True,
                    lease_expires_at__isnull=True,
                    rollout_lease_expires_at__isnull=True,
                ),
                name="mirrored_placement_is_not_due",
            ),
            models.CheckConstraint(
                condition=Q(rollout_observed__lte=F("rollout_generation")),
                name="rollout_observed_at_most_generation",
            ),
            models.CheckConstraint(
                condition=Q(observed_generation__lte=F("generation")),
                name="observed_at_most_generation",
            ),
            known("placement_type", PlacementType, "placement_type_known"),
            known("semantics", Semantics, "placement_semantics_known"),
            known("strategy_type", StrategyType, "placement_strategy_type_known"),
            models.CheckConstraint(
                condition=Q(
                    placement_type=PlacementType.PICK_N.value,
                    number_of_clusters__isnull=False,
                )
                | (
                    ~Q(placement_type=PlacementType.PICK_N.value)
                    & Q(number_of_clusters__isnull=True)
                ),
                name="placement_number_goes_with_pick_n",
            ),
            models.CheckConstraint(
                condition=Q(
                    revision_history_limit__gte=1, revision_history_limit__lte=1000
                ),
                name="placement_history_limit",
            ),
        ]

    def __str__(self) -> str:
        return self.full_name

    @property
    def resource_namespace(self) -> str:
        """Return the namespace whose resources it selects, which a cluster must have; "" where there is none.

        The namespace of an OCM Placement is a part of its name only.
        """
        return "" if self.document.get("kind") == OCM_KIND else self.namespace

    @property
    def is_staged(self) -> bool:
        return self.strategy_type == StrategyType.EXTERNAL

    @property
    def changes(self) -> int:
        """Return what increases with every change; `revision` alone does not on a live hub."""
        return self.revision + self.hub_changes

    def revision_with(self, resources: int) -> int:
        """Return the number of its revision with a resource snapshot: what every reader calls it.

        It is the generation, which every change of the spec raises, with the changes of scheduling rules, and
        the number of the snapshot, from 0 on. A pause is neither; `revision` counts it, as two edits at once
        must be noticed.
        """
        rules = 0 if self.is_mirrored else self.hub_changes
        return self.spec_generation + rules + resources

    @property
    def pinned_revision(self) -> int | None:
        """Return its revision if it is pinned: no later resources than the pinned ones are kept."""
        pinned = self.pinned_snapshot
        return None if pinned is None else self.revision_with(pinned)

    @property
    def wants_resources(self) -> bool:
        return self.selection_observed < self.selection_generation

    @property
    def is_decided(self) -> bool:
        """Return whether resources alone changed since the last decision; a cycle does not read them.

        An edit that needs a decision makes `scheduled` unknown; every other cause raises `generation` alone.
        """
        is_resources = (
            self.generation - self.observed_generation
            == self.selection_generation - self.selection_observed
        )
        was_decided = self.decisions_made > 0 and self.scheduled in ("True", "False")
        return is_resources and was_decided and not self.selection_faults

    @property
    def needs_sync(self) -> bool:
        return self.rollout_observed < self.rollout_generation

    @property
    def suspension(self) -> Suspension:
        if self.paused_since is not None:
            return Suspension.PAUSED
        if self.is_stopped:
            return Suspension.STOPPED
        return Suspension.NONE

    @property
    def is_held(self) -> bool:
        """Return whether a user keeps new updates from starting."""
        return self.suspension is not Suspension.NONE

    @property
    def is_starting(self) -> bool:
        return self.needs_sync and not self.is_held and not self.is_staged

    @property
    def is_due(self) -> bool:
        return self.observed_generation < self.generation

    @property
    def awaits_decision(self) -> bool:
        return self.scheduled in ("Unknown", "") and self.is_due

    @property
    def is_unfulfilled(self) -> bool:
        return (
            self.is_fulfilled is False
            and self.deleting_since is None
            and not self.awaits_decision
        )


class Draft(HubRow):
    """The text of a manifest as it was typed, comments included.

    `placement` is the one that it edits, None for a new or a deleted one; `base` and `revision` are its
    manifest and revision when the draft was created, or last merged with a newer saved manifest.
    """

    is_shown = False
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+"
    )
    placement = models.ForeignKey(
        Placement, models.SET_NULL, null=True, related_name="drafts"
    )
    text = SealedTextField()
    base = models.JSONField(null=True)
    revision = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["owner", "hub", "-updated_at"], name="draft_of_owner")
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "placement"],
                condition=Q(placement__isnull=False),
                name="one_draft_of_a_placement",
            ),
            models.CheckConstraint(
                condition=Q(placement__isnull=True) | Q(base__isnull=False),
                name="draft_has_base_of_placement",
            ),
        ]

    def __str__(self) -> str:
        return f"draft {self.pk} of {self.placement.full_name if self.placement else 'a new placement'}"
