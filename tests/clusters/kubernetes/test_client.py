"""The HTTP client against a local server that misbehaves (`rules/kubernetes-driver.md#client`)."""

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes import client as module
from clusters.drivers.kubernetes import sockets
from clusters.drivers.kubernetes.client import (
    APPLY_PATCH,
    LONGEST_WARNING,
    MOST_WARNINGS,
    Client,
    Response,
    parse_warnings,
)
from clusters.drivers.kubernetes.configuration import Connection
from clusters.drivers.kubernetes.sockets import AddressRules, IdleSockets
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import (
    Behaviour,
    LocalServer,
    Request,
    always,
    answer,
    connect_proxy,
    drip,
    endless,
    freeze,
    reset,
    serve,
    status_body,
    truncate,
)

RULES = AddressRules(allow_loopback=True)
TOKEN = "marker-token"
POD = {"kind": "Pod", "apiVersion": "v1"}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
HTML = b"<html>internal secret of a proxy</html>"


OPEN: list[Client] = []


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def client_of(
    member: LocalServer, *, rules: AddressRules = RULES, **changes: Any
) -> Client:
    connection = Connection(member.url, ca=authority().pem)
    return make(replace(connection, **changes), rules=rules)


def make(
    connection: Connection,
    secret: Callable[[], Mapping[str, str]] = lambda: {"token": TOKEN},
    *,
    rules: AddressRules = RULES,
    monotonic: Callable[[], float] = time.monotonic,
) -> Client:
    OPEN.append(Client(connection, secret, rules=rules, monotonic=monotonic))
    return OPEN[-1]


def get(
    client: Client, path: str = "/api/v1/pods", *, seconds: float = 2.0
) -> Response:
    return client.request("GET", path, deadline=time.monotonic() + seconds)


def unavailable(
    client: Client, path: str = "/api/v1/pods", *, seconds: float = 2.0
) -> DriverUnavailable:
    with pytest.raises(DriverUnavailable) as error:
        get(client, path, seconds=seconds)
    assert TOKEN not in str(error.value)
    return error.value


def outcome_of(
    behave: Behaviour, path: str = "/api/v1/pods", *, seconds: float = 2.0
) -> DriverUnavailable:
    with serve(behave) as server:
        return unavailable(client_of(server), path, seconds=seconds)


def test_sends_what_it_should_and_returns_json() -> None:
    body = {"name": "é\u2028\x7f"}
    with serve(always(answer(201, POD))) as server:
        client = client_of(server)

        found = client.request(
            "PATCH",
            "/api/v1/pods/a",
            deadline=time.monotonic() + 2,
            query={"fieldManager": "fleetui", "labelSelector": "a=b"},
            body=body,
            content_type=APPLY_PATCH,
        )

    assert found == Response(201, POD)
    (request,) = server.requests
    assert (request.method, request.path) == (
        "PATCH",
        "/api/v1/pods/a?fieldManager=fleetui&labelSelector=a%3Db",
    )
    assert request.body.decode() == '{"name":"é\\u2028\\u007f"}'
    wanted = {
        "accept": "application/json",
        "accept-encoding": "gzip",
        "authorization": f"Bearer {TOKEN}",
        "content-type": APPLY_PATCH,
        "user-agent": "fleetui (cluster-driver)",
        "host": f"127.0.0.1:{server.port}",
    }
    assert wanted.items() <= request.headers.items()


def test_a_path_of_the_server_comes_first() -> None:
    with serve(always(answer(200, POD))) as server:
        get(client_of(server, server=f"{server.url}/k8s/clusters/c-1"))

    assert server.requests[0].path == "/k8s/clusters/c-1/api/v1/pods"


def test_uses_a_socket_again_and_reads_gzip() -> None:
    body = gzip.compress(json.dumps(POD).encode())
    with serve(
        always(answer(200, raw=body, headers={"Content-Encoding": "gzip"}))
    ) as server:
        client = client_of(server)

        found = [get(client) for _ in range(3)]

    assert found == [Response(200, POD)] * 3
    assert server.connections == 1


def test_a_server_that_closes_after_each_answer_is_read() -> None:
    with serve(always(answer(200, POD, headers={"Connection": "close"}))) as server:
        client = client_of(server)

        assert [get(client) for _ in range(2)] == [Response(200, POD)] * 2
        assert client.idle_sockets == 0


