"""What the demo does to its cluster: scenes that break something real, say what to look at, and then what came of it.

What came of it is asked from the chain, not from the nodes: how long no signature came, and who signs now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from primacy.errors import Refused
from primacy.lab.cluster import Lab, leader_of
from primacy.lab.supervisor import Answer, Supervisor
from primacy.settings.timing import PROFILES

REST_S = 1.5
"""For a person to see the signatures go on."""
BRIEF_S = 0.4
PATIENCE_S = 20.0
"""Beyond some holds of the profile: only a machine that hangs takes longer."""
HOLDS = 5
TRIES = 3


class Told(Protocol):
    """Whoever shows it."""

    def scene(self, title: str, look: str) -> None: ...

    def line(self, sentence: str) -> None: ...


class Failover(NamedTuple):
    """One change of the signer."""

    after: str
    node: str
    gap_ms: int


class DemoScript:
    """A lab with its chain, and somebody who is told."""

    def __init__(self, up: Supervisor, told: Told) -> None:
        self.up = up
        self.told = told
        self.failovers: list[Failover] = []
        self.token = 0
        """Of the leader that was asked for last."""
        hold_s = PROFILES[up.lab.profile].hold_ms / 1_000
        self.within_s = PATIENCE_S + HOLDS * hold_s
        self.rest_s = max(REST_S, hold_s / 2)

    def act(self, act: Callable[[Lab], None], text: str, node: str = "") -> None:
        self.up.act(act, text, node)

    def until(self, check: Callable[[], Answer], what: str) -> Answer:
        return self.up.until(check, what, self.within_s)

    def chain(self) -> dict[str, Any]:
        return self.until(self.up.chain, "an answer of the chain") or {}

    def leader(self) -> str:
        """Who signs and leads."""

        def found() -> tuple[str, int] | None:
            rows = self.up.lab.look()
            leader = leader_of(rows)
            tokens = [row.state["token"] for row in rows if row.node == leader and row.state is not None]
            return (leader, tokens[0]) if tokens and tokens[0] else None

        leader, self.token = self.until(found, "a leader") or ("", 0)
        return leader

    def next_signature(self, after: int, token: int) -> dict[str, Any]:
        """The first one with a larger token, after this number."""

        def found() -> dict[str, Any] | None:
            rows = self.up.ask_chain(f"/v1/signatures?after={after}") or []
            return next((row for row in rows if row["token"] > token), None)

        return self.until(found, "a signature with a larger token") or {}

    def fails_over(self, after: str, harm: Callable[[], None]) -> str:
        """Does harm to the leader that was asked for last, waits for the next signer, and says how long nobody signed.

        Returns who that is: the one with a larger token than that leader had. On a busy machine another one may sign
        already when the harm is done; nobody need come after that one.
        """
        number = self.chain()["counters"]["signatures"]
        harm()
        row = self.next_signature(number, self.token)
        self.failovers.append(Failover(after, row["node"], row["gap_ms"]))
        self.told.line(f"{row['node']} signs height {row['height']}, {row['gap_ms']:,} ms after the one before")
        return str(row["node"])


def kill(script: DemoScript) -> None:
    leader = script.leader()
    script.told.scene(
        f"The agent of {leader} is killed (kill -9).",
        "Its guard ends the signer, confirms it, and tells the others: nobody waits for a hold to run out.",
    )
    _harm(script, "a killed agent", lambda lab: lab.kill(leader), f"the demo kills {leader}", leader)
    _back(script, leader)


def links(script: DemoScript) -> None:
    """The single executor's second picture: the leader's links are broken one by one, until it has no majority."""
    for _ in range(TRIES):
        if _links_of(script, script.leader()):
            return
        script.told.line("the leader has changed meanwhile: once more, with the new one")
        _heal(script)


def _links_of(script: DemoScript, leader: str) -> bool:
    """False if a busy machine had another leader before the last cut."""
    others = [name for name in script.up.lab.names if name != leader]
    enough = len(others) - len(script.up.lab.names) // 2
    """So many can be lost: the leader and the rest are still a majority."""
    script.told.scene(
        f"The links of {leader} are cut, one after the other.",
        "As long as it reaches a majority nothing changes; then it stops its signer before another one may start.",
    )
    for other in others[:enough]:
        script.act(_cut(leader, other), f"the demo cuts {leader}-{other}", leader)
        script.told.line(f"{leader} has lost {other}, and still reaches a majority")
        script.up.rest(script.rest_s / 2)
    if script.leader() != leader:
        return False
    last = others[enough]

    def cut_last() -> None:
        script.act(_cut(leader, last), f"the demo cuts {leader}-{last}", leader)
        script.told.line(f"{leader} has lost {last} too, and with it the majority")

    script.fails_over("a lost majority", cut_last)
    script.up.rest(script.rest_s)
    _heal(script)
    return True


def one_way(script: DemoScript) -> None:
    leader = script.leader()
    script.told.scene(
        f"{leader} is still heard by all, and hears nobody.",
        "Its heartbeats would keep the others quiet for ever: so a leader without answers stops them and its signer.",
    )

    def deafen() -> None:
        for other in script.up.lab.names:
            if other != leader:
                script.act(_cut(leader, other, "in"), f"the demo cuts {other}→{leader}", leader)

    script.fails_over("links of one way", deafen)
    script.up.rest(script.rest_s)
    _heal(script)


def minority(script: DemoScript) -> None:
    leader = script.leader()
    script.told.scene(
        f"The network is split, and {leader} is on the smaller side.",
        "Its side has a leader and no majority, the other one a majority and no leader: the signer moves over.",
    )
    _harm(script, "a smaller side", lambda lab: lab.partition("2/3"), "the demo splits the network", leader)
    _heal(script)


def child(script: DemoScript) -> None:
    for _ in range(TRIES - 1):
        try:
            return _child_of(script, script.leader())
        except Refused as error:
            script.told.line(f"{error}: once more, with the leader of now")
    return _child_of(script, script.leader())


def _child_of(script: DemoScript, leader: str) -> None:
    """Raises `Refused` if a busy machine has another leader before its signer is killed."""
    script.told.scene(
        f"The signer of {leader} is killed, and nothing else.",
        "No election: the same node starts it again under the same token, as its next run.",
    )
    before = script.chain()
    number, signer = before["counters"]["signatures"], before["signer"] or {}
    script.act(lambda lab: _kill_work(lab, leader), f"the demo kills the signer of {leader}", leader)

    def again() -> dict[str, Any] | None:
        rows = script.up.ask_chain(f"/v1/signatures?after={number}") or []
        return next((row for row in rows if row["signer"] != signer.get("id")), None)

    row = script.until(again, "a signature of the next run") or {}
    whose = "the same token" if row["token"] == signer.get("token") else "another token: the machine is busy"
    script.told.line(f"{row['node']} signs height {row['height']} as run {row['run']}, under {whose}")
    script.up.rest(script.rest_s)


def freeze(script: DemoScript) -> None:
    leader = script.leader()
    script.told.scene(
        f"{leader} is frozen: its agent and its guard (SIGSTOP).",
        "Neither can stop the signer now. A timer in the kernel does.",
    )
    _harm(script, "a frozen node", lambda lab: lab.freeze(leader, guard=True), f"the demo freezes {leader}", leader)
    script.act(lambda lab: lab.thaw(leader), f"the demo thaws {leader}", leader)
    script.told.line(f"{leader} thaws, and follows: it knows that its time is over")
    script.up.rest(script.rest_s)


def halves(script: DemoScript) -> None:
    script.leader()
    script.told.scene(
        "The network is split: no side has a majority.", "Nobody signs. At most one, and if need be none."
    )

    def split_and_mend() -> None:
        script.act(lambda lab: lab.partition("halves"), "the demo splits the network")
        script.until(lambda: not script.up.document()["acting"], "the end of the signer")
        script.told.line("nobody runs the signer")
        script.up.rest(script.rest_s)
        _heal(script, rest=False)

    script.fails_over("a split network", split_and_mend)
    script.up.rest(script.rest_s)


def power(script: DemoScript) -> None:
    leader = script.leader()
    script.told.scene(
        f"{leader} loses its power: agent, guard and signer are gone at one stroke.",
        "Nobody can say that the signer is gone: the others wait until it surely is.",
    )
    _harm(script, "a lost machine", lambda lab: lab.kill(leader, whole=True), f"the demo switches {leader} off", leader)
    _back(script, leader)


def stop(script: DemoScript) -> None:
    """The single executor's first picture."""
    leader = script.leader()
    script.told.scene(
        f"{leader} is stopped in order.", "Its signer ends, then it releases the role: the next one starts."
    )
    _harm(script, "a stopped node", lambda lab: lab.stop(leader), f"the demo stops {leader}", leader)
    _back(script, leader)


