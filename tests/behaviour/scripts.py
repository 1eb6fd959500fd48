"""Conversations with real processes of one node each, as data: what is started, and what is said to it.

`P1`, `P2`, … are ports and `FOLDER` is the folder that it runs in; each run has its own. A log keeps its scripts, so
that a later version is told the same, with the words that it has for it now.
"""

from __future__ import annotations

from typing import Any, NamedTuple

BASIC = "Basic bXlfdXNlcjpteV9wYXNz"
"""my_user:my_pass"""
RUN_FILE = """\
cluster: {name: c1, node: a}
election: {name: main, strategy: raft}
control: {public: "127.0.0.1:P1"}
"""
LEASE_FILE = """\
cluster: {name: c1, node: a}
election: {name: main, strategy: lease, store: {url: "sqlite:///FOLDER/leases.db"}}
control: {public: "127.0.0.1:P1"}
"""
MANAGER_FILE = """\
cluster: {node: n5, user: my_user, pass: my_pass, manager: {type: join_server, addr: "127.0.0.1:P1"}}
election: {strategy: STRATEGY}
control: {public: "127.0.0.1:P2"}
"""
SLOTS_FILE = """\
slots:
  addr: "127.0.0.1:P2"
  users: {pepe: passw0rd}
  "000": {kind: simple_memory}
  "001": {kind: timeout_memory, timeout: 60}
  "002": {kind: atomic, users: {pepe: a}}
  "010": {kind: token_bucket, bucket_size: 10, period: hour, refresh_rate: 5, tokens_per_req: 2}
  "011": {kind: leaky_bucket, bucket_size: 2, refresh_rate: 600000}
  "012": {kind: ticker, initial_value: 100, refresh_rate: 600000}
  "014": {kind: broadcast}
  "015": {kind: multicast}
control: {public: "127.0.0.1:P1"}
"""
SLOTS_SAID = (
    "r000\nw000Hello\nr000\nr999\nx\nw001mine\nr001\nr002\nupepe\nppassw0rd\nr002\nr002\nr010\nw010x\nr011\nr011\nr011\n"
    "r012\nw012nope\nw0127\nr012\nw014all\ns014\ns015\nw015some\nd015\n" + "r000" + "x" * 60 + "\nq\n"
)
CACHE_START = ["cache", "serve", "--url", "tcp://127.0.0.1:P1", "--api", "tcp://127.0.0.1:P2"]
CACHE_START += ["--http", "127.0.0.1:P3", "--source", "cmd:echo value-of {key}"]


JOINING_FILE = MANAGER_FILE.replace('addr: "127.0.0.1:P1"', 'addr: "127.0.0.1:P1", join: "127.0.0.1:P3"')
"""It joins a node that is up, and that answers no look well."""


class Script(NamedTuple):
    """One process, and what is said to it."""

    name: str
    files: dict[str, str]
    start: list[str]
    ready: list[Any]
    """A step that is repeated until it is answered with 200, or with a text that is expected."""
    steps: list[list[Any]]
    peer: dict[str, list[Any]] = {}  # noqa: RUF012  (nobody changes it)
    """Where there is one: what a server on `P3` answers to the calls of this node, by path: [status, body]."""


def _http(port: str, path: str, method: str = "GET", body: str = "", **headers: str) -> list[Any]:
    return ["http", port, method, path, {name.capitalize(): value for name, value in headers.items()}, body]


def _shown(port: str) -> list[list[Any]]:
    return [_http(port, path) for path in ("/leader", "/healthz", "/metrics", "/nope")]


def _run(name: str, file: str) -> Script:
    """With the longest hold, so that a machine that stands still for a moment loses nothing, and no event is added."""
    return Script(
        name,
        {"primacy.yaml": file},
        ["run", "--profile", "wan", "--", "sleep", "1000"],
        _http("P1", "/leader"),
        [
            *_shown("P1"),
            *(["control", path] for path in ("/v1/state", "/v1/cluster", "/v1/config", "/v1/events", "/v1/nope")),
            ["cli", "status"],
            ["cli", "status", "--json"],
            ["cli", "why", "--json"],
            ["cli", "cluster", "nodes"],
            ["cli", "transfer", "nobody"],
            ["cli", "approve"],
        ],
    )


def _manager(strategy: str) -> Script:
    join = '{"id":"n7","addr":"127.0.0.1:1"}'

    def ask(path: str, body: str = "", method: str = "POST", **more: str) -> list[Any]:
        return _http("P1", path, method, body, authorization=BASIC, **more)

    return Script(
        f"manager {strategy}",
        {"primacy.yaml": MANAGER_FILE.replace("STRATEGY", strategy)},
        ["node", "start"],
        _http("P2", "/leader"),
        [
            *(_http("P1", path) for path in ("/heartbeat", "/leader", "/members", "/join", "/nope")),
            _http("P1", "/join", "POST", join),
            ask("/members", method="GET"),
            ask("/election", '{"id":"n1"}'),
            ask("/election"),
            ask("/coordinator", '{"id":""}'),
            ask("/coordinator", "nonsense"),
            ask("/remove", '{"id":"nobody"}'),
            ask("/ring", '{"id":"n1","kind":"nope"}'),
            ask("/heartbeat", method="GET", primacy="node=n1&kin=other/main/bully/id&boot=3"),
            ask("/join", "{}"),
            ask("/join", '{"id":"n7","addr":"127.0.0.1:1","more":"x"}'),
            ask("/join", join),
            ask("/members", method="GET"),
            ask("/remove", '{"id":"n7"}'),
            ask("/members", method="GET"),
            ["control", "/v1/state"],
        ],
    )


def _joining(strategy: str) -> Script:
    peers = '{"leader":"n9","peers":{"n9":"127.0.0.1:P3","n5":"127.0.0.1:P1"}}'
    answers: dict[str, list[Any]] = {"/join": [200, peers], "/heartbeat": [500, ""], "/coordinator": [200, ""]}
    if strategy == "bully":
        answers["/election"] = [503, ""]
    file = JOINING_FILE.replace("STRATEGY", strategy)
    return Script(
        f"joining {strategy}",
        {"primacy.yaml": file},
        ["node", "start"],
        _http("P2", "/healthz"),
        [["peer"], ["control", "/v1/state"]],
        answers,
    )


SCRIPTS: tuple[Script, ...] = (
    _run("run raft", RUN_FILE),
    _run("run lease", LEASE_FILE),
    _manager("bully"),
    _manager("ring"),
    _joining("bully"),
    _joining("ring"),
    Script(
        "slots",
        {"primacy.yaml": SLOTS_FILE},
        ["slots", "serve"],
        _http("P1", "/leader"),
        [*_shown("P1"), ["lines", "P2", SLOTS_SAID], ["cli", "slots", "get", "000"], ["cli", "slots", "get", "999"]],
    ),
    Script(
        "cache",
        {},
        CACHE_START,
        _http("P3", "/cache/k0"),
        [
            _http("P3", "/cache/k1"),
            _http("P3", "/cache/k1"),
            _http("P3", "/cache/k1", "DELETE"),
            _http("P3", "/metrics"),
            _http("P3", "/healthz"),
            _http("P3", "/nope"),
            *(
                ["cli", "cache", *words, "--api", "tcp://127.0.0.1:P2"]
                for words in (["get", "k1"], ["get", "k1", "--json"], ["get", "k2", "--no-fetch"], ["keys"], ["status"])
            ),
            ["cli", "cache", "status", "--json", "--api", "tcp://127.0.0.1:P2"],
        ],
    ),
)
