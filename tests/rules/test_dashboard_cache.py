"""The cache as keys by peers, from what each peer said of itself. Without a browser."""

from __future__ import annotations

from typing import Any

from primacy.dashboard.cache import KEYS_MAX, PeerSeen, answered, cache_strip, keys_view, missed, peers_view

A, B = "tcp://h:1", "tcp://h:2"


def said(node: str, *rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    counters = {"hits": 9, "stale": 1, "misses": 2, "waiting": 3, "other": 5}
    base = {"node": node, "url": f"tcp://{node}:1", "in_touch": True, "keys": 4, "fetches": 2, "counters": counters}
    return {**base, "rows": list(rows), "more": 0, **more}


def row(key: str, state: str = "fresh", **more: Any) -> dict[str, Any]:
    return {"key": key, "state": state, "role": "idle", "left_ms": 500, "bytes": 7, "waiting": 0, **more}


def test_a_peer_that_does_not_answer_is_unknown_and_so_is_every_key_there() -> None:
    first = answered(PeerSeen(A), said("a", row("k")))
    lost = missed(answered(PeerSeen(B), said("b", row("k"))), "no answer within 2000 ms", 77)
    again = missed(lost, "still", 99)
    shown = peers_view([first, again])["peers"]
    assert [(peer["node"], peer["level"]) for peer in shown] == [("a", "ok"), ("b", "unknown")]
    assert (shown[1]["error"], shown[1]["since_unix_ms"]) == ("still", 77)
    cells = keys_view([first, again])["keys"][0]["cells"]
    assert [cell["state"] for cell in cells] == ["fresh", "unknown"], "what it said before counts no more"
    assert peers_view([PeerSeen(A)])["peers"][0]["level"] == "unknown"
    assert peers_view([answered(again, said("b"))])["peers"][0]["level"] == "ok"


def test_cells_say_how_fresh_and_who_fetches() -> None:
    first = answered(PeerSeen(A), said("a", row("k", role="sourcing"), row("m", "stale", fetched_by="tcp://a:1")))
    second = answered(PeerSeen(B), said("b", row("m", "nonsense"), in_touch=False))
    view = keys_view([first, second])
    assert [each["key"] for each in view["keys"]] == ["k", "m"]
    k, m = (each["cells"] for each in view["keys"])
    assert (k[0]["state"], k[0]["sourcing"], k[1]["state"]) == ("fresh", True, "absent")
    assert (m[0]["state"], m[0]["fetched_here"], m[1]["state"], m[1]["fetched_here"]) == (
        "stale",
        True,
        "absent",
        False,
    )
    assert peers_view([second])["peers"][0]["level"] == "warn"


def test_keys_are_bounded_and_the_rest_is_counted() -> None:
    many = [row(f"{number:04}") for number in range(2 * KEYS_MAX)]
    one = answered(PeerSeen(A), said("a", *many, more=1_000))
    other = answered(PeerSeen(B), said("b", *many[KEYS_MAX:]))
    view = keys_view([one, other])
    assert len(view["keys"]) == KEYS_MAX
    assert view["more"] == 1_000 + KEYS_MAX
    assert keys_view([answered(PeerSeen(A), "nonsense")])["keys"] == []


def test_the_strip_of_a_cache_alone() -> None:
    up, down = answered(PeerSeen(A), said("a")), missed(PeerSeen(B), "gone", 1)
    levels = [cache_strip(peers_view(peers))["level"] for peers in ([up], [up, up, down], [up, down], [down], [])]
    assert levels == ["ok", "warn", "bad", "unknown", "unknown"]
    assert cache_strip(peers_view([up, down]))["holder"]["text"] == "1 of 2 peers of the cache in touch"
