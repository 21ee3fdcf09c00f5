"""What live hubs decided: versions of their fleets, their decisions, and the inputs of their replays."""

import json
import zlib
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any

from django.db import models
from django.db.models import Q

from clusters.models import HubRow
from placements.models.decisions import Decision, FleetRecord
from placements.models.placements import LONGEST_FULL_NAME, Placement

COALESCING = timedelta(seconds=1)
"""Changes of a fleet within this time are one version of it."""


class FleetVersion(HubRow):
    """The fleet of a live hub from one change to the next; those within a second are one version.

    `from_resource_version` is the highest resourceVersion of its clusters, "" where they are no numbers.
    `changes` has the `properties` that policies read then, and `since_version` and `since`, where the first
    of several changes started. Nothing reads `is_live`.
    """

    number = models.PositiveBigIntegerField()
    from_resource_version = models.CharField(max_length=64, blank=True)
    seen_at = models.DateTimeField()
    fleet = models.ForeignKey(FleetRecord, models.PROTECT, related_name="+")
    changes = models.JSONField(default=dict)
    is_live = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["hub", "number"], name="fleet_version_once")
        ]
        indexes = [models.Index(fields=["seen_at"], name="fleet_version_by_age")]

    def __str__(self) -> str:
        return f"version {self.number} of the fleet"


class DueJudgement(HubRow):
    """A placement of a live hub whose decision is to be recorded: what it depends on has changed.

    The row is removed when that is done; a change meanwhile sets another `due_at`, which keeps it.
    """

    is_shown = False
    placement = models.OneToOneField(
        Placement, models.CASCADE, related_name="due_judgement"
    )
    changed_at = models.DateTimeField()
    due_at = models.DateTimeField()
    lease_expires_at = models.DateTimeField(null=True)
    lease_token = models.CharField(max_length=32, blank=True)

    class Meta:
        indexes = [models.Index(fields=["hub", "due_at"], name="judgement_due")]

    def __str__(self) -> str:
        return f"placement {self.placement_id} at {self.due_at}"


class ReplayInputs(models.TextChoices):
    """How far the inputs of a replay are those that the hub had (12.2)."""

    OBSERVED = "observed"
    PRESENT = "present"
    ASSUMED = "assumed"
    NONE = "none"


class HubDecision(HubRow):
    """A state of a policy snapshot as the hub wrote it, with the inputs of our replay.

    `decision` is the replay; none where nothing can be replayed (`note` has it). `content` is deflated JSON:
    `decisions` as the hub wrote them at first, and `bindings` as they were after it. `digest` identifies the
    state, and `binding_change` is the key of the last BindingChange before it. `is_latest`: nothing newer
    was observed.
    """

    placement = models.ForeignKey(
        Placement, models.SET_NULL, null=True, related_name="hub_decisions"
    )
    placement_name = models.CharField(max_length=LONGEST_FULL_NAME)
    decision = models.OneToOneField(
        Decision, models.CASCADE, null=True, related_name="hub_decision"
    )
    is_latest = models.BooleanField(default=True)
    policy_snapshot = models.CharField(max_length=253, blank=True)
    observed_generation = models.BigIntegerField(null=True)
    condition = models.JSONField(null=True)
    content = models.BinaryField()
    digest = models.CharField(max_length=64)
    binding_change = models.PositiveBigIntegerField(default=0)
    hub_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField()
    inputs = models.CharField(
        max_length=8, choices=ReplayInputs.choices, default=ReplayInputs.NONE
    )
    fleet_version = models.ForeignKey(
        FleetVersion, models.PROTECT, null=True, related_name="+"
    )
    note = models.CharField(max_length=300, blank=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["hub", "placement_name", "-id"],
                name="hub_decision_of_placement",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["placement"],
                condition=Q(is_latest=True),
                name="one_latest_hub_decision",
            ),
            models.CheckConstraint(
                condition=Q(inputs__in=ReplayInputs.values),
                name="hub_decision_inputs_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.placement_name}: {self.policy_snapshot}"

    @cached_property
    def unpacked(self) -> Mapping[str, Any]:
        return json.loads(zlib.decompress(bytes(self.content)))

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """Return the decisions as the hub wrote them at first."""
        return self.unpacked["decisions"]

    def pack(self, **content: Any) -> None:
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        self.content = zlib.compress(text.encode(), 1)
        self.__dict__.pop("unpacked", None)
