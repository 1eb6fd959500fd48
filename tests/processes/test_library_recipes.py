"""Lock, singleton, once, and the sync face."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import primacy
from primacy import blocking
from primacy.settings.timing import PROFILES
from tests.support.library_harness import CANARY_HEARTBEAT_MS, HOLD_S, WITHIN_S, Place, place, run, until
from tests.support.safety_checks import safe, tokens_grow
from tests.support.servers import Postgres, empty, server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.moments(order=90)

__all__ = ["CANARY_HEARTBEAT_MS", "place"]


in_a_while = partial(wait_until, within_s=WITHIN_S, every_s=0.005)


# --- singleton --------------------------------------------------------------------------------------------------------


def test_singleton_runs_a_function_for_as_long_as_this_process_leads(place: Place) -> None:
    async def body() -> None:
        runs = []

        @primacy.singleton("job", store=place.url, profile="lab")
        async def serve(word: str) -> str:
            """Serves."""
            runs.append(primacy.current().token)
            if len(runs) == 1:
                place.table.up = False
                try:
                    await asyncio.sleep(WITHIN_S)
                finally:
                    place.table.up = True
            return word

        assert serve.__name__ == "serve"
        assert await serve("done") == "done"
        assert len(runs) == 2
        tokens_grow(runs)
        assert place.row().released

    run(body)


def test_singleton_passes_an_error_on(place: Place) -> None:
    @primacy.singleton("job", store=place.url, profile="lab")
    async def fail() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run(fail)
    assert place.row().released


def test_singleton_of_a_plain_function_runs_in_the_callers_thread_and_asks(place: Place) -> None:
    threads = []

    @primacy.singleton("job", store=place.url, profile="lab")
    def serve() -> int:
        threads.append(threading.current_thread())
        leadership = primacy.current()
        if len(threads) == 1:
            place.table.up = False
            try:
                while True:
                    leadership.check()
                    time.sleep(0.01)
            finally:
                place.table.up = True
        return leadership.token

    assert serve() == place.row().token
    assert threads == [threading.current_thread()] * 2


# --- once -------------------------------------------------------------------------------------------------------------


def test_once_whoever_comes_first_runs_it_and_the_others_return_none(place: Place) -> None:
    async def body() -> None:
        @primacy.once("job", store=place.url, profile="lab", at_least_ms=300)
        async def report(number: int) -> int:
            return number

        found = await asyncio.gather(*(report(number) for number in range(5)))
        assert sorted(x is None for x in found) == [False, True, True, True, True]

    run(body)


def test_once_keeps_the_lease_so_that_a_late_clock_does_not_run_it_again(place: Place) -> None:
    ran = []

    @primacy.once("job", store=place.url, profile="lan", at_least_ms=2_000)
    def report() -> str:
        ran.append(time.monotonic())
        return "done"

    with ThreadPoolExecutor() as pool:
        began = time.monotonic()
        first = pool.submit(report)
        in_a_while(lambda: ran)
        time.sleep(0.3)
        assert report() is None  # a machine whose clock is 300 ms late
        assert first.result() == "done"
        assert time.monotonic() - began >= 2
    assert report() == "done"  # the next tick
    assert len(ran) == 2


def test_once_that_comes_while_another_runs_it_does_not_run_it_when_that_one_is_done(place: Place) -> None:
    """It saw the lease held, and then released by its holder: the job is done."""
    done: list[str] = []

    async def body() -> None:
        seen: list[primacy.Standing] = []

        @primacy.once("job", store=place.url, profile="wan", on_change=seen.append)
        async def report() -> str:
            done.append("again")
            return "done"

        async with place.election(node="a") as election:
            async for leadership in election:
                async with leadership:
                    late = asyncio.create_task(report())
                    await until(lambda: any(one.leader == "a" for one in seen))
                break
        assert await late is None

    run(body)
    assert not done


def test_once_takes_over_from_a_machine_that_died(place: Place) -> None:
    """A row that nobody renews is taken after its hold, and not mistaken for somebody who runs it."""
    row = place.row()
    place.table.write("job", row._replace(released=False, holder="dead#1", seq=9))

    @primacy.once("job", store=place.url, profile="lab")
    def report() -> str:
        return "done"

    began = time.monotonic()
    assert report() == "done"
    assert time.monotonic() - began >= HOLD_S


def test_once_that_loses_its_lease_says_so(place: Place) -> None:
    @primacy.once("job", store=place.url, profile="lab")
    async def report() -> None:
        place.table.up = False
        await asyncio.sleep(WITHIN_S)

    with pytest.raises(primacy.LeadershipLost):
        run(report)

    place.table.up = True

    @primacy.once("job", store=place.url, profile="lab")
    def blind() -> str:
        place.table.up = False
        time.sleep(HOLD_S)
        return "too late"

    with pytest.raises(primacy.LeadershipLost):
        blind()


def test_once_does_not_wait_for_ever_for_a_store(place: Place) -> None:
    @primacy.once("job", store=place.url, profile="lab", within_ms=900)
    async def report() -> None: ...

    place.table.up = False
    with pytest.raises(primacy.NotReached, match="could not be found out: it waits for the store to answer"):
        run(report)
    with pytest.raises(primacy.UsageError, match="at_least_ms"):
        primacy.once("job", store=place.url, at_least_ms=-1)


def nobody_beside(inside: list[primacy.Leadership]) -> None:
    """Of those that came in before, none may still go on. One whose time is over is about to be told."""
    beside = [one for one in inside if one.left_ms()]
    safe(not beside, f"two inside: {beside}")


# --- lock -------------------------------------------------------------------------------------------------------------


def test_lock_one_at_a_time_and_soon(place: Place) -> None:
    async def body() -> None:
        inside: list[primacy.Leadership] = []
        tokens = []

        async def part() -> None:
            async with primacy.Lock("job", store=place.url, profile="lab") as leadership:
                nobody_beside(inside)
                inside.append(leadership)
                tokens.append(leadership.token)
                await asyncio.sleep(0.01)
                inside.remove(leadership)

        await asyncio.gather(*(part() for _ in range(6)))
        tokens_grow(tokens)
        assert len(tokens) == 6
        lock = primacy.Lock("job", store=place.url, profile="wan")
        began = time.monotonic()
        for _ in range(5):
            async with lock:
                with pytest.raises(primacy.UsageError, match="held already"):
                    await lock.__aenter__()
        assert time.monotonic() - began < PROFILES["wan"].hold_ms / 1_000, "no hold is waited for"

    run(body)


def test_lock_not_had_in_time_and_lost_inside(place: Place) -> None:
    async def body() -> None:
        async with primacy.Lock("job", store=place.url, profile="lab", node="a"):
            with pytest.raises(primacy.InUse, match="not had within 900 ms: it waits for node a's hold"):
                async with primacy.Lock("job", store=place.url, profile="lab", within_ms=900):
                    raise AssertionError("it is taken")
        with pytest.raises(primacy.LeadershipLost):
            async with primacy.Lock("job", store=place.url, profile="lab"):
                place.table.up = False
                await asyncio.sleep(WITHIN_S)

    run(body)


# --- the sync face ----------------------------------------------------------------------------------------------------


def sync_election(place: Place, **options: Any) -> blocking.Election:
    return blocking.Election("job", store=place.url, profile="lab", **options)


def test_sync_the_endings_are_the_same(place: Place) -> None:
    tokens = []
    with sync_election(place) as election:
        for leadership in election:
            with leadership:
                tokens.append(leadership.token)
                assert primacy.current() is leadership
                if len(tokens) == 1:
                    place.table.up = False
                    while True:
                        leadership.check()
                        time.sleep(0.005)
                        place.table.up = leadership.left_ms() < 30
                if len(tokens) == 2:
                    continue
                break
    tokens_grow(tokens)
    assert len(tokens) == 3
    assert election.counts.won == 3
    assert place.row().released
    with pytest.raises(ValueError, match="mine"), sync_election(place) as election:
        for leadership in election:
            with leadership:
                raise ValueError("mine")
    assert place.row().released


def test_sync_a_busy_thread_loses_nothing_but_one_that_must_ask_and_does_not(place: Place) -> None:
    with sync_election(place) as election:
        for leadership in election:
            with leadership:
                time.sleep(2 * HOLD_S)
                leadership.check()
            break
    with sync_election(place, check_within_ms=200) as election:
        for leadership in election:
            with leadership:
                for _ in range(10):
                    time.sleep(0.05)
                    leadership.check()
                time.sleep(2 * HOLD_S)
                with pytest.raises(primacy.LeadershipLost, match="did not turn for"):
                    leadership.check()
            break


def test_sync_a_body_that_noticed_nothing_is_counted(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with sync_election(place) as election:
        for leadership in election:
            with leadership:
                place.table.up = False
                time.sleep(1.5 * HOLD_S)
            place.table.up = True
            break
        in_a_while(lambda: election.counts.over_late == 1)
    assert "another holder may have worked at the same time" in caplog.text
    assert "still runs although its hold has ended" in caplog.text


def test_sync_without_the_inner_block_it_lasts_until_the_next_turn_or_the_end(place: Place) -> None:
    with sync_election(place) as election:
        first = next(election)
        first.check()
        second = next(election)
        assert first.left_ms() == 0
        tokens_grow([first.token, second.token])
    assert place.row().released
    assert second.left_ms() == 0


def test_sync_wrong_calls(place: Place) -> None:
    election = sync_election(place)
    with pytest.raises(primacy.UsageError, match="in its own `with` block"):
        election.acquire()
    with election:
        for leadership in election:
            with leadership, pytest.raises(primacy.UsageError, match="still open"):
                next(election)
            break
        with pytest.raises(primacy.UsageError, match="entered before"):
            election.__enter__()
    with sync_election(place, observer=True) as eye, pytest.raises(primacy.UsageError, match="only watches"):
        eye.acquire()


def test_wrong_calls_are_told_where_they_stand(place: Place) -> None:
    """Not when the function is called, at night."""
    for face in (primacy.Election, blocking.Election):
        for wrong, sentence in (
            ({"name": None}, "a lease's name is a text, not None"),
            ({"node": 7}, "a node's name has at most .* not 7"),
            ({"rest_ms": -5}, "rest_ms is a time in whole milliseconds, not -5"),
            ({"rest_ms": "1"}, "rest_ms is a time in whole milliseconds, not '1'"),
            ({"on_change": 3}, "on_change is a function"),
            ({"on_loss": None}, "'cancel' or 'kill', not None"),
            ({"profile": 7}, "no profile 7"),
        ):
            with pytest.raises(primacy.UsageError, match=sentence):
                face(**{"name": "job", "store": place.url, **wrong})
    with pytest.raises(primacy.UsageError, match="stall_ms is a time"):
        place.election(stall_ms=0.5)
    with pytest.raises(primacy.UsageError, match="check_within_ms is a time"):
        sync_election(place, check_within_ms=True)
    for lock in (primacy.Lock, blocking.Lock):
        with pytest.raises(primacy.UsageError, match="within_ms is a time in whole milliseconds, not 'soon'"):
            lock("job", store=place.url, within_ms="soon")
        with pytest.raises(TypeError, match="unexpected keyword argument 'proflie'"):
            lock("job", store=place.url, proflie="lab")
    for recipe in (primacy.once, primacy.singleton):
        with pytest.raises(primacy.UsageError, match="this decorates a function, not 3"):
            recipe("job", store=place.url)(3)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="unexpected keyword argument 'proflie'"):
            recipe("job", store=place.url, proflie="lab")(print)
    with sync_election(place) as election, pytest.raises(primacy.UsageError, match="within_ms is a time"):
        election.acquire(-1)


def test_sync_lock_among_threads(place: Place) -> None:
    inside: list[primacy.Leadership] = []

    def part(_: int) -> int:
        with blocking.Lock("job", store=place.url, profile="lab") as leadership:
            nobody_beside(inside)
            inside.append(leadership)
            time.sleep(0.01)
            inside.remove(leadership)
            return leadership.token

    with ThreadPoolExecutor(4) as pool:
        tokens = list(pool.map(part, range(8)))
    safe(len(set(tokens)) == 8, f"a token twice: {tokens}")
    with blocking.Lock("job", store=place.url, profile="lab", node="a"), pytest.raises(primacy.InUse, match="node a"):
        blocking.Lock("job", store=place.url, profile="lab", within_ms=900).__enter__()
    with pytest.raises(primacy.InUse, match="not had within 0 ms: it waits for the"):
        blocking.Lock("job", store=place.url, profile="lab", within_ms=0).__enter__()
    with pytest.raises(primacy.LeadershipLost), blocking.Lock("job", store=place.url, profile="lab"):
        place.table.up = False
        time.sleep(HOLD_S)


def test_sync_on_change_and_waiting_without_success(place: Place) -> None:
    seen: list[Any] = []

    def note(standing: Any) -> None:
        seen.append(standing)
        raise ValueError("it must not end the renewer")

    with sync_election(place, node="a") as first, sync_election(place, node="b", on_change=note) as second:
        held = next(first)
        assert second.acquire(100) is None
        in_a_while(lambda: bool(seen) and seen[-1].leader == "a")
        in_a_while(lambda: repr(second).endswith(", led by a>"))
        assert second.acquire(5_000, unless_held=True) is None
        held.check()


# --- the package ------------------------------------------------------------------------------------------------------


def test_importing_primacy_loads_nothing_heavy_until_asked() -> None:
    """The guard's launcher and the command line start through it."""
    code = """
import sys
before = set(sys.modules)
import primacy
new = set(sys.modules) - before
assert new == {"primacy"}, new
assert "Election" in dir(primacy) and not hasattr(primacy, "nonsense")
primacy.LeadershipLost
assert "asyncio" not in sys.modules and "primacy.library" not in sys.modules
primacy.Election, primacy.Lock, primacy.singleton, primacy.once, primacy.Leadership, primacy.blocking.Election
heavy = {"aiohttp", "sqlalchemy", "psycopg", "pymysql", "click", "rich", "yaml", "msgspec"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_can_be_loaded_and_is_known_to_type_checkers() -> None:
    for name, where in primacy._WHERE.items():
        assert getattr(primacy, name).__module__ == where
    stub = Path(primacy.__file__).with_suffix(".pyi").read_text()
    said = dict(reversed(pair) for pair in re.findall(r"^from (primacy\.\S+) import (\w+) as \2$", stub, re.MULTILINE))
    assert said == primacy._WHERE


def test_a_name_of_before_is_an_error_that_says_the_new_one() -> None:
    for call in ("primacy.Keeper", "from primacy import Keeper"):
        with pytest.raises(ImportError, match=r"primacy\.Keeper is called primacy\.Renewer now"):
            exec(f"import primacy\n{call}", {})


@pytest.mark.skipif(bool(Postgres.missing()), reason=Postgres.missing() or "here")
def test_L9_a_table_that_is_not_settled_yet_says_what_is_waited_for() -> None:
    """A new table proves nothing: somebody may have dropped it, or a backup may lack it."""
    url = empty("postgresql")
    found = server("postgresql")
    assert isinstance(found, Postgres)
    found.empty()
    began = time.monotonic()
    lock = blocking.Lock("fresh", store=url, within_ms=1_000)
    with pytest.raises(
        primacy.InUse,
        match=r"it waits for (names to be free, in|the longest hold of this table to run out,) at most \d+ ms: ",
    ) as caught:
        lock.__enter__()
    assert time.monotonic() - began < 8
    assert "somebody else" not in str(caught.value)