def test_a_large_chunked_answer_is_read() -> None:
    items = json.dumps({"kind": "List", "items": ["x" * 70] * 10_000}).encode()
    chunks = b"".join(
        b"%x\r\n%b\r\n"
        % (len(items[start : start + 5000]), items[start : start + 5000])
        for start in range(0, len(items), 5000)
    )
    with serve(
        always(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    ) as server:
        client = client_of(server)

        assert [len(get(client).body["items"]) for _ in range(2)] == [10_000] * 2
        assert server.connections == 1


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("behave", "code"),
    [
        pytest.param(freeze, "timeout", id="frozen"),
        pytest.param(
            drip(HEAD + b"Content-Length: 100000\r\n\r\n"),
            "timeout",
            id="dripping body",
        ),
        pytest.param(drip(HEAD, b"X"), "timeout", id="dripping header"),
        pytest.param(
            drip(b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n"),
            "broken",
            id="nothing but continue",
        ),
        pytest.param(
            drip(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
            "timeout",
            id="dripping chunks",
        ),
        pytest.param(
            drip(
                HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"{}")[:10],
                b"\x00\x00\x00\xff\xff",
            ),
            "timeout",
            id="dripping gzip",
        ),
        pytest.param(truncate, "broken", id="truncated"),
        pytest.param(reset, "broken", id="reset"),
        pytest.param(always(b"\x16\x03 what\r\n\r\n"), "broken", id="not HTTP"),
        pytest.param(always(answer(200, raw=HTML)), "not-kubernetes", id="HTML"),
        pytest.param(always(answer(200, raw=b"")), "not-kubernetes", id="empty"),
        pytest.param(always(answer(200, [1])), "not-kubernetes", id="a list"),
        pytest.param(
            always(answer(200, raw=b"[" * 100_000)), "not-kubernetes", id="deep"
        ),
        pytest.param(
            always(answer(302, raw=HTML, headers={"Location": "https://127.0.0.1/"})),
            "not-kubernetes",
            id="redirect",
        ),
        pytest.param(
            always(answer(307, status_body(307), headers={"Location": "/x"})),
            "not-kubernetes",
            id="redirect with a Status",
        ),
        pytest.param(
            always(answer(403, raw=HTML)), "not-kubernetes", id="403 of a proxy"
        ),
        pytest.param(
            always(answer(404, raw=b"404 page not found")),
            "no-such-path",
            id="404 as text",
        ),
        pytest.param(always(answer(401, raw=HTML)), "credentials", id="401"),
        pytest.param(
            always(answer(401, status_body(401))), "credentials", id="401 with a Status"
        ),
        pytest.param(always(answer(500, raw=HTML)), "http-500", id="500 of a proxy"),
        pytest.param(always(answer(502, raw=HTML)), "http-502", id="502"),
        pytest.param(always(answer(503, status_body(503))), "http-503", id="503"),
        pytest.param(always(answer(504, status_body(504))), "http-504", id="504"),
        pytest.param(always(answer(408, raw=HTML)), "http-408", id="408"),
        pytest.param(always(answer(425, status_body(425))), "http-425", id="425"),
        pytest.param(always(answer(429, status_body(429))), "http-429", id="429"),
        pytest.param(
            always(answer(200, raw=b"x" * 20, headers={"Content-Encoding": "gzip"})),
            "broken",
            id="bad gzip",
        ),
    ],
)
def test_unavailable_in_time_and_without_a_quotation(
    behave: Behaviour, code: str
) -> None:
    started = time.monotonic()

    error = outcome_of(behave, seconds=0.3)

    assert error.code == code
    assert time.monotonic() - started < 0.8
    assert "secret of a proxy" not in str(error)


def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_BODY", 1024 * 1024)

    error = outcome_of(endless)

    assert (error.code, str(error)) == ("too-large", "the answer has more than 1 MiB")


def test_a_compressed_answer_counts_by_its_content(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LARGEST_BODY", 1024 * 1024)
    bomb = gzip.compress(b" " * 8 * 1024 * 1024)

    error = outcome_of(
        always(answer(200, raw=bomb, headers={"Content-Encoding": "gzip"}))
    )

    assert error.code == "too-large"


def test_an_answer_that_is_compressed_too_well_is_no_answer() -> None:
    objects = b"".join(b'{"name": "object-%d"},' % number for number in range(100_000))
    bomb, dense = (
        gzip.compress(b" " * 2 * 1024 * 1024),
        gzip.compress(b'{"items": [%s 1]}' % objects),
    )
    assert len(objects) > 2 * 1024 * 1024

    error = outcome_of(
        always(answer(200, raw=bomb, headers={"Content-Encoding": "gzip"}))
    )

    assert (error.code, str(error)) == (
        "too-large",
        "the answer is compressed more than 100 times",
    )
    with serve(
        always(answer(200, raw=dense, headers={"Content-Encoding": "gzip"}))
    ) as server:
        assert get(client_of(server)).status == 200


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("status", "body"),
    [
        *(
            (400, "BadRequest"),
            (403, "Forbidden"),
            (404, "NotFound"),
            (409, "Conflict"),
            (422, "Invalid"),
        ),
        *(
            (405, "MethodNotAllowed"),
            (410, "Gone"),
            (413, ""),
            (415, ""),
            (500, "InternalError"),
        ),
    ],
)
def test_an_answer_with_a_status_is_returned(status: int, body: str) -> None:
    with serve(always(answer(status, status_body(status, body)))) as server:
        assert get(client_of(server)) == Response(status, status_body(status, body))


@pytest.mark.parametrize(
    "path", ["/api/v1", "/apis", "/apis/none.example.com/v1", "/apis/none.example.com"]
)
def test_an_unknown_group_may_answer_by_text(path: str) -> None:
    with serve(always(answer(404, raw=b"404 page not found"))) as server:
        assert get(client_of(server), path) == Response(404, {})


def test_readyz_is_text() -> None:
    with serve(always(answer(200, raw=b"ok"))) as server:
        assert get(client_of(server), "/readyz") == Response(200, {}, "ok")
    with serve(always(answer(500, raw=b"[-]etcd failed: reason withheld\n"))) as server:
        assert get(client_of(server), "/readyz") == Response(
            500, {}, "[-]etcd failed: reason withheld\n"
        )
    assert outcome_of(always(answer(200, raw=HTML)), "/readyz").code == "not-kubernetes"
    assert (
        outcome_of(always(answer(401, status_body(401))), "/readyz").code
        == "credentials"
    )


@pytest.mark.parametrize(
    ("header", "pause"),
    [
        ("7", 7.0),
        ("0", 1.0),
        ("-5", None),
        ("86400", 60.0),
        ("9" * 5000, 60.0),
        ("soon", None),
    ],
)
def test_retry_after_is_bounded(header: str, pause: float | None) -> None:
    error = outcome_of(
        always(answer(503, status_body(503), headers={"Retry-After": header}))
    )

    assert (error.code, error.retry_after) == ("http-503", pause)


def test_retry_after_may_be_a_time() -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)

    error = outcome_of(
        always(answer(429, status_body(429), headers={"Retry-After": until}))
    )

    assert 27 < (error.retry_after or 0) <= 30


