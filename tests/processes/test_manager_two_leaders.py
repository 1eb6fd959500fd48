"""Two real nodes of Ghoti that lead at once, and our nodes beside them, which only follow.

Real leaders never ask each other, and real followers are content with theirs: two leaders stay for ever, unless one of
our nodes finds it out. A mix is written in the order of ids: O is one of our nodes, R a real one of the first version,
L one of a later version (doubles).
"""

from __future__ import annotations

import asyncio
import os

import pytest

from primacy.election.events import Code
from primacy.membership.ghoti import claims, storms
from tests.support.canary import beside_a_canary
from tests.support.ghoti_double import Double
from tests.support.mixed_clusters import Mixed, played

pytestmark = pytest.mark.beside(order=5)

PROOF = os.environ.get("PRIMACY_SIZE") == "proof"
SPLITS = [
    ("ORR", "both"),
    ("ORR", "old"),
    ("ROR", "both"),
    ("OLL", "both"),
    ("OLL", "new"),
    ("OLLL", "both"),
    ("OORR", "both"),
]
"""The mix, and which side of the split our nodes reach."""
if PROOF:
    SPLITS = [
        (mix, side)
        for mix in ("ORR", "ROR", "OLL", "LOL", "OLLL", "OORR", "OORL", "ORRR")
        for side in ("both", "old", "new")
    ]
EVERY_S = 0.6
TRIES = 5
CANARY_MS = 100
"""Of `lan` an election waits 250 ms for the higher ones: a stall of which this canary, at 150 ms, tells."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much faster as the doubles are. What is done after a storm of joins is not what is tried here."""
    monkeypatch.setattr(storms, "LED_S", ())
    monkeypatch.setattr(claims, "EVERY_S", EVERY_S)
    monkeypatch.setattr(claims, "SURE_S", 0.3)
    monkeypatch.setattr(claims, "CALL_AGAIN_S", 1.0)


async def formed(nodes: Mixed, mix: str, first: int = 0) -> tuple[list[str], list[str]]:
    """Our nodes and the real ones, in id order. The `first` of the real ones begins the cluster, and leads it.

    Where another one has taken over, as a machine that stands still lets it, all is begun again.
    """
    names = dict(zip("abcdef", mix, strict=False))
    real = [name for name, kind in names.items() if kind != "O"]
    ours = [name for name in names if name not in real]
    leader = real[first]
    for _ in range(TRIES):
        for name in [leader, *(name for name in real if name != leader)]:
            await nodes.double(name, leader if name != leader else "", later=names[name] == "L")
        for name in ours:
            await nodes.start(name, [leader])
        await nodes.until(
            lambda: all(set(node.manager.member_list.peers) == set(names) for node in nodes.up.values()),
            "all are listed",
        )
        await nodes.calmed()
        if await nodes.one_leader() == leader:
            return ours, real
        for name in names:
            await nodes.kill(name)
    raise AssertionError(f"{leader} never leads; {nodes.story()}")


def real_leaders(nodes: Mixed) -> list[str]:
    """Those that lead, none of which would change by itself; nobody while an election or a look is under way."""
    doubles = nodes.doubles.values()
    return [] if any(each.busy for each in doubles) else sorted(each.node for each in doubles if each.leads)


async def led(nodes: Mixed, number: int) -> list[str]:
    """Waits until so many real nodes lead; fewer only if ours do, as on a machine that stands still."""
    found: list[str] = await nodes.until(
        lambda: leaders if len(leaders := real_leaders(nodes)) == number else nodes.leaders(),
        f"{number} real nodes lead",
    )
    return found


def counted(nodes: Mixed, name: str) -> int:
    return sum(node.manager.counters.get(name, 0) for node in nodes.up.values())


async def again_alone(nodes: Mixed, name: str) -> Double:
    """A real node whose file names nobody to join is restarted: it knows nobody, and leads."""
    later = nodes.doubles[name].later
    await nodes.kill(name)
    await nodes.until(lambda: nodes.agreed() not in ("", name), "another one leads")
    return await nodes.double(name, later=later)


# --- it ends with one -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mix", "side"), SPLITS)
def test_after_a_partial_split_one_of_two_real_leaders_remains(mix: str, side: str) -> None:
    """The leader and the other real nodes do not reach each other; ours reach all of them, or one side only."""

    async def scene(nodes: Mixed) -> None:
        ours, real = await formed(nodes, mix)
        here = [real[0], *(ours if side == "old" else [])]
        there = [*real[1:], *(ours if side == "new" else [])]
        nodes.cut(" ".join(here), " ".join(there))
        await led(nodes, 2)
        nodes.heal()
        await nodes.settled()
        await nodes.until(
            lambda: not any(node.manager.machine.claim_watch.troubles for node in nodes.up.values()),
            "status says nothing of it",
        )

    played(scene)


def test_after_a_full_split_one_of_three_real_leaders_remains() -> None:
    async def scene(nodes: Mixed) -> None:
        _, real = await formed(nodes, "OLLL")
        for name in real:
            nodes.cut(name, " ".join(other for other in real if other != name))
        await led(nodes, 3)
        nodes.heal()
        await nodes.settled()

    played(scene)


