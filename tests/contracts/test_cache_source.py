"""The sources of a cache: what they give, what they refuse, and that nothing of a call outlives its end."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from primacy.cache.effects import Call, Cancel, Extend
from primacy.cache.model import Failure, Fetched
from primacy.cache.source import SourceSpec, target_of
from primacy.cache.source_guard import Instants
from primacy.cache.source_process import FunctionSource, Worker
from primacy.errors import UsageError
from tests.support import cache_functions
from tests.support.canary import Canary
from tests.support.source_harness import BALLOT, HOSTILE, LIMIT_S, Harness, reason, script, with_harness

pytestmark = pytest.mark.beside(order=480)

HERE = Path(__file__).parents[2]


# --- commands ---------------------------------------------------------------------------------------------------------


def test_a_key_is_one_argument_of_a_command_whatever_is_in_it(tmp_path: Path) -> None:
    program = script(tmp_path, 'printf "%s:" "$#" "$@"')

    async def work(harness: Harness) -> None:
        for key in HOSTILE:
            assert await harness.get(key) == Fetched(b"3:a b:" + key + b":--id=" + key + b"!:")

    with_harness(work, SourceSpec(f"cmd:{program} 'a b' {{key}} --id={{key}}!"))


def test_a_key_with_a_zero_byte_is_refused(tmp_path: Path) -> None:
    program = script(tmp_path, "echo never")

    async def work(harness: Harness) -> None:
        assert "zero byte" in reason(await harness.get(b"a\0b"))

    with_harness(work, SourceSpec(f"cmd:{program} {{key}}"))


def test_how_a_command_ends_is_its_result(tmp_path: Path) -> None:
    program = script(
        tmp_path,
        """
        case "$1" in
            empty) ;;
            fails) echo first >&2; printf 'the last\n  \t line \n' >&2; exit 3 ;;
            silent) exit 4 ;;
            missing) echo "no such rate" >&2; exit 66 ;;
            dies) kill -SEGV $$ ;;
            partly) echo half; exit 1 ;;
        esac
        """,
    )

    async def work(harness: Harness) -> None:
        assert await harness.get(b"empty") == Fetched(b"")
        assert await harness.get(b"fails") == Failure("the command ended with code 3: line")
        assert await harness.get(b"silent") == Failure("the command ended with code 4")
        assert await harness.get(b"missing") == Failure("no such rate", missing=True)
        assert await harness.get(b"dies") == Failure("the command was ended by signal 11")
        assert await harness.get(b"partly") == Failure("the command ended with code 1")

    with_harness(work, SourceSpec(f"cmd:{program} {{key}}"))


@pytest.mark.parametrize("how", ["missing", "no right", "a folder"])
def test_a_program_that_cannot_be_run_is_told_before_the_first_call(tmp_path: Path, how: str) -> None:
    if how == "no right":
        (tmp_path / "fetch").write_text("x")
    elif how == "a folder":
        (tmp_path / "fetch").mkdir()
    with pytest.raises(UsageError, match="there is no program"):
        with_harness(None, SourceSpec(f"cmd:{tmp_path}/fetch {{key}}"))  # type: ignore[arg-type]


def test_a_program_that_vanishes_is_a_failure(tmp_path: Path) -> None:
    program = script(tmp_path, "echo -n well")

    async def work(harness: Harness) -> None:
        os.rename(program, f"{program}.away")
        assert "No such file or directory" in reason(await harness.get(b"a"))
        os.rename(f"{program}.away", program)
        assert await harness.get(b"a") == Fetched(b"well")

    with_harness(work, SourceSpec(f"cmd:{program} {{key}}"))


def test_a_relative_program_counts_from_the_folder_of_the_settings(tmp_path: Path) -> None:
    script(tmp_path, "pwd")

    async def work(harness: Harness) -> None:
        assert await harness.get(b"a") == Fetched(f"{tmp_path}\n".encode())

    with_harness(work, SourceSpec("cmd:./fetch {key}"), folder=str(tmp_path))


def test_a_command_has_no_descriptor_and_no_variable_that_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIMACY_SECRET", "x")
    monkeypatch.setenv("RATES_KEY", "mine")
    program = script(tmp_path, "ls /proc/self/fd | tr '\\n' ' '; env | grep -c PRIMACY_; echo $RATES_KEY; cat")

    async def work(harness: Harness) -> None:
        assert await harness.get(b"a") == Fetched(b"0 1 2 3 0\nmine\n"), "3 is the folder that ls lists"

    with_harness(work, SourceSpec(f"cmd:{program} {{key}}"))


def test_huge_output_is_bounded_and_its_command_ended(tmp_path: Path) -> None:
    program = script(tmp_path, 'echo $$ > "$1"; yes')
    pids = tmp_path / "pid"

    async def work(harness: Harness) -> None:
        found = await harness.get(str(pids).encode())
        assert found == Failure("the source gave 100,001 bytes or more; cache.value_bytes_max is 100,000")

    with_harness(work, SourceSpec(f"cmd:{program} {{key}}"), value_bytes_max=100_000)


def test_a_value_may_be_exactly_as_large_as_allowed(tmp_path: Path) -> None:
    program = script(tmp_path, 'head -c "$1" /dev/zero')

    async def work(harness: Harness) -> None:
        assert await harness.get(b"300000") == Fetched(bytes(300_000))
        assert isinstance(await harness.get(b"300001"), Failure)

    with_harness(work, SourceSpec(f"cmd:{program} {{key}}"), value_bytes_max=300_000)


def test_what_a_command_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    """A child in a session of its own, which even holds the output open."""
    program = script(tmp_path, "setsid sleep 30 & echo -n $!")

    async def work(harness: Harness) -> None:
        began = harness.clock.now_ms()
        assert isinstance(await harness.get(b"a"), Fetched)
        assert harness.clock.now_ms() - began < 5_000, "nobody waits for what was left behind"

    with_harness(work, SourceSpec(f"cmd:{program} {{key}}"))


def test_a_time_limit_ends_a_command_and_a_function() -> None:
    async def work(harness: Harness) -> None:
        for key in (b"c 20", b"sleeps"):
            began = harness.clock.now_ms()
            assert "took longer than 300 ms" in reason(await harness.get(key))
            assert 290 <= harness.clock.now_ms() - began < 10_000

    limit = {"timeout_ms": 300}
    with_harness(
        work,
        SourceSpec("cmd:/bin/bash -c 'sleep 20' {key}", b"c", **limit),
        SourceSpec("call:tests.support.cache_functions:bad", b"s", **limit),
    )


@pytest.mark.parametrize("key", [b"polite", b"deaf"])
def test_a_cancelled_command_is_asked_then_killed_and_confirmed_before_the_end_of_the_hold(
    tmp_path: Path, key: bytes
) -> None:
    told = tmp_path / "told"
    program = script(
        tmp_path,
        f"""
        [ "$1" = deaf ] && trap 'echo asked >> {told}' TERM || trap 'echo asked >> {told}; exit 0' TERM
        echo up >> {told}
        while :; do sleep 0.01; done
        """,
    )

    async def work(harness: Harness) -> None:
        over_at = harness.start(key, 5_000, 6_500)
        while not told.exists():
            await asyncio.sleep(0.01)
        harness.calls.cancel(Cancel(key, BALLOT, over_at))
        found = await harness.end()
        assert found.result == Failure("it was cancelled")
        assert harness.clock.now_ms() < over_at
        assert "asked" in told.read_text()

    assert with_harness(work, SourceSpec(f"cmd:{program} {{key}}")).left == []


@pytest.mark.parametrize("source", ["cmd:/bin/sleep 20{key}", "call:tests.support.cache_functions:bad", "async"])
def test_without_an_extension_a_call_is_over_by_the_end_of_its_hold(source: str) -> None:
    async def work(harness: Harness) -> None:
        over_at = harness.start(b"sleeps" if "functions" in source else b"", 450, 3_450)
        found = await harness.end()
        assert isinstance(found.result, Failure)
        assert over_at - 3_000 <= harness.clock.now_ms() <= over_at

    async def sleeps(key: bytes) -> bytes:
        await asyncio.sleep(20)
        return b""

    assert with_harness(work, SourceSpec(sleeps if source == "async" else source)).left == []


@pytest.mark.parametrize("source", ["cmd:/bin/bash -c 'sleep 2; echo -n well' {key}", "function", "async"])
def test_an_extension_moves_the_end_of_a_call(source: str) -> None:
    async def work(harness: Harness) -> None:
        harness.start(b"a", 1_700, 1_950)
        while harness.calls.running:
            now = harness.clock.now_ms()
            harness.calls.extend(Extend(b"a", BALLOT, now + 1_700, now + 1_950))
            await asyncio.sleep(0.05)
        assert (await harness.end()).result == Fetched(b"well")

    async def sleeps(key: bytes) -> bytes:
        await asyncio.sleep(2)
        return b"well"

    of = {"function": "call:tests.contracts.test_cache_source:slowly", "async": sleeps}
    assert with_harness(work, SourceSpec(of.get(source, source))).left == []


def test_an_extension_after_the_cancel_changes_nothing(tmp_path: Path) -> None:
    """The guard itself has begun to end it, and the peer does not know yet."""
    up = tmp_path / "up"
    program = script(tmp_path, f"trap 'echo asked >> {up}' TERM; echo up > {up}; while :; do sleep 0.01; done")

    async def work(harness: Harness) -> None:
        over_at = harness.start(b"a", 2_000, 6_500)
        while "asked" not in (up.read_text() if up.exists() else ""):
            await asyncio.sleep(0.005)
        now = harness.clock.now_ms()
        harness.calls.extend(Extend(b"a", BALLOT, now + 10_000, now + 10_150))
        assert isinstance((await harness.end()).result, Failure)
        assert harness.clock.now_ms() <= over_at

    with_harness(work, SourceSpec(f"cmd:{program} {{key}}"))


def slowly(key: bytes) -> bytes:
    time.sleep(2)
    return b"well"


def test_many_commands_at_once(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        for n in range(12):
            harness.start(b"%d" % n)
        found = sorted([(await harness.end()).result for _ in range(12)])
        assert found == sorted(Fetched(b"%d" % n) for n in range(12))

    with_harness(work, SourceSpec("cmd:/bin/echo -n {key}"))


def test_more_calls_than_allowed_are_refused(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        for n in range(3):
            harness.start(b"%d" % n)
        assert reason((await harness.end()).result) == "no place is free for one more call"
        for n in range(2):
            harness.calls.cancel(Cancel(b"%d" % n, BALLOT, harness.clock.now_ms() + 5_000))
            await harness.end()

    with_harness(work, SourceSpec("cmd:/bin/sleep 2{key}"), calls_max=2)


def test_a_hold_that_is_over_starts_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    async def work(harness: Harness) -> None:
        harness.start(str(mark).encode(), 0, 150)
        assert "over before the call began" in reason((await harness.end()).result)

    with_harness(work, SourceSpec("cmd:/bin/touch {key}"))
    assert not mark.exists()


@pytest.mark.parametrize("source", ["cmd:/bin/echo -n <{key}>", "call:tests.support.cache_functions:echo", "async"])
def test_a_peer_alone_has_no_hold_to_lose(source: str) -> None:
    async def work(harness: Harness) -> None:
        for far in (1 << 62, 1 << 70):
            harness.calls.start(Call(b"a", BALLOT, far, far))
            harness.calls.extend(Extend(b"a", BALLOT, far + 1, far + 1))
            assert (await harness.end()).result == Fetched(b"<a>")

    with_harness(work, SourceSpec(cache_functions.aecho if source == "async" else source))


def test_the_end_is_never_told_from_inside_a_call() -> None:
    async def work(harness: Harness) -> None:
        harness.start(b"a\0")
        assert harness.ended.empty()
        await harness.end()

    with_harness(work, SourceSpec("cmd:/bin/echo {key}"))


def test_the_peers_end_ends_its_calls() -> None:
    async def work(harness: Harness) -> None:
        keys = (b"", b"sleeps", b"async")
        for key in keys:
            harness.start(key)
        await asyncio.sleep(0.3)
        await harness.calls.close()
        assert harness.calls.running == 0, "over when it returns"
        assert {reason((await harness.end()).result) for _ in keys} == {"the peer ends"}

    async def sleeps(key: bytes) -> bytes:
        await asyncio.sleep(20)
        return b""

    with_harness(
        work,
        SourceSpec("cmd:/bin/sleep 20{key}"),
        SourceSpec("call:tests.support.cache_functions:bad", b"s"),
        SourceSpec(sleeps, b"async"),
    )


# --- plain functions --------------------------------------------------------------------------------------------------


def test_keys_reach_a_function_as_they_are() -> None:
    async def work(harness: Harness) -> None:
        for key in [*HOSTILE, b"a\0b", b"x" * 65_535]:
            assert await harness.get(key) == Fetched(b"<" + key + b">")

    with_harness(work, SourceSpec("call:tests.support.cache_functions:echo"))


def test_what_a_function_may_return() -> None:
    async def work(harness: Harness) -> None:
        expected = {
            b"bytes": Fetched(b"\0\xff"),
            b"text": Fetched("grün".encode()),
            b"array": Fetched(b"x"),
            b"none": Failure("the source has no such entry", missing=True),
            b"fetched": Fetched(b"x", 500),
            b"failure": Failure("not today"),
            b"missing": Failure("never was", missing=True),
            b"number": Failure("the source returned int; bytes, text, Fetched, Failure or None are right"),
            b"just": Fetched(bytes(1_000_000)),
            b"large": Failure("the source gave 3,000,000 bytes or more; cache.value_bytes_max is 1,000,000"),
        }
        for key, result in expected.items():
            assert await harness.get(key) == result
        assert "ttl_ms of 'soon'" in reason(await harness.get(b"wrong ttl"))
        assert "KeyError: b'unknown' (cache_functions.py line" in reason(await harness.get(b"unknown"))

    with_harness(work, SourceSpec("call:tests.support.cache_functions:kinds"), value_bytes_max=1_000_000)


def test_a_bad_function_costs_its_call_and_no_other() -> None:
    async def work(harness: Harness) -> None:
        assert reason(await harness.get(b"raises")).startswith(
            "ValueError: a word in two lines (cache_functions.py line"
        )
        assert reason(await harness.get(b"exits")).startswith("SystemExit: 3")
        assert await harness.get(b"prints") == Fetched(b"said")
        assert await harness.get(b"reads") == Fetched(b"nothing")
        assert "has ended with code 9" in reason(await harness.get(b"dies"))
        assert await harness.get(b"well") == Fetched(b"well")
        assert isinstance(await harness.get(b"writes"), Failure)
        assert await harness.get(b"well") == Fetched(b"well")
        over_at = harness.start(b"deaf", 450, 3_450)
        assert isinstance((await harness.end()).result, Failure)
        assert harness.clock.now_ms() <= over_at
        assert await harness.get(b"well") == Fetched(b"well")

    assert with_harness(work, SourceSpec("call:tests.support.cache_functions:bad")).left == []


def test_workers_are_kept_and_used_again() -> None:
    async def work(harness: Harness) -> None:
        assert len({await harness.get(b"%d" % n) for n in range(20)}) <= 2
        for n in range(6):
            harness.start(b"%d" % n)
        assert len({(await harness.end()).result for _ in range(6)}) >= 2

    with_harness(work, SourceSpec("call:tests.support.cache_functions:process"))


def test_no_second_spare_worker_is_started_while_the_first_is_coming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes longer to load than many calls take."""
    (tmp_path / "slow_to_load.py").write_text("import time\ntime.sleep(0.5)\ndef get(key): return key\n")
    started, new = [], FunctionSource._new

    def counted(self: FunctionSource, *until: Instants) -> Worker:
        started.append(until)
        return new(self, *until)

    monkeypatch.setattr(FunctionSource, "_new", counted)
    monkeypatch.syspath_prepend(str(tmp_path))

    async def work(harness: Harness) -> None:
        for n in range(20):
            assert await harness.get(b"%d" % n) == Fetched(b"%d" % n)

    with_harness(work, SourceSpec("call:slow_to_load:get"))
    assert started == [(), ()], "one with the source, one ahead of the next call"


