"""Lines of a watch, and the state of a hub from its streams."""

from dataclasses import replace

import pytest

from placements.hubs.kinds.base import StreamKind
from placements.hubs.watching.states import StreamState, StreamStatus, condition_of
from placements.hubs.watching.watch_reader import (
    EventType,
    LineReader,
    LineTooLong,
    UnknownEventType,
    UnreadableLine,
    parse_event,
)


def test_lines_are_divided_wherever_the_pieces_are() -> None:
    content = b'{"a":1}\n\n{"b":2}\n{"c":3}\n{"cut'
    for size in range(1, len(content) + 1):
        reader = LineReader()
        pieces = [
            content[start : start + size] for start in range(0, len(content), size)
        ]

        assert [line for piece in pieces for line in reader.feed(piece)] == [
            b'{"a":1}',
            b'{"b":2}',
            b'{"c":3}',
        ]


def test_a_line_that_is_too_long_is_not_held() -> None:
    with pytest.raises(LineTooLong):
        LineReader(longest=5).feed(b"123456")
    with pytest.raises(LineTooLong):
        LineReader(longest=5).feed(b"123456\n")
    reader = LineReader(longest=5)
    reader.feed(b"123")
    with pytest.raises(LineTooLong):
        reader.feed(b"456")


@pytest.mark.parametrize(
    "line",
    [b'{"type":"ADDED"', b"[]", b"7", b'{"type":"ADDED"}', b"[" * 100_000, b"\xff"],
)
def test_an_unreadable_line_is_refused(line: bytes) -> None:
    with pytest.raises(UnreadableLine):
        parse_event(line)


def test_an_event_has_a_known_type() -> None:
    event = parse_event(
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}'
    )

    assert (event.type, event.resource_version) == (EventType.BOOKMARK, "7")
    with pytest.raises(UnknownEventType):
        parse_event(b'{"type":"MOVED","object":{}}')


AT = 1_000.0


def kind(plural: str, *, is_required: bool = True) -> StreamKind:
    return StreamKind("", plural, plural, is_required=is_required)


CLUSTERS = StreamStatus(
    kind("memberclusters"), StreamState.WATCHING, is_listed=True, heard_at=AT - 3.0
)
BINDINGS = replace(CLUSTERS, kind=kind("bindings"))
EVENTS = replace(CLUSTERS, kind=kind("events", is_required=False))
DOWN = replace(
    CLUSTERS,
    state=StreamState.FAILING,
    disconnected=AT - 61.0,
    failing=AT - 61.0,
    code="refused",
    error="refused",
)


def states(*streams: StreamStatus, rejected: str = "") -> tuple[str, str]:
    found = condition_of(streams, now=AT, rejected=rejected)
    return found.state, found.reason


def test_a_hub_is_live_while_all_required_streams_are() -> None:
    forbidden = replace(EVENTS, state=StreamState.FORBIDDEN, is_listed=False)
    failing = replace(
        EVENTS, state=StreamState.FAILING, is_listed=False, disconnected=AT - 500.0
    )

    assert states(CLUSTERS, BINDINGS, forbidden, failing) == ("live", "")


def test_a_hub_is_syncing_until_all_required_kinds_are_listed() -> None:
    listing = replace(
        BINDINGS, state=StreamState.LISTING, is_listed=False, listing=AT - 500.0
    )

    assert states(CLUSTERS, listing, EVENTS) == ("syncing", "2 of 3 kinds")
    # Several streams read the kind; it is complete when all of them are.
    incomplete = replace(EVENTS, state=StreamState.LISTING, is_listed=False)
    assert states(CLUSTERS, listing, EVENTS, EVENTS) == ("syncing", "2 of 3 kinds")
    assert states(CLUSTERS, listing, EVENTS, incomplete) == ("syncing", "1 of 3 kinds")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"heard_at": AT - 121.0},
            "bindings: nothing was received for more than 120 s",
        ),
        (
            {"state": StreamState.FAILING, "disconnected": AT - 21.0, "error": "reset"},
            "bindings: reset",
        ),
        (
            {
                "state": StreamState.LISTING,
                "listing": AT - 61.0,
                "disconnected": AT - 61.0,
            },
            "bindings is being listed again",
        ),
    ],
)
def test_a_hub_is_out_of_date_when_a_required_stream_is(
    change: dict[str, object], reason: str
) -> None:
    assert states(CLUSTERS, replace(BINDINGS, **change)) == ("stale", reason)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"heard_at": AT - 120.0},
        {"disconnected": AT - 20.0},
        {"listing": AT - 60.0, "disconnected": AT - 60.0},
    ],
)
def test_a_short_interruption_keeps_a_hub_live(change: dict[str, float]) -> None:
    assert states(CLUSTERS, replace(BINDINGS, **change))[0] == "live"  # type: ignore[arg-type]


def test_a_hub_is_unreachable_when_no_stream_gets_an_answer_for_a_minute() -> None:
    assert states(DOWN, replace(DOWN, kind=kind("bindings"))) == (
        "unreachable",
        "refused",
    )
    assert states(replace(DOWN, is_listed=False))[0] == "unreachable"
    assert states(DOWN, BINDINGS)[0] == "stale"
    assert states(replace(DOWN, failing=AT - 60.0))[0] == "stale"


def test_a_required_kind_decides_what_the_hub_refuses_or_lacks() -> None:
    forbidden = replace(BINDINGS, state=StreamState.FORBIDDEN, verb="watch")
    absent = replace(BINDINGS, state=StreamState.ABSENT)

    assert states(CLUSTERS, forbidden) == ("refused", "not allowed: watch bindings")
    assert states(CLUSTERS, absent) == ("unsuitable", "the hub does not serve bindings")
    assert states(CLUSTERS, rejected="credentials rejected (401)")[0] == "refused"