def test_no_request_during_the_pause() -> None:
    now = [1000.0]
    with serve(
        always(answer(429, status_body(429), headers={"Retry-After": "7"}))
    ) as server:
        connection = Connection(server.url, ca=authority().pem)
        client = make(connection, monotonic=lambda: now[0])

        def attempt() -> DriverUnavailable:
            with pytest.raises(DriverUnavailable) as error:
                client.request("GET", "/api/v1", deadline=now[0] + 2)
            return error.value

        first, second = attempt(), attempt()
        assert (first.retry_after, second.code, second.retry_after) == (
            7.0,
            "http-429",
            7.0,
        )
        assert len(server.requests) == 1

        now[0] += 7.1
        attempt()
        assert len(server.requests) == 2


STARTING = status_body(429) | {"message": "storage is (re)initializing"}


def test_a_request_is_repeated_while_the_storage_of_a_new_kind_is_prepared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    answers = [answer(429, STARTING, headers={"Retry-After": "1"}), answer(200, POD)]

    def behave(link: socket.socket, request: Request, server: LocalServer) -> None:
        link.sendall(answers.pop(0))

    with serve(behave) as server:
        found = client_of(server).request(
            "GET", "/api/v1/pods", deadline=time.monotonic() + 5
        )

    assert (found.status, pauses, answers) == (200, [1.0], [])