def test_a_function_of_a_class_and_one_that_was_handed_over() -> None:
    async def work(harness: Harness) -> None:
        assert await harness.get(b"a") == Fetched(b"sold a")
        assert await harness.get(b"echo") == Fetched(b"<echo>")

    with_harness(
        work,
        SourceSpec("call:tests.support.cache_functions:Shop.fetch"),
        SourceSpec(cache_functions.echo, prefix=b"echo"),
    )


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("call:tests.no_such_module:f", "ModuleNotFoundError"),
        ("call:tests.support.cache_functions:no_such_function", "AttributeError"),
        ("call:tests.support.cache_functions:ANSWER", "cannot be called"),
        ("call:tests.cache_broken:f", "ZeroDivisionError"),
        ("call:nonsense", "call:package.module:function"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_told_at_the_start(
    source: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache_broken.py").write_text("1 / 0\n")
    with pytest.raises(UsageError, match=part):
        with_harness(None, SourceSpec(source.replace("tests.cache_broken", "cache_broken")), folder=str(tmp_path))  # type: ignore[arg-type]


def test_a_function_that_no_worker_could_find_is_refused() -> None:
    def inner(key: bytes) -> bytes:
        return key

    for wrong in (inner, lambda key: key):
        with pytest.raises(UsageError, match="cannot be found by a worker"):
            target_of(wrong)
    assert target_of(cache_functions.echo) == "tests.support.cache_functions:echo"


# --- async functions --------------------------------------------------------------------------------------------------


def test_an_async_function_runs_on_the_loop() -> None:
    async def work(harness: Harness) -> None:
        for n in range(30):
            harness.start(b"%d" % n)
        assert {(await harness.end()).result for _ in range(30)} == {Fetched(b"<%d>" % n) for n in range(30)}

    with_harness(work, SourceSpec("call:tests.support.cache_functions:aecho"))


def test_C4_a_coroutine_is_not_gone_on_with_after_its_cancel_was_due() -> None:
    """The loop stands still in the middle of a turn: the coroutine's turn is in it, the cancel only in the next."""
    went: list[str] = []
    gates: list[asyncio.Future[None]] = []

    async def fetch(key: bytes) -> bytes:
        gates.append(asyncio.get_running_loop().create_future())
        try:
            await gates[0]
            went.append("gone on")
            return b"late"
        except asyncio.CancelledError:
            went.append("cancelled")
            await asyncio.sleep(0)
            went.append("tidied up")
            raise

    async def work(harness: Harness) -> None:
        harness.start(b"k", cancel_ms=1_500, over_ms=6_000)
        while not gates:
            assert harness.calls.running, "it ended before it began"
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(time.sleep, 1.6)
        gates[0].set_result(None)
        found = await harness.end()
        assert isinstance(found.result, Failure)
        assert "not proved anew" in found.result.reason

    assert with_harness(work, SourceSpec(fetch)).left == []
    assert went == ["cancelled", "tidied up"]


def test_an_async_function_that_fails_or_is_cancelled() -> None:
    async def work(harness: Harness) -> None:
        assert reason(await harness.get(b"raises")).startswith("ValueError: no (cache_functions.py")
        for key in (b"sleeps", b"slow to end"):
            over_at = harness.start(key)
            await asyncio.sleep(0.05)
            harness.calls.cancel(Cancel(key, BALLOT, over_at))
            assert (await harness.end()).result == Failure("it was cancelled")

    assert with_harness(work, SourceSpec(cache_functions.abad)).left == []


class Stubborn:
    """A source that ends when it is let go, and not when it is cancelled."""

    def __init__(self) -> None:
        self._stop = asyncio.Event()

    async def fetch(self, key: bytes) -> bytes:
        while not self._stop.is_set():
            with suppress(asyncio.CancelledError):
                await self._stop.wait()
        return b"late"

    def let_go(self) -> None:
        self._stop.set()

    def during(self, work: Callable[[Harness], Awaitable[None]]) -> Callable[[Harness], Awaitable[None]]:
        """Let go at the end, also of a test that fails: the loop waits for it."""

        async def whole(harness: Harness) -> None:
            try:
                await work(harness)
            finally:
                self.let_go()

        return whole


def test_one_that_outlives_its_cancel_ends_the_process() -> None:
    source = Stubborn()

    async def work(harness: Harness) -> None:
        with Canary(50) as canary:
            over_at = harness.start(b"a", 300, 450)
            async with asyncio.timeout(LIMIT_S):
                while not harness.left:
                    await asyncio.sleep(0.005)
            late_ms = harness.clock.now_ms() - over_at
        canary.judge(late_ms < 200, f"the process ends {late_ms} ms after the hold")
        assert "key a is not over by the end of its hold" in harness.left[0]
        assert harness.ended.empty()
        source.let_go()
        assert (await harness.end()).result == Failure("the hold was not proved anew in time")

    with_harness(source.during(work), SourceSpec(source.fetch))


def test_one_that_outlives_its_time_limit_ends_the_process_although_its_hold_is_proved() -> None:
    source = Stubborn()

    async def work(harness: Harness) -> None:
        harness.start(b"a", 450, 600)
        began = harness.clock.now_ms()
        while not harness.left:
            now = harness.clock.now_ms()
            assert now < began + LIMIT_S * 1_000
            harness.calls.extend(Extend(b"a", BALLOT, now + 450, now + 600))
            await asyncio.sleep(0.05)
        source.let_go()
        assert reason((await harness.end()).result) == "the source took longer than 300 ms"

    with_harness(source.during(work), SourceSpec(source.fetch, timeout_ms=300))


def test_with_alert_it_is_said_and_the_late_end_is_not_told_again() -> None:
    source = Stubborn()

    async def work(harness: Harness) -> None:
        harness.start(b"a", 100, 250)
        assert (await harness.end()).result == Failure("it could not be ended in time")
        assert len(harness.alerts) == 1
        assert "another peer may fetch" in harness.alerts[0]
        assert harness.calls.running == 1, "it still has its place"
        source.let_go()
        async with asyncio.timeout(LIMIT_S):
            while harness.calls.running:
                await asyncio.sleep(0.005)

    assert with_harness(source.during(work), SourceSpec(source.fetch), on_overrun="alert").left == []


# --- several ----------------------------------------------------------------------------------------------------------


def test_the_longest_prefix_that_fits_has_the_key() -> None:
    specs: Sequence[SourceSpec] = [
        SourceSpec("cmd:/bin/echo -n user {key}", b"user:"),
        SourceSpec("cmd:/bin/echo -n admin {key}", b"user:root"),
        SourceSpec("cmd:/bin/echo -n rate {key}", b"rate:"),
    ]

    async def work(harness: Harness) -> None:
        assert await harness.get(b"user:7") == Fetched(b"user user:7")
        assert await harness.get(b"user:root:7") == Fetched(b"admin user:root:7")
        assert await harness.get(b"rate:x") == Fetched(b"rate rate:x")
        assert not harness.calls.covers(b"other")
        assert reason(await harness.get(b"other")) == "no source is set for this key"

    with_harness(work, *specs)


def test_two_sources_of_one_prefix_are_refused() -> None:
    with pytest.raises(UsageError, match="two sources have the prefix"):
        with_harness(None, SourceSpec("cmd:/bin/echo {key}"), SourceSpec("cmd:/bin/cat {key}"))  # type: ignore[arg-type]


def test_the_interpreter_of_workers_is_this_one() -> None:
    async def work(harness: Harness) -> None:
        assert await harness.get(b"a") == Fetched(sys.executable.encode())

    with_harness(work, SourceSpec("call:tests.contracts.test_cache_source:executable"))


def executable(key: bytes) -> str:
    return sys.executable
