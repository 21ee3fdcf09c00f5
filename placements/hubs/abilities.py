"""What people may do on a live hub from here; all else that may change something is refused.

The hub decides what its objects are; this console keeps what belongs to itself, such as drafts.
"""

from collections.abc import Mapping

from fleetui.hub_scope import HubDecidesError

_MANIFEST = "Change the manifest on the hub, for example with kubectl apply."
_MEMBERSHIP = "Member clusters join, report and leave through the agents of the hub."
_ROLLOUT = "Its controllers run rollouts; change the strategy of the placement there."
_LOCAL = "This is available on the local hub only."

_WAYS: Mapping[str, tuple[str, ...]] = {
    _MEMBERSHIP: (
        "cluster-new",
        "cluster-prepare",
        "cluster-import",
        "cluster-edit",
        "cluster-leave",
        "cluster-connection",
        "cluster-connection-edit",
        "cluster-connection-check",
        "cluster-connection-renew",
        "cluster-connection-remove",
        "cluster",
        "heartbeat",
        "connection",
        "renew",
        "check",
    ),
    _ROLLOUT: (
        "cluster-removals",
        "placement-pause",
        "placement-resume",
        "placement-stop",
        "placement-start",
        "placement-unpin",
        "placement-roll-back",
        "placement-retry",
        "placement-retry-failed",
        "placement-reapply",
        "removals",
        "pause",
        "resume",
        "stop",
        "start",
        "unpin",
        "rollback",
        "retry",
        "reapply",
        "abandon-cluster",
    ),
    _LOCAL: (
        "checks-file",
        "cluster-inject-fault",
        "demo",
        "demo-load",
        "demo-remove",
        "draft-dry-run",
        "placement-reschedule",
        "resilience",
        "resource-dry-run",
        "what-if",
        "fault-injection",
        "reschedule",
    ),
}
"""How it is done on the hub, by the names of pages and of operations of REST; else by its manifest."""
_WAY_OF = {name: way for way, names in _WAYS.items() for name in names}
_ONLY_FORMS = frozenset(
    {
        "cluster",
        "cluster-removals",
        "placement-reschedule",
        "resilience",
        "what-if",
    }
)
"""Pages that show something although their form is refused."""
LOCAL_READS = frozenset({"resilience", "placement-resilience"})
"""Operations of REST that read what a live hub cannot have."""
NO_PAGES = frozenset(_WAY_OF).difference(_ONLY_FORMS) | {
    "bulk-change",
    "cluster-cordon",
    "cluster-uncordon",
    "placement-delete",
    "resource-apply",
    "resource-delete",
    "staged-run-abandon",
    "staged-run-approve",
    "staged-run-create",
    "staged-run-new",
    "staged-run-resume",
    "staged-run-retry",
    "staged-run-retry-failed",
    "staged-run-skip-wait",
    "staged-run-pause",
    "staged-strategy-delete",
    "staged-strategy-edit",
    "staged-strategy-new",
}
"""Pages that could only refuse, and are not shown."""
FORMS = frozenset(
    {
        "cluster-drain",
        "draft",
        "draft-completions",
        "draft-discard",
        "draft-hub-write",
        "draft-rebase",
        "hub-write",
        "notification-channel",
        "notification-channel-delete",
        "notification-channel-new",
        "notification-channel-switch",
        "notification-channel-test",
        "notification-rule",
        "notification-rule-delete",
        "notification-rule-new",
        "placement-cluster-read",
        "placement-edit",
        "placement-new",
        "snooze",
    }
)
"""Forms of pages that a live hub has, too: of what this console keeps, and of writes to the hub."""
SAME_IN_REST = frozenset(
    {
        "POST diffs",
        "POST exact",
        "POST plan",
        "POST preview",
        "POST preview-semantics",
        "POST read-binding-objects",
        "POST simulate",
        "POST test",
        "PUT notification-channel",
        "DELETE notification-channel",
        "PUT notification-rule",
        "DELETE notification-rule",
    }
)
"""Operations of REST that are the same there: they change nothing, or what this console keeps."""
READING = frozenset(
    {
        "prune",
        "verify_decisions",
        "credentials",
        "connect_hub",
        "hubs",
        "record_hub",
        "watch_hubs",
    }
)
"""Commands that change nothing of the hub in scope, or act on the hub that their argument names."""
_LOCAL_COMMANDS = frozenset({"fault", "load_demo"})


COMMANDS = READING | _LOCAL_COMMANDS
"""The commands that are named here; those that are requests have the rules of their operations."""


def refusal_of_page(name: str, *, is_form: bool) -> HubDecidesError | None:
    is_refused = name in NO_PAGES or (is_form and name not in FORMS)
    return HubDecidesError(_WAY_OF.get(name, _MANIFEST)) if is_refused else None


def refusal_of_operation(name: str) -> HubDecidesError:
    usual = _LOCAL if name in LOCAL_READS else _MANIFEST
    return HubDecidesError(_WAY_OF.get(name, usual))


def refusal_of_command(name: str) -> HubDecidesError | None:
    if name in READING:
        return None
    if name in _LOCAL_COMMANDS:
        return HubDecidesError(_LOCAL)
    return HubDecidesError(_MANIFEST)