def test_a_kind_that_is_not_ready_in_time_pauses_no_other_request() -> None:
    answers = [answer(429, STARTING, headers={"Retry-After": "7"}), answer(200, POD)]

    def behave(link: socket.socket, request: Request, server: LocalServer) -> None:
        link.sendall(answers.pop(0))

    with serve(behave) as server:
        client = client_of(server)
        with pytest.raises(
            DriverUnavailable,
            match="429: the API server prepares the storage of a new kind",
        ):
            client.request("GET", "/api/v1/pods", deadline=time.monotonic() + 5)
        assert (
            client.request("GET", "/api/v1/nodes", deadline=time.monotonic() + 5).status
            == 200
        )


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        (
            {
                "X-Kubernetes-PF-FlowSchema-UID": "a",
                "X-Kubernetes-PF-PriorityLevel-UID": "b",
            },
            "429: the API server limits the requests of this account; continuing in 1 s",
        ),
        (
            {"Content-Type": "text/plain; charset=utf-8"},
            "429: the API server limits the requests of this account; continuing in 1 s",
        ),
        ({"Content-Type": "text/html"}, "429, and not from an API server"),
    ],
)
def test_a_refusal_of_priority_and_fairness_is_named(
    headers: dict[str, str], words: str
) -> None:
    refusal = b"Too many requests, please try again later.\n"

    error = outcome_of(
        always(answer(429, raw=refusal, headers={"Retry-After": "1", **headers}))
    )

    assert str(error) == words


def test_warnings_are_read_from_the_headers_within_bounds() -> None:
    lines = [
        f'299 - "{text}"'
        for text in [
            'use \\"v1\\"\x01',
            "x" * 400,
            "",
            "old",
            "old",
            *map(str, range(20)),
        ]
    ]

    found = parse_warnings(", ".join(lines))

    assert len(found) == MOST_WARNINGS
    assert found[:4] == ('use "v1"', "x" * LONGEST_WARNING, "old", "0")
    assert parse_warnings('299 - "' + "größer".encode().decode("latin-1") + '"') == (
        "größer",
    )
    assert (
        parse_warnings(None)
        == parse_warnings("299 -")
        == parse_warnings('299 - "never ends')
        == ()
    )


def test_the_warnings_of_an_answer_are_kept_with_it() -> None:
    headers = {"Warning": '299 - "v1 Endpoints is deprecated"'}

    with serve(always(answer(200, POD, headers=headers))) as server:
        assert get(client_of(server)).warnings == ("v1 Endpoints is deprecated",)


