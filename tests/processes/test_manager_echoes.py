"""The storm of joins that real nodes of the first version keep up, and how ours end it (membership/ghoti/storms.py)."""

from __future__ import annotations

from itertools import islice, permutations

import pytest

from primacy.election.inputs import Pause
from primacy.membership.ghoti import storms as http_storms
from primacy.membership.ghoti.storms import Word, bent, mended
from primacy.membership.http_wire import encoded
from primacy.membership.members import entries_in
from tests.support.mixed_clusters import Mixed, played

pytestmark = pytest.mark.beside(order=165)

QUICK = {"profile": "fast"}
HERE = "here:1"
PATIENT = 0.5
"""Of a double's pace: one that stands still for a third of a second is not given up, whoever leads."""


# --- the two lists of words, without a socket -------------------------------------------------------------------------


class Model:
    """Nodes of the first version as their lists alone: whom each would tell of a join. Words are told at once."""

    def __init__(self, names: str) -> None:
        self.at = {name: f"{name}:1" for name in names}
        self.lists = {name: {other: addr for other, addr in self.at.items() if other != name} for name in names}
        self.circling: set[Word] = set()

    def tell(self, word: Word) -> None:
        """The word and all that it sets off; what would be told twice to one node is on its way for ever."""
        told: list[Word] = []
        open_words = [word]
        while open_words:
            said = open_words.pop()
            if said.at == HERE:
                continue
            if said in told:
                self.circling.add(said)
                continue
            told.append(said)
            name = said.at.partition(":")[0]
            self.lists[name][said.node] = said.addr
            open_words += [
                Word(at, said.node, said.addr) for other, at in self.lists[name].items() if other != said.node
            ]

    @property
    def nodes(self) -> list[tuple[str, str]]:
        return list(self.at.items())


@pytest.mark.parametrize("names", ["ab", "abc", "abcd"])
def test_once_the_lists_are_bent_no_word_comes_back(names: str) -> None:
    for order in islice(permutations(bent(Model(names).nodes, HERE)), 720):  # of two and three: every order
        model = Model(names)
        for word in order:
            model.tell(word)
        assert all(addr == HERE for known in model.lists.values() for addr in known.values())
        model.circling.clear()
        model.tell(Word(model.at["a"], "ours", "ours:1"))
        assert not model.circling


@pytest.mark.parametrize(("names", "left"), [("ab", 0), ("abc", 1)])
def test_when_the_lists_are_put_right_hardly_a_word_is_left(names: str, left: int) -> None:
    """Of three: the one word that closes the circle, between the two that it is not about."""
    model = Model(names)
    true = {name: dict(known) for name, known in model.lists.items()}
    for known in model.lists.values():
        known.update(dict.fromkeys(known, HERE))
    for word in mended(model.nodes):
        model.tell(word)
    assert model.lists == true
    assert len({word.node for word in model.circling}) == left


# --- real sockets -----------------------------------------------------------------------------------------------------


def test_three_real_nodes_alone_tell_each_other_without_end() -> None:
    """The manner itself: no node of ours is there, and the third one's join goes to and fro."""

    async def scene(nodes: Mixed) -> None:
        await nodes.double("a")
        await nodes.double("c", "a")
        await nodes.double("e", "a")
        await nodes.until(lambda: nodes.doubles["a"].heard["/join"] > 100, "a hundred joins for one")

    played(scene)


@pytest.mark.parametrize("doubles", [2, 3])
def test_one_node_of_ours_ends_the_storm_about_its_own_join(doubles: int) -> None:
    async def scene(nodes: Mixed) -> None:
        await nodes.double("a")
        for name in "ce"[: doubles - 1]:
            await nodes.double(name, "a")
        ours = await nodes.start("b", ["a"], election=QUICK)
        await nodes.calmed()
        assert await nodes.one_leader()
        assert ours.manager.counters["storms_calmed"] >= 1
        assert ours.manager.member_list.peers == {
            name: f"127.0.0.1:{nodes.port(name)}" for name in (*nodes.up, *nodes.doubles)
        }
        await nodes.kill(await nodes.one_leader())
        assert await nodes.one_leader()

    played(scene, PATIENT)


