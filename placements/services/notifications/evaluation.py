"""The messages that rules require about the problems of all hubs.

Safe to run twice at once: a message has a key that exists once.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import transaction

from clusters.hub_queries import across_hubs
from clusters.models import FleetState
from clusters.observation import LONGEST_SILENCE
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.words import counted
from fleetui.hub_scope import LOCAL_HUB
from placements.engine.problems import NOUNS, Noun
from placements.models import (
    NotificationDelivery,
    NotificationRule,
    Problem,
    ProblemKind,
)
from placements.services.problems.book import compare_due
from placements.services.problems.sources import LATE, NOT_OBSERVED

Kind, State = NotificationDelivery.Kind, NotificationDelivery.State
MOST_SINGLE = 5
"""Up to this number of new problems of a rule at once are a message each; more of them are one message."""
_MOST_LINES = 20
SHORT_SILENCE = timedelta(minutes=2)
_RESOLVED_WITHIN = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class _Message:
    rule: NotificationRule
    problem: Problem
    kind: NotificationDelivery.Kind
    key: str


def evaluate(*, now: datetime) -> int:
    """Bring the known problems up to date, and make messages; return how many are to be sent."""
    compare_due(now=now)
    return make_messages(now=now)


def matches(rule: NotificationRule, problem: Problem) -> bool:
    """Return whether a rule is about a problem: its kind, and the label of its team if it has one."""
    team = problem.labels.get(rule.label_key)
    return (
        problem.kind in rule.events
        and problem.seen_at >= rule.active_since
        and (not rule.label_key or team == rule.label_value)
    )


def _problems_with_causes(*, now: datetime) -> list[tuple[Problem, list[Problem]]]:
    """Return the open and the lately ended problems that are worth a message, each with its causes.

    A cluster that has not answered for a short time only is not, nor what follows from that. After a pause of
    the whole console each cluster gets two minutes to be observed again.
    """
    rows = Problem.objects.filter(ended_at=None) | Problem.objects.filter(
        ended_at__gte=now - _RESOLVED_WITHIN
    )
    with across_hubs():
        observing = FleetState.objects.filter(observing_since__lt=now - LONGEST_SILENCE)
        hubs = set(observing.values_list("hub_id", flat=True))
    problems = list(rows.select_related("hub").order_by("pk"))
    by_key = {
        (problem.hub_id, problem.key): problem
        for problem in problems
        if problem.ended_at is None
    }
    found = []
    for problem in problems:
        keys = [(problem.hub_id, key) for key in problem.causes]
        causes = [by_key[key] for key in keys if key in by_key]
        is_brief = all(
            cause.reason == LATE and now - cause.since < SHORT_SILENCE
            for cause in causes or [problem]
        )
        is_restart = problem.reason == NOT_OBSERVED and problem.hub_id not in hubs
        if not is_brief and not is_restart:
            found.append((problem, causes))
    return found


def quiet_until(rule: NotificationRule, now: datetime) -> datetime | None:
    """Return the end of the quiet hours that a moment is in; None outside of them."""
    if (
        rule.quiet_from is None
        or rule.quiet_until is None
        or rule.quiet_from == rule.quiet_until
    ):
        return None
    local = now.astimezone(ZoneInfo(rule.time_zone))
    for days in (-1, 0):
        day = local.date() + timedelta(days=days)
        start = datetime.combine(day, rule.quiet_from, local.tzinfo)
        crosses = rule.quiet_until <= rule.quiet_from
        end = datetime.combine(
            day + timedelta(days=crosses), rule.quiet_until, local.tzinfo
        )
        if start <= local < end:
            return end
    return None


def make_messages(*, now: datetime) -> int:
    rules = list(
        NotificationRule.objects.filter(
            is_enabled=True, channel__is_enabled=True
        ).order_by("pk")
    )
    if not rules:
        return 0
    problems = _problems_with_causes(now=now)
    deliveries: dict[tuple[int, int], dict[str, NotificationDelivery]] = defaultdict(
        dict
    )
    for delivery in NotificationDelivery.objects.filter(
        problem__in=[problem for problem, _ in problems]
    ).defer("body"):
        if delivery.rule_id and delivery.problem_id:
            deliveries[delivery.rule_id, delivery.problem_id][
                delivery.idempotence_key
            ] = delivery
    messages: list[_Message] = []
    canceled: list[int] = []
    for rule, (problem, causes) in product(rules, problems):
        if not matches(rule, problem) or any(
            cause.kind in rule.events for cause in causes
        ):
            continue
        before = deliveries[rule.pk, problem.pk]
        messages += _messages_of(rule, problem, before, now=now)
        if problem.ended_at is not None:
            canceled += [
                delivery.pk
                for delivery in before.values()
                if delivery.state == State.PENDING
            ]
    with transaction.atomic():
        # What ended before it was sent is not worth a message; nor is that it ended.
        NotificationDelivery.objects.filter(
            pk__in=canceled, state=State.PENDING, attempts=0
        ).exclude(kind=Kind.RESOLVED).update(state=State.CANCELED)
        rows_made = _deliveries(messages, now=now)
        NotificationDelivery.objects.bulk_create(
            rows_made, batch_size=500, ignore_conflicts=True
        )
    return sum(delivery.state == State.PENDING for delivery in rows_made)


def _messages_of(
    rule: NotificationRule,
    problem: Problem,
    before: dict[str, NotificationDelivery],
    *,
    now: datetime,
) -> Iterable[_Message]:
    """Yield the messages of a rule about one problem that were not created before."""
    name = f"{rule.pk}-{problem.pk}"
    first = before.get(f"{name}-problem")
    if problem.ended_at is not None:
        was_sent = first is not None and first.state in (State.SENT, State.GROUPED)
        if rule.sends_resolved and was_sent and f"{name}-resolved" not in before:
            yield _Message(rule, problem, Kind.RESOLVED, f"{name}-resolved")
        return
    if first is None:
        yield _Message(rule, problem, Kind.PROBLEM, f"{name}-problem")
    elif rule.reminder_hours and first.state == State.SENT:
        number = int(
            (now - (first.sent_at or now)) / timedelta(hours=rule.reminder_hours)
        )
        if number and f"{name}-reminder-{number}" not in before:
            yield _Message(rule, problem, Kind.REMINDER, f"{name}-reminder-{number}")


def _deliveries(
    messages: Sequence[_Message], *, now: datetime
) -> list[NotificationDelivery]:
    """Return the rows of messages; of many of one rule, kind and event the first has them all."""
    groups = grouped(
        ((message.rule.pk, message.kind, message.problem.kind), message)
        for message in messages
    )
    rows = []
    for group in groups.values():
        is_grouped = len(group) > MOST_SINGLE
        for number, message in enumerate(group):
            problems = (
                [each.problem for each in group]
                if is_grouped and not number
                else [message.problem]
            )
            title, body = message_text(message.kind, problems)
            rows.append(
                NotificationDelivery(
                    channel_id=message.rule.channel_id,
                    rule=message.rule,
                    problem=message.problem,
                    kind=message.kind,
                    idempotence_key=message.key,
                    title=title,
                    body=body,
                    state=State.GROUPED if is_grouped and number else State.PENDING,
                    due_at=quiet_until(message.rule, now) or now,
                    created_at=now,
                )
            )
    return rows


def message_text(kind: str, problems: Sequence[Problem]) -> tuple[str, str]:
    """Return title and body of a message: what, why, since when, and the links."""
    first = problems[0]
    words = str(ProblemKind(first.kind).label)
    prefix = {Kind.RESOLVED: "Resolved: ", Kind.REMINDER: "Reminder: "}.get(
        Kind(kind), ""
    )
    names = first.name if len(problems) == 1 else counted(len(problems), "problem")
    lines = [_problem_text(problem) for problem in problems[:_MOST_LINES]]
    if len(problems) > _MOST_LINES:
        lines.append(f"{len(problems) - _MOST_LINES} more: {settings.PUBLIC_URL}/")
    return f"{prefix}{words}: {names}"[:200], "\n\n".join(lines)


def _problem_text(problem: Problem) -> str:
    words = f"{NOUNS[Noun(problem.noun)]} {problem.name}: {problem.message}"
    hub = (
        ""
        if problem.hub_id == LOCAL_HUB or problem.path.startswith("/hubs/")
        else f"/hubs/{problem.hub.name}"
    )
    ended = f", until {problem.ended_at:%Y-%m-%d %H:%M} UTC" if problem.ended_at else ""
    since = f"Since {problem.since:%Y-%m-%d %H:%M} UTC{ended}."
    return f"{words}\n{since}\n{settings.PUBLIC_URL}{hub}{problem.path}"
