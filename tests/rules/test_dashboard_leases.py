"""What the page may say of a lease, from what was seen of its row. Pure: rows, moments, and the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from primacy.dashboard.leases import UNVOUCHED, StoreSeen, failed, leases_view, looked, state_of, stores_strip
from primacy.election.store import Row
from primacy.store.port import Listing

HELD = Row("a#1", 7, 10, hold_ms=3_000, wait_ms=3_100, released=False, server="s", proof="p", mark="m")


@dataclass
class Watched:
    """A store that is looked at, second by second."""

    seen: StoreSeen = field(default_factory=lambda: StoreSeen("sqlite:leases.db", "primacy_leases"))
    now_ms: int = 1_000

    def look(self, after_ms: int = 0, row: Row | None = HELD, wrong: str = "") -> tuple[str, str]:
        self.now_ms += after_ms
        self.seen = looked(self.seen, [Listing("mail", row, "12:00", wrong)], self.now_ms, 4)
        return self.state()

    def state(self, after_ms: int = 0) -> tuple[str, str]:
        return state_of(self.seen.leases["mail"], self.seen, self.now_ms + after_ms)

    def shown(self) -> Any:
        return leases_view([self.seen], self.now_ms, 1_000_000)["stores"][0]


def renewed(times: int = 1) -> Row:
    return HELD._replace(seq=HELD.seq + times)


def test_a_name_in_a_row_is_not_green_before_it_was_seen_renewed() -> None:
    watched = Watched()
    assert watched.look()[0] == "unknown"
    assert watched.look(1_000)[0] == "unknown"
    assert watched.look(1_000, renewed())[0] == "ok"
    assert watched.look(1_000, renewed(2))[0] == "ok"
    row = watched.shown()["rows"][0]
    assert (row["holder"], row["token"], row["renewals"], row["every_ms"]) == ("a", 7, 2, 1_000)
    assert row["expires_unix_ms"] == 1_000_000 + 3_000


def test_a_holder_that_renews_no_more_loses_its_green_with_its_hold() -> None:
    watched = Watched()
    watched.look()
    assert watched.look(1_000, renewed())[0] == "ok"
    assert watched.look(2_900, renewed())[0] == "ok"
    level, text = watched.look(150, renewed())
    assert (level, text) == ("warn", "not renewed for 3,050 ms: its hold is over, and nobody may take it yet")
    level, text = watched.look(100, renewed())
    assert (level, text) == ("warn", "not renewed for 3,150 ms: free for the next that asks")
    assert watched.shown()["rows"][0]["expires_unix_ms"] == 0
    assert watched.look(500, renewed(2))[0] == "ok", "it renews again"


def test_one_that_died_before_the_page_came_is_said_after_one_wait() -> None:
    watched = Watched()
    watched.look()
    assert watched.look(3_050)[0] == "warn"
    assert "free for the next that asks" in watched.look(100)[1]


def test_the_next_holder_is_seen_at_once_and_a_release_too() -> None:
    watched = Watched()
    watched.look()
    watched.look(1_000, renewed())
    taken = HELD._replace(holder="b#9", token=8, seq=0)
    assert watched.look(1_000, taken)[0] == "ok"
    assert watched.shown()["rows"][0]["holder"] == "b"
    level, text = watched.look(1_000, taken._replace(released=True, seq=1))
    assert (level, text) == ("free", "free: b released it")
    assert watched.shown()["rows"][0]["holder"] == ""
    assert watched.look(90_000, taken._replace(released=True, seq=1))[0] == "free"
    assert Watched().look(row=HELD._replace(holder=""))[0] == "free"


def test_a_store_that_does_not_answer_leaves_nothing_known() -> None:
    watched = Watched()
    watched.look()
    watched.look(1_000, renewed())
    assert watched.state(4_000)[0] == "ok"
    assert watched.state(5_500)[0] == "unknown", "a look that hangs"
    watched.seen = failed(watched.seen, "connection refused", 77)
    assert watched.state()[0] == "unknown"
    shown = watched.shown()
    assert (shown["level"], shown["error"], shown["since_unix_ms"]) == ("bad", "connection refused", 77)
    watched.seen = failed(watched.seen, "still refused", 99)
    assert (watched.shown()["since_unix_ms"], watched.shown()["failures"]) == (77, 2)
    assert watched.look(1_000, renewed(2))[0] == "ok"
    assert watched.shown()["error"] == ""


@pytest.mark.parametrize(("row", "wrong"), [(None, "its token is no number"), (HELD._replace(vouches=False), "")])
def test_what_cannot_be_relied_on_is_not_green(row: Row | None, wrong: str) -> None:
    watched = Watched()
    watched.look(row=row, wrong=wrong)
    level, text = watched.look(1_000, row._replace(seq=99) if row is not None else None, wrong)
    assert (level, text) in (("bad", f"no lease of primacy: {wrong}"), ("warn", UNVOUCHED))


def test_trouble_comes_first_and_the_rest_is_bounded() -> None:
    listings = [Listing(f"l{number:04}", HELD._replace(released=True), "", "") for number in range(700)]
    listings.append(Listing("z", None, "", "nonsense"))
    seen = looked(StoreSeen("x", "t"), listings, 1_000, 3)
    part = leases_view([seen], 1_000, 5_000)
    store = part["stores"][0]
    assert (store["count"], len(store["rows"]), store["rows"][0]["lease"]) == (701, 500, "z")
    strip = stores_strip(part)
    assert (strip["level"], strip["holder"]["text"]) == ("bad", "701 leases: 1 in trouble, 499 free")


def test_the_strip_of_stores_alone_is_green_only_for_what_is_held() -> None:
    free = looked(StoreSeen("x", "t"), [Listing("a", HELD._replace(released=True), "", "")], 1_000, 3)
    assert stores_strip(leases_view([free], 1_000, 5_000))["level"] == "unknown"
    empty = stores_strip(leases_view([looked(StoreSeen("x", "t"), [], 1_000, 3)], 1_000, 5_000))
    assert (empty["level"], empty["holder"]["text"]) == ("unknown", "No lease in this store")
    watched = Watched()
    watched.look()
    watched.look(1_000, renewed())
    held = stores_strip(leases_view([watched.seen], watched.now_ms, 5_000))
    assert (held["level"], held["holder"]["text"], held["title"]) == ("ok", "1 lease: 1 held", "1 held")
    lost = stores_strip(leases_view([failed(watched.seen, "gone", 1)], watched.now_ms, 5_000))
    assert (lost["level"], lost["holder"]["text"]) == ("bad", "Not known: sqlite:leases.db does not answer")