@pytest.mark.parametrize("doubles", [2, 3])
def test_two_of_ours_that_join_real_nodes_at_once_do_not_disturb_each_other(doubles: int) -> None:
    async def scene(nodes: Mixed) -> None:
        await nodes.double("a")
        for name in "ce"[: doubles - 1]:
            await nodes.double(name, "a")
        await nodes.start("b", ["a"], election=QUICK)
        await nodes.start("d", ["a"], election=QUICK)
        await nodes.calmed()
        assert await nodes.one_leader()

    played(scene, PATIENT)


def test_a_word_about_the_last_one_of_ours_that_comes_late_is_ended_too() -> None:
    """It was under way to one that died, and goes round between two real ones, neither of which tells it to us."""

    async def scene(nodes: Mixed) -> None:
        last = await nodes.start("d", election=QUICK)
        await nodes.start("b", ["d"], election=QUICK)
        for name in "ac":
            await nodes.double(name, "d")
        await nodes.calmed()
        await nodes.kill("b")
        await nodes.until(lambda: last.manager.counters.get("storms_calmed", 0) >= 1, "d alone puts the lists right")
        await nodes.calmed()
        late = {"id": "d", "addr": f"127.0.0.1:{nodes.port('d')}"}
        await last.manager.client.call(
            "POST", nodes.doubles["a"].addr, "/join", encoded(late), last.manager.machine.state.header(), 5
        )
        await nodes.calmed()
        assert await nodes.one_leader()

    played(scene, PATIENT)


@pytest.mark.parametrize("doubles", [2, 3])
def test_one_that_joined_by_another_of_ours_ends_the_storm_about_it_when_that_one_has_gone(doubles: int) -> None:
    """A real node leads, so that it looks at nobody else and does not notice: it must not count on the other one."""

    async def scene(nodes: Mixed) -> None:
        await nodes.double("z")
        for name in "ac"[: doubles - 1]:
            await nodes.double(name, "z")
        await nodes.start("b", ["z"])
        await nodes.calmed()
        await nodes.start("d", ["b"])
        await nodes.until(nodes.lists_are_true, "d is known to all")
        await nodes.kill("b")
        await nodes.calmed()
        assert await nodes.one_leader() == "z"

    played(scene, pace=1.0)


def test_two_real_nodes_that_came_to_lead_meanwhile_are_one_again() -> None:
    async def scene(nodes: Mixed) -> None:
        await nodes.double("z")
        ours = await nodes.start("b", ["z"], election=QUICK)
        await nodes.leads("z")
        low = await nodes.double("a", "z")
        await nodes.calmed()
        assert await nodes.one_leader() == "z"
        low.leader = "a"  # as if it had looked for z in vain, and told nobody
        ours.manager.machine.storms.at_once()
        await nodes.until(lambda: low.leader == "z", "the lower one is told who leads")
        assert await nodes.one_leader() == "z"

    played(scene, PATIENT)


def test_one_of_ours_that_is_killed_in_the_middle_mends_the_lists_when_it_is_back() -> None:
    async def scene(nodes: Mixed) -> None:
        double = await nodes.double("a")
        await nodes.double("c", "a")
        node = await nodes.start("b", ["a"], election=QUICK)
        own = f"127.0.0.1:{nodes.port('b')}"
        await nodes.until(lambda: double.peers.get("c") == own, "c is looked for at our address")
        await nodes.kill("b")
        assert double.peers["c"] == own
        remembered = tuple(each for each in entries_in(nodes.kept["b"]) if each.node != "b")
        assert {each.node for each in remembered} == {"a", "c"}
        node = await nodes.start("b", ["a"], election=QUICK, remembered=remembered)
        await nodes.calmed()  # who leads is another matter: while b was away a and c could not find each other
        assert node.manager.member_list.addr("c") == f"127.0.0.1:{nodes.port('c')}"

    played(scene)


