"""The dashboard without a browser: who may do what, clicks that become orders, and the files of the page."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from primacy.dashboard.access import CODE_MS, SESSION_MS, SESSIONS_MAX, TRIES_MAX, TRIES_MS, Access
from primacy.dashboard.clicks import PROCESS_ORDERS, Scene, steps_of
from primacy.dashboard.page_server import CSP, static_files
from primacy.dashboard.source import Source
from primacy.errors import Refused, UsageError

pytestmark = pytest.mark.real_time

# --- who may do what --------------------------------------------------------------------------------------------------


KEY = "ab" * 32


def test_reading_is_open_on_loopback_only_and_changing_needs_a_session() -> None:
    here, elsewhere = Access(KEY, loopback=True, lab=False), Access(KEY, loopback=False, lab=True)
    assert (here.may_read("", 0), here.may_change("", 0)) == (True, False)
    assert (elsewhere.may_read("", 0), elsewhere.may_change("", 0)) == (False, False)
    name = here.enter(key=KEY, code="", now_ms=0)
    assert name is not None
    assert here.may_change(name, 1)
    assert not here.may_change(name, SESSION_MS)
    assert not here.may_change(name + "x", 1)
    here.leave(name)
    assert not here.may_change(name, 1)


def test_a_lab_on_loopback_needs_no_session_and_a_dashboard_without_a_key_changes_nothing() -> None:
    assert Access("", loopback=True, lab=True).may_change("", 0)
    blind = Access("", loopback=True, lab=False)
    assert blind.enter(key="", code="", now_ms=0) is None
    assert not blind.may_change("", 0)


def test_the_link_works_once_and_not_for_ever() -> None:
    access = Access(KEY, loopback=True, lab=False)
    code = access.new_code(0)
    assert access.enter(key="", code=code, now_ms=1) is not None
    assert access.enter(key="", code=code, now_ms=2) is None
    late = access.new_code(10)
    assert access.enter(key="", code=late, now_ms=10 + CODE_MS) is None
    older, newer = access.new_code(20), access.new_code(21)
    assert access.enter(key="", code=older, now_ms=22) is None
    assert access.enter(key="", code=newer, now_ms=23) is not None


def test_keys_cannot_be_tried_without_end_and_sessions_are_bounded() -> None:
    access = Access(KEY, loopback=True, lab=False)
    for at_ms in range(TRIES_MAX):
        assert access.enter(key="wrong", code="", now_ms=at_ms) is None
    assert access.enter(key=KEY, code="", now_ms=50) is None, "nobody may try for a while"
    first = access.enter(key=KEY, code="", now_ms=TRIES_MS + TRIES_MAX)
    assert first is not None
    for _ in range(SESSIONS_MAX):
        access.enter(key=KEY, code="", now_ms=TRIES_MS + TRIES_MAX)
    assert not access.is_in(first, TRIES_MS + TRIES_MAX)


# --- orders -----------------------------------------------------------------------------------------------------------


SCENE = Scene(tuple("abcde"), "c", lab=True)


def calls(scene: Scene = SCENE, **body: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(call.path, dict(call.body)) for call in steps_of(body, scene).calls]


def test_clicks_become_calls() -> None:
    assert calls(do="pause", node="b") == [("/v1/pause", {"node": "b"})]
    assert calls(do="transfer", node="b") == [("/v1/transfer", {"to": "b"})]
    assert calls(do="step-down") == [("/v1/step-down", {})]
    assert calls(do="approve", node="b", term=4) == [("/v1/approve", {"node": "b", "term": 4})]
    assert calls(do="link", a="a", b="b", how="one-way") == [("/v1/lab/links", {"node": "a", "with": "b", "cut": "in"})]
    assert calls(do="partition", shape="halves") == [("/v1/lab/partition", {"shape": "halves"})]
    for order in PROCESS_ORDERS:
        assert calls(do=order, node="b") == [(f"/v1/lab/b/{order}", {})]


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 7, 20])
def test_the_second_figure_takes_the_leaders_majority_and_not_more(nodes: int) -> None:
    names = tuple(f"n{at:02}" for at in range(nodes))
    cut = [body["with"] for _, body in calls(Scene(names, names[-1], lab=True), do="picture", name="cut-leader")]
    left, majority = nodes - len(cut), nodes // 2 + 1
    assert left < majority if nodes > 1 else not cut
    assert left + 1 >= majority


def test_the_third_figure_mends_links_and_starts_and_thaws_nodes() -> None:
    scene = SCENE._replace(down=("a",), frozen=("e",))
    found = [path for path, _ in calls(scene, do="picture", name="mend")]
    assert found == ["/v1/lab/e/thaw", "/v1/lab/a/start", "/v1/lab/heal"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"do": "reboot"},
        {"do": ["pause"]},
        {"do": "pause", "node": "../heal"},
        {"do": "kill", "node": "z"},
        {"do": "kill", "node": 5},
        {"do": "link", "a": "a", "b": "a", "how": "break"},
        {"do": "link", "a": "a", "b": "b", "how": "melt"},
        {"do": "partition", "shape": "round"},
        {"do": "picture", "name": "fire"},
        {"do": "approve", "node": "b", "term": "7"},
    ],
)
def test_an_order_that_makes_no_sense_is_refused_with_a_sentence(body: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"\w"):
        steps_of(body, SCENE)


def test_faults_are_for_the_lab_only_and_some_orders_need_a_leader() -> None:
    real, nobody = SCENE._replace(lab=False), SCENE._replace(leader="")
    for body in ({"do": "kill", "node": "b"}, {"do": "heal"}, {"do": "picture", "name": "mend"}):
        with pytest.raises(Refused, match="lab only"):
            steps_of(body, real)
    for body in (
        {"do": "step-down"},
        {"do": "picture", "name": "stop-leader"},
        {"do": "partition", "shape": "leader-alone"},
    ):
        with pytest.raises(Refused, match="nobody leads"):
            steps_of(body, nobody)


# --- the files of the page --------------------------------------------------------------------------------------------


STATIC = Path(__file__).parents[2] / "src/primacy/dashboard/static"


def test_the_page_needs_no_other_host_no_inline_script_and_sets_no_markup() -> None:
    for file in sorted(STATIC.rglob("*")):
        if file.is_dir():
            continue
        text = file.read_text()
        addresses = text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in addresses, file.name
        assert "https://" not in addresses, file.name
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            " style=",
        ):
            assert word not in text, f"{file.name}: {word}"
    page = (STATIC / "index.html").read_text()
    assert "<style" not in page
    assert all("src=" in part.partition(">")[0] for part in page.split("<script")[1:])
    assert "unsafe" not in CSP


def test_every_module_that_is_imported_is_served() -> None:
    files = static_files()
    assert files["app.js"].kind == "text/javascript"
    for name in [name for name in files if name.endswith(".js")]:
        for line in files[name].data.decode().splitlines():
            if line.startswith("import ") and '"' in line:
                wanted = line.split('"')[1]
                base = name.rpartition("/")[0]
                full = (Path("/") / base / wanted).resolve().relative_to("/")
                assert str(full) in files, f"{name} imports {wanted}"


@pytest.mark.parametrize("turns", range(5))
def test_a_reader_that_is_ended_while_it_is_told_to_hurry_ends(turns: int) -> None:
    """A browser comes in the very moment in which the page ends: the one must not swallow the other."""

    async def scene() -> None:
        source = Source((), None, lambda _: None)

        async def reads() -> None:
            while True:
                await source._rest(0)

        source._tasks = [asyncio.create_task(reads())]
        for _ in range(5):
            await asyncio.sleep(0)
        source._hurry.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await source.close()

    asyncio.run(scene())