def tour(script: DemoScript) -> None:
    """All of them."""
    for scene in (stop, kill, child, links, one_way, minority, halves, freeze, power):
        scene(script)


def calm(script: DemoScript) -> None:
    """Nothing: whoever watches breaks it."""
    script.told.scene("All is well.", "Break it: with the keys below, or from another terminal with primacy lab.")


SCENARIOS: dict[str, Callable[[DemoScript], None]] = {
    "tour": tour,
    "calm": calm,
    "stop": stop,
    "kill": kill,
    "child": child,
    "links": links,
    "one-way": one_way,
    "minority": minority,
    "halves": halves,
    "freeze": freeze,
    "power": power,
}


def _harm(script: DemoScript, after: str, act: Callable[[Lab], None], text: str, leader: str) -> None:
    """Of which another node takes over."""
    script.fails_over(after, lambda: script.act(act, text, leader))
    script.up.rest(script.rest_s)


def _cut(node: str, other: str, way: str = "both") -> Callable[[Lab], None]:
    return lambda lab: lab.cut(node, other, way)


def _kill_work(lab: Lab, node: str) -> None:
    lab.kill_command(node)


def _back(script: DemoScript, node: str) -> None:
    script.act(lambda lab: lab.start(node), f"the demo starts {node}", node)
    script.told.line(f"{node} is back, and disturbs nobody")
    script.up.rest(BRIEF_S)


def _heal(script: DemoScript, *, rest: bool = True) -> None:
    script.act(lambda lab: lab.heal(), "the demo mends all links")
    script.told.line("all links are whole again")
    if rest:
        script.up.rest(script.rest_s)