def test_four_requests_at_a_time() -> None:
    running, most = [0], [0]
    lock = threading.Lock()

    def behave(link: socket.socket, request: Request, server: LocalServer) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        server.stopped.wait(0.05)
        with lock:
            running[0] -= 1
        link.sendall(answer(200, POD))

    with serve(behave) as server:
        client = client_of(server)
        threads = [threading.Thread(target=get, args=(client,)) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert (len(server.requests), most[0], server.connections) == (10, 4, 4)


def test_waiting_for_others_counts_against_the_deadline() -> None:
    with serve(freeze) as server:
        client = client_of(server)
        threads = [
            threading.Thread(
                target=unavailable, args=(client,), kwargs={"seconds": 0.6}
            )
            for _ in "four"
        ]
        for thread in threads:
            thread.start()
        while len(server.requests) < 4:
            time.sleep(0.005)
        started = time.monotonic()

        error = unavailable(client, seconds=0.1)

        assert error.code == "timeout"
        assert time.monotonic() - started < 0.4
        for thread in threads:
            thread.join()


def test_tls_errors() -> None:
    expired = authority().issue(days=-1)
    other = authority("other").issue()
    elsewhere = authority().issue("elsewhere", "elsewhere.test")
    for pair, words in (
        (expired, "certificate has expired"),
        (other, "unable to get local issuer certificate"),
        (elsewhere, "IP address mismatch"),
    ):
        with serve(always(answer(200, POD)), pair=pair) as server:
            error = unavailable(client_of(server))
        assert error.code == "tls", words
        assert words in str(error)
        assert server.requests == []
    with serve(
        freeze, plain=True, greeting=b"HTTP/1.1 400 Bad Request\r\n\r\n"
    ) as server:
        assert unavailable(client_of(server)).code == "tls"
    with serve(always(answer(200, POD))) as server:
        assert unavailable(client_of(server, ca="")).code == "tls"


def test_the_name_of_the_certificate_may_be_another() -> None:
    with serve(
        always(answer(200, POD)), pair=authority().issue("a", "elsewhere.test")
    ) as server:
        assert get(client_of(server, tls_server_name="elsewhere.test")).status == 200


def test_insecure_tls_needs_permission_at_each_connection() -> None:
    with serve(always(answer(200, POD)), pair=authority("other").issue()) as server:
        allowed = replace(RULES, allow_insecure_tls=True)

        assert (
            get(client_of(server, ca="", insecure_tls=True, rules=allowed)).status
            == 200
        )
        error = unavailable(client_of(server, ca="", insecure_tls=True))

    assert error.code == "tls-insecure-not-allowed"
    assert len(server.requests) == 1


def test_a_client_certificate() -> None:
    pair = authority().issue("admin")
    with serve(always(answer(200, POD)), client_ca=authority()) as server:
        connection = Connection(server.url, ca=authority().pem)
        secret = {"certificate": pair.certificate, "key": pair.key}

        assert get(make(connection, lambda: secret)).status == 200
        assert "authorization" not in server.requests[0].headers
        assert unavailable(client_of(server)).code in ("tls", "broken")


def test_refused_and_dns() -> None:
    with serve(always(b"")) as server:
        client = client_of(server)
    assert unavailable(client).code == "refused"

    def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror

    error = unavailable(
        client_of(
            server, server="https://none.test", rules=replace(RULES, resolve=resolve)
        )
    )
    assert (error.code, str(error)) == (
        "dns",
        "name not resolved: none.test has no address",
    )


def test_name_servers_that_do_not_answer() -> None:
    stopped = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        stopped.wait()
        return []

    rules = replace(RULES, resolve=resolve)
    started = time.monotonic()
    error = unavailable(
        make(Connection("https://a.test"), dict, rules=rules), seconds=1
    )
    stopped.set()

    assert error.code == "dns"
    assert time.monotonic() - started < 2


def test_every_connection_resolves_and_checks_its_address_again() -> None:
    answers = [["127.0.0.1"], ["169.254.169.254"]]

    def resolve(host: str, port: int) -> list[str]:
        return answers.pop(0)

    with serve(always(answer(200, POD))) as server:
        url = f"https://member.test:{server.port}"
        client = client_of(server, server=url, rules=replace(RULES, resolve=resolve))
        assert get(client).status == 200
        client.close_idle(seconds=0)

        error = unavailable(client)

    assert (error.code, answers) == ("address", [])
    assert "169.254.169.254" in str(error)
    assert server.requests[0].headers["host"] == f"member.test:{server.port}"


def test_loopback_needs_permission() -> None:
    with serve(always(answer(200, POD))) as server:
        error = unavailable(client_of(server, rules=AddressRules()))

    assert (error.code, server.connections) == ("address", 0)
    assert "FLEETUI_MEMBER_LOOPBACK=1" in str(error)


def test_the_next_address_is_tried() -> None:
    with serve(always(answer(200, POD))) as server:
        rules = replace(RULES, resolve=lambda host, port: ["127.0.0.9", "127.0.0.1"])

        assert (
            get(
                client_of(
                    server, server=f"https://member.test:{server.port}", rules=rules
                )
            ).status
            == 200
        )


def test_a_killed_server_is_noticed_on_the_next_use() -> None:
    with serve(always(answer(200, POD))) as server:
        client = client_of(server)
        get(client)
        assert client.idle_sockets == 1
    deadline = time.monotonic() + 2
    while server.closed < server.connections and time.monotonic() < deadline:
        client.close_idle(seconds=0)
        time.sleep(0.005)

    assert unavailable(client).code == "refused"


def test_idle_sockets_are_closed() -> None:
    now = [0.0]
    with serve(always(answer(200, POD))) as server:
        connection = Connection(server.url, ca=authority().pem)
        client = make(connection, monotonic=lambda: now[0])
        client.request("GET", "/api/v1/pods", deadline=2.0)

        now[0] = 19.9
        client.close_idle()
        assert client.idle_sockets == 1
        now[0] = 20.0
        client.close_idle()
        assert client.idle_sockets == 0


def test_a_client_that_was_closed_keeps_no_connection() -> None:
    with serve(always(answer(200, POD))) as server:
        client = client_of(server)
        client.close()
        before = len(sockets.idle_sockets)

        client.connect(time.monotonic() + 2)  # by a thread that had begun before

        assert (client.idle_sockets, len(sockets.idle_sockets)) == (0, before)


def test_of_too_many_idle_sockets_the_oldest_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "idle_sockets", IdleSockets(most=2))
    with serve(always(answer(200, POD))) as server:
        clients = [client_of(server) for _ in range(4)]
        for client in clients:
            get(client)
        assert [client.idle_sockets for client in clients] == [0, 0, 1, 1]

        get(clients[2])  # used again, so that it is the newest
        get(clients[0])

        assert [client.idle_sockets for client in clients] == [1, 0, 1, 0]
        assert (len(sockets.idle_sockets), server.connections) == (2, 5)
        for client in clients:
            client.close()
        assert len(sockets.idle_sockets) == 0


