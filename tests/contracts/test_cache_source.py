"""The sources of a cache: what they give, what they refuse, and that nothing of a call outlives its end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from primacy.cache.effects import Call, Cancel, Extend
from primacy.cache.model import Failure, Fetched
from primacy.cache.source import SourceSpec
from primacy.errors import UsageError
from tests.support import cache_functions
from tests.support.source_harness import BALLOT, HOSTILE, Harness, reason, script, with_harness

pytestmark = pytest.mark.beside(order=480)

CANARY_HEARTBEAT_MS = 200
"""Holds and limits here are of some hundred milliseconds: that a call ends as it was told to, and not for one of them,
is asked of a machine that lets it run."""

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