def test_a_real_node_that_looks_at_one_of_ours_which_does_not_lead_is_told_who_does() -> None:
    """It would follow it for ever: a real leader says only once that it leads."""

    async def scene(nodes: Mixed) -> None:
        await nodes.double("z")
        await nodes.start("b", ["z"], election=QUICK)
        await nodes.leads("z")
        lost = await nodes.double("a", "b")
        lost.leader = "b"  # as after an announcement of b that came late
        await nodes.until(lambda: lost.leader == "z", "it follows z again")
        assert await nodes.one_leader() == "z"

    played(scene)


# --- in the middle of it ----------------------------------------------------------------------------------------------


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lists stay bent for a second and more, so that something can happen meanwhile."""
    monkeypatch.setattr(http_storms, "QUIET_S", 1.0)
    monkeypatch.setattr(http_storms, "DRAIN_S", 3.0)


async def until_bent(nodes: Mixed, by: str) -> None:
    """z leads, a follows it, and one of ours that joined them gives its own address out for both."""
    own = f"127.0.0.1:{nodes.port(by)}"
    a, z = nodes.doubles["a"], nodes.doubles["z"]
    await nodes.until(lambda: a.peers.get("z") == own == z.peers.get("a"), "they are looked for at our address")


async def a_follows_z(nodes: Mixed) -> None:
    await nodes.double("z")
    await nodes.double("a", "z")


@pytest.mark.usefixtures("slowly")
def test_one_that_cannot_lead_answers_for_those_that_are_looked_for_there() -> None:
    """Else each of them would take the others for dead, and lead."""

    async def scene(nodes: Mixed) -> None:
        await a_follows_z(nodes)
        ours = await nodes.start("b", ["z"])
        ours.driver.give(Pause())
        await until_bent(nodes, "b")
        a, at = nodes.doubles["a"], f"127.0.0.1:{nodes.port('b')}"
        assert await a.ask("GET", at, "/heartbeat") == 200
        assert await a.ask("POST", at, "/election", {"id": "a"}) == 200
        await nodes.calmed()
        assert await a.ask("GET", at, "/heartbeat") == 503
        assert await a.ask("POST", at, "/election", {"id": "a"}) == 503
        assert await nodes.one_leader("a", "b", "z") == "z"

    played(scene, pace=1.0)


@pytest.mark.usefixtures("slowly")
def test_one_that_is_stopped_puts_the_lists_right_first() -> None:
    async def scene(nodes: Mixed) -> None:
        await a_follows_z(nodes)
        ours = await nodes.start("b", ["z"])
        await until_bent(nodes, "b")
        await ours.shutdown()
        del nodes.up["b"]
        await nodes.until(nodes.lists_are_true, "a and z know where the other one is")

    played(scene, pace=1.0)


@pytest.mark.usefixtures("slowly")
def test_what_one_that_is_killed_has_begun_is_ended_by_another_of_ours() -> None:
    async def scene(nodes: Mixed) -> None:
        await a_follows_z(nodes)
        other = await nodes.start("d", ["z"])
        await nodes.calmed()
        done = other.manager.counters["storms_calmed"]
        await nodes.start("b", ["z"])
        await until_bent(nodes, "b")
        await nodes.kill("b")
        await nodes.until(lambda: other.manager.counters["storms_calmed"] > done, "d does it again")
        await nodes.calmed()
        assert other.manager.member_list.addr("a") == f"127.0.0.1:{nodes.port('a')}"

    played(scene, pace=1.0)


@pytest.mark.usefixtures("slowly")
def test_another_of_ours_that_joins_does_not_believe_the_address() -> None:
    async def scene(nodes: Mixed) -> None:
        await a_follows_z(nodes)
        await nodes.start("b", ["z"])
        await until_bent(nodes, "b")
        wrong, true = (f"127.0.0.1:{nodes.port(name)}" for name in "bz")
        member_list = (await nodes.start("d", ["a"])).manager.member_list

        def knows_z() -> bool:
            assert member_list.addr("z") != wrong
            return member_list.addr("z") == true

        await nodes.until(knows_z, "d knows where z is")
        await nodes.calmed()
        assert knows_z()
        assert await nodes.one_leader() == "z"

    played(scene, pace=1.0)


def test_an_address_is_not_believed_if_another_of_ours_answers_there() -> None:
    """Also one that is not known yet: real nodes tell one after the other, and may tell what is bent first."""

    async def scene(nodes: Mixed) -> None:
        member_list = (await nodes.start("b")).manager.member_list
        await nodes.leads("b")
        teller = await nodes.double("c", "b")
        await nodes.start("d")
        b, c, d, free = (f"127.0.0.1:{nodes.port(name)}" for name in ("b", "c", "d", "free"))
        assert await teller.ask("POST", b, "/join", {"id": "c", "addr": d}) == 200
        assert await teller.ask("POST", b, "/join", {"id": "x", "addr": d}) == 200
        assert (member_list.addr("c"), member_list.addr("x")) == (c, "")
        assert await teller.ask("POST", b, "/join", {"id": "d", "addr": d}) == 200
        assert await teller.ask("POST", b, "/join", {"id": "c", "addr": free}) == 200
        assert (member_list.addr("c"), member_list.addr("d")) == (free, d)

    played(scene)


@pytest.mark.usefixtures("slowly")
def test_what_is_joined_in_the_middle_is_ended_afterwards() -> None:
    async def scene(nodes: Mixed) -> None:
        await a_follows_z(nodes)
        ours = await nodes.start("b", ["z"])
        await until_bent(nodes, "b")
        await ours.join(nodes.doubles["a"].addr)
        await nodes.until(lambda: ours.manager.counters["storms_calmed"] > 1, "it is done once more")
        await nodes.calmed()

    played(scene, PATIENT)


@pytest.mark.usefixtures("slowly")
def test_lists_are_put_right_when_nodes_that_were_cut_off_are_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_storms, "TOLD_S", 0.5)
    monkeypatch.setattr(http_storms, "OWED_S", 0.5)

    async def scene(nodes: Mixed) -> None:
        await a_follows_z(nodes)
        ours = await nodes.start("b", ["z"])
        await until_bent(nodes, "b")
        for each in nodes.doubles.values():
            each.deaf = True
        await nodes.until(lambda: not ours.manager.machine.state.stands_in, "b has given it up")
        assert not nodes.lists_are_true()
        for each in nodes.doubles.values():
            each.deaf = False
        await nodes.calmed()

    played(scene, PATIENT)


def test_a_real_node_that_missed_who_leads_meanwhile_is_told() -> None:
    async def scene(nodes: Mixed) -> None:
        await a_follows_z(nodes)
        await nodes.double("c", "z")
        ours = await nodes.start("b", ["z"])
        await nodes.calmed()
        assert await nodes.one_leader() == "z"
        nodes.doubles["a"].leader = "c"  # as if z had announced itself while its list was bent
        ours.manager.machine.storms.at_once()
        await nodes.until(lambda: nodes.doubles["a"].leader == "z", "a is told who leads")

    played(scene, pace=1.0)


def test_five_of_ours_that_never_spoke_to_each_other_end_the_storm_of_two() -> None:
    """They follow a real node, so that none of them looks at another; they must not be taken for real ones."""

    async def scene(nodes: Mixed) -> None:
        await a_follows_z(nodes)
        for name in "bcdef":
            await nodes.start(name, ["a"])
        await nodes.calmed()
        assert await nodes.one_leader() == "z"

    played(scene, pace=1.0)


@pytest.mark.usefixtures("slowly")
def test_one_that_is_killed_in_the_middle_and_remembers_nothing_says_what_to_do() -> None:
    async def scene(nodes: Mixed) -> None:
        await a_follows_z(nodes)
        await nodes.start("b", ["z"])
        await until_bent(nodes, "b")
        await nodes.kill("b")
        await nodes.start("b", ["z"])
        await nodes.until(lambda: any("restart node a" in line for line in nodes.said), "it says so")

    played(scene, PATIENT)
