"""Requests for approval as documents: a status that says Approved approves (lifecycle B.1.7)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction

from placements.models import ApprovalRequest
from placements.operations.did import Did
from placements.operations.rollouts.hands import HandRefusedError
from placements.operations.staged.hands import approve
from placements.scheduling.door.staged_documents import parse_approval_request
from placements.scheduling.faults import Fault, Faults

APPROVAL = "approval-request"


@transaction.atomic
def apply_approval(document: Mapping[str, Any], *, by: User | None, now: datetime) -> Did:
    """Approve a stage that waits, if the document does; a run makes its requests itself. Raises Faults."""
    manifest = parse_approval_request(dict(document))
    run, stage = manifest.spec.parent_stage_rollout, manifest.spec.target_stage
    requests = ApprovalRequest.objects.filter(run__name=run, stage=stage).select_related("run")
    request = next((one for one in requests if str(one) == manifest.metadata.name), None)
    if request is None:
        message = f"stage {stage} of {run} has made no request of this name"
        raise Faults([Fault("metadata.name", "not-found", message, "a request that waits")])
    if request.approved_at or not manifest.is_approved:
        return Did.UNCHANGED
    try:
        approve(run, stage, by=by, now=now)
    except (PermissionDenied, HandRefusedError) as error:
        raise Faults([Fault("status.conditions", "forbidden", str(error), "an approver's word")]) from error
    return Did.CHANGED
