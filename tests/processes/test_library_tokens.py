"""T2 for the library: the largest token is kept in a folder, if one is given, and nothing begins below it."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

import primacy
from primacy import blocking
from primacy.errors import CannotHere, Unsafe
from primacy.fence.file import Mark
from primacy.library.renewer import Renewer
from primacy.node.clock import SystemClock
from tests.support.library_harness import CANARY_HEARTBEAT_MS, Place, place, run, until
from tests.support.safety_checks import safe, tokens_grow

pytestmark = pytest.mark.moments(order=180)

__all__ = ["CANARY_HEARTBEAT_MS", "place"]


class Behind(SystemClock):
    """A machine whose wall clock is far behind: it lifts no token."""

    def wall_ms(self) -> int:
        return -1_000_000_000


def renewer_in(place: Place, folder: Path | None) -> Renewer:
    renewer = Renewer(place.url, profile="lab", state_dir=folder)
    renewer.clock = Behind()
    return renewer


async def token_of_one_turn(renewer: Renewer) -> int:
    async with renewer, primacy.Election("job", store=renewer) as election:
        leadership = await election.acquire()
        assert leadership is not None
        return leadership.token


def test_T2_tokens_grow_over_restarts_although_the_store_lost_them(place: Place, tmp_path: Path) -> None:
    with_folder, without = [], []
    for _ in range(2):
        with_folder.append(run(lambda: token_of_one_turn(renewer_in(place, tmp_path / "new" / "state"))))
        place.begin_anew()
    for _ in range(2):
        without.append(run(lambda: token_of_one_turn(renewer_in(place, None))))
        place.begin_anew()
    tokens_grow(with_folder)
    assert with_folder[1] == with_folder[0] + 1
    assert without[1] == without[0], "only the wall clock lifts it then, and this one does not"
    (kept,) = (tmp_path / "new" / "state").iterdir()
    assert (kept.name, Mark(kept).value()) == ("primacy_leases.job.token", with_folder[1])
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700


def test_T2_a_neighbours_larger_token_is_learned_before_anything_begins(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with renewer_in(place, tmp_path) as renewer, primacy.Election("job", store=renewer) as election:
            await until(lambda: election.standing.role in {"follower", "paused"})
            Mark(tmp_path / "primacy_leases.job.token").admit(1_000_000)
            leadership = await election.acquire()
            assert leadership is not None
            safe(leadership.token > 1_000_000, f"token {leadership.token} began after 1000000 was seen here")
            assert leadership.token == 1_000_001
            assert election.counts.won == 1, "what was taken below it was given back, and no body began"

    run(body)
    assert "this machine has seen a larger token, 1000000" in caplog.text
    assert place.row().released


def test_T2_a_torn_file_is_not_taken_for_none(place: Place, tmp_path: Path) -> None:
    (tmp_path / "primacy_leases.job.token").write_text("torn")
    with pytest.raises(Unsafe, match=r"reset\(token\)"):
        place.election(state_dir=tmp_path)
    with pytest.raises(CannotHere, match=r"state_dir = .*torn.*Not a directory"):
        primacy.Election("job/1", store=place.url, state_dir=tmp_path / "primacy_leases.job.token" / "torn")


def test_T2_threads_and_recipes_have_it_too(place: Place, tmp_path: Path) -> None:
    with blocking.Lock("job", store=place.url, profile="lab", state_dir=tmp_path) as leadership:
        assert Mark(tmp_path / "primacy_leases.job.token").value() == leadership.token

    @primacy.once("job", store=place.url, profile="lab", state_dir=tmp_path)
    async def report() -> int:
        await asyncio.sleep(0)
        return primacy.current().token

    second = run(report)
    tokens_grow([leadership.token, second])
    assert second == Mark(tmp_path / "primacy_leases.job.token").value()


def test_what_a_shared_renewer_decides_is_not_said_twice(place: Place) -> None:
    with Renewer(place.url) as renewer:
        for face in (primacy.Election, blocking.Election):
            with pytest.raises(primacy.UsageError, match="whose profile and table counts for all: say it there"):
                face("job", store=renewer, profile="lab", table="t")