@beside_a_canary(CANARY_MS, passes_if_late=True)
def test_the_higher_of_two_real_leaders_is_the_one_that_remains() -> None:
    async def scene(nodes: Mixed) -> None:
        _, (low, high) = await formed(nodes, "OLL")
        nodes.cut(low, high)
        assert await led(nodes, 2) == [low, high]
        heard = nodes.doubles[low].heard
        called, announced = heard["/election"], heard["/coordinator"]
        nodes.heal()
        assert await nodes.settled() == high
        assert heard["/election"] == called, "only the higher one is called"
        assert heard["/coordinator"] > announced
        assert sum("both lead: node" in said for said in nodes.said) == 1, "the log says it once"

    played(scene)


@pytest.mark.parametrize("mix", ["LLO", "LLOO"])
@beside_a_canary(CANARY_MS, passes_if_late=True)
def test_where_ours_rank_above_both_the_highest_of_ours_leads_and_no_other(mix: str) -> None:
    async def scene(nodes: Mixed) -> None:
        ours, real = await formed(nodes, mix)
        nodes.cut(" ".join([real[0], *ours]), real[1])
        assert await led(nodes, 2) == real
        nodes.events.clear()
        nodes.heal()
        assert await nodes.settled() == ours[-1]
        assert {name for name, event in nodes.events if event.code is Code.ELECTED} == {ours[-1]}

    played(scene)


@pytest.mark.parametrize("mix", ["ORR", "OLL"])
def test_a_higher_one_that_forgot_all_others_is_told_of_them(mix: str) -> None:
    """It announces itself to nobody, however often it is called."""

    async def scene(nodes: Mixed) -> None:
        _, real = await formed(nodes, mix, first=-1)
        await again_alone(nodes, real[-1])
        await nodes.settled()
        await nodes.until(nodes.lists_are_true, "all know all")

    played(scene)


def test_a_lower_one_that_forgot_all_others_leads_them_once_the_higher_one_is_gone() -> None:
    """Our node calls it, and it announces itself to nobody: it is told of our node."""

    async def scene(nodes: Mixed) -> None:
        _, (low, high) = await formed(nodes, "OLL")
        await again_alone(nodes, low)
        await nodes.settled()
        await nodes.kill(high)
        await nodes.settled()

    played(scene)


def test_one_that_forgot_all_others_is_told_of_them_by_a_leader_of_ours() -> None:
    async def scene(nodes: Mixed) -> None:
        await nodes.start("c")
        await nodes.leads("c")
        for name in "ab":
            await nodes.double(name, "c", later=True)
        await nodes.until(nodes.lists_are_true, "all know all")
        await nodes.kill("a")
        await nodes.until(lambda: nodes.up["c"].manager.machine.state.peer("a").was_down, "it is missed")
        await nodes.double("a", later=True)
        await nodes.until(nodes.lists_are_true, "all know all again")
        await nodes.settled()

    played(scene)


# --- and makes nothing worse ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mix", ["ORR", "OLL"])
@beside_a_canary(CANARY_MS, passes_if_late=True)
def test_while_the_split_lasts_the_lower_one_is_told_nothing_and_status_says_why(mix: str) -> None:
    """Our node reaches both. If it told the lower one who leads, that one would follow, miss its leader and lead again,
    for as long as the split lasts."""

    async def scene(nodes: Mixed) -> None:
        (ours,), (low, high) = await formed(nodes, mix)
        nodes.cut(low, high)
        assert await led(nodes, 2) == [low, high]
        heard = nodes.doubles[low].heard
        before = heard["/coordinator"], heard["/election"]
        await nodes.until(
            lambda: any("elections do not end it" in said for said in nodes.said), "the log says that it stays"
        )
        assert (heard["/coordinator"], heard["/election"]) == before
        assert [each.leads for each in nodes.doubles.values()] == [True, True]
        (trouble,) = nodes.up[ours].manager.machine.claim_watch.troubles
        assert trouble in nodes.up[ours].manager.troubles
        assert trouble.node == low
        assert f"nodes {low} and {high} of Ghoti both lead" in trouble.sentence
        assert f"Repair the network between the two, or restart node {low}" in trouble.sentence
        nodes.heal()
        assert await nodes.settled() == high
        await nodes.until(lambda: not nodes.up[ours].manager.machine.claim_watch.troubles, "nothing is amiss any more")

    played(scene)


@beside_a_canary(CANARY_MS, passes_if_late=True)
def test_where_one_leads_nobody_is_called_and_a_follower_is_seldom_asked() -> None:
    """Each time it writes lines into its log. Two of our nodes do not ask it more often than one."""

    async def scene(nodes: Mixed) -> None:
        ours, (leader, follower) = await formed(nodes, "OOLL")
        managers = [nodes.up[name].manager for name in ours]
        await nodes.until(
            lambda: all(each.machine.state.peer(name).boot for each in managers for name in ours if name != each.node),
            "ours know each other",
        )
        loop = asyncio.get_running_loop()
        heard = nodes.doubles[follower].heard
        await asyncio.sleep(2 * EVERY_S)  # turns that were set before they did are over
        began_s, asked = loop.time(), heard["/remove"]
        await nodes.until(lambda: heard["/remove"] >= asked + 6, "it was asked several times")
        least_s = 0.75 * EVERY_S * len(ours)
        assert heard["/remove"] - asked <= len(ours) * (2 + (loop.time() - began_s) / least_s)
        assert counted(nodes, "leaders_called") == counted(nodes, "leaders_joined") == 0
        assert nodes.agreed() == leader

    played(scene)