def test_the_secret_is_read_when_a_socket_is_opened() -> None:
    tokens = iter(["first", "second"])

    def secret() -> Mapping[str, str]:
        return {"token": next(tokens)}

    with serve(always(answer(200, POD))) as server:
        client = make(Connection(server.url, ca=authority().pem), secret)
        get(client)
        get(client)
        client.close_idle(seconds=0)
        get(client)

    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer first", "Bearer first", "Bearer second"]


def test_in_cluster_the_token_is_read_for_each_request() -> None:
    tokens = iter(["first", "second"])
    with serve(always(answer(200, POD))) as server:
        connection = Connection(server.url, ca=authority().pem, in_cluster=True)
        client = make(connection, lambda: {"token": next(tokens)})
        get(client)
        get(client)

    assert [request.headers["authorization"] for request in server.requests] == [
        "Bearer first",
        "Bearer second",
    ]


def test_a_slow_reader_does_not_hold_a_call() -> None:
    """The server stops reading in the middle of a large body."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stopped = threading.Event()

    def accept() -> None:
        link, _ = listener.accept()
        with link:
            stopped.wait()

    threading.Thread(target=accept, daemon=True).start()
    client = make(
        Connection(f"https://127.0.0.1:{listener.getsockname()[1]}"),
        lambda: {"token": TOKEN},
    )
    started = time.monotonic()

    error = unavailable(client, seconds=0.3)

    assert (error.code, time.monotonic() - started < 0.8) == ("timeout", True)
    stopped.set()
    listener.close()


def test_a_proxy() -> None:
    with serve(always(answer(200, POD))) as server, connect_proxy() as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        rules = replace(RULES, proxies=frozenset({url}))

        client = client_of(server, proxy=url, rules=rules)
        assert get(client).status == 200
        assert proxy.requests[0].path == f"127.0.0.1:{server.port}"
        assert "authorization" not in proxy.requests[0].headers
        assert server.requests[0].headers["authorization"] == f"Bearer {TOKEN}"
        client.close_idle(seconds=0)

        assert unavailable(client_of(server, proxy=url)).code == "proxy"
        denied = make(Connection("https://169.254.169.254", proxy=url), rules=rules)
        assert unavailable(denied).code == "address"
    assert unavailable(client_of(server, proxy=url, rules=rules)).code == "proxy"


def test_a_proxy_that_refuses() -> None:
    with serve(always(answer(200, POD))) as server, connect_proxy(status=407) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"

        error = unavailable(
            client_of(server, proxy=url, rules=replace(RULES, proxies=frozenset({url})))
        )

    assert (error.code, server.connections) == ("proxy", 0)


def test_environment_variables_of_proxies_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with serve(always(answer(200, POD))) as server:
        assert get(client_of(server)).status == 200


def test_an_error_of_the_secret_passes() -> None:
    def secret() -> Mapping[str, str]:
        raise DriverUnavailable("cannot be decrypted", code="credentials-unreadable")

    with serve(always(answer(200, POD))) as server:
        client = make(Connection(server.url, ca=authority().pem), secret)
        assert unavailable(client).code == "credentials-unreadable"
        assert unavailable(client).code == "credentials-unreadable"  # no slot is lost


def test_repr_has_no_secret() -> None:
    with serve(always(answer(200, POD))) as server:
        client = client_of(server)
        get(client)

        assert TOKEN not in repr(client)
