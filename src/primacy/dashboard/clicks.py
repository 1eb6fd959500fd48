"""From a click to the calls that do it. Pure; the vocabulary is closed.

An order names what to do in the page's words. What comes out is an ordered list of calls to a node's control API or to
the lab supervisor, and a sentence of what was done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from primacy.errors import Refused, UsageError

PROCESS_ORDERS = {
    "start": "Node {node} was started.",
    "stop": "Node {node} was told to end: it stops its command, confirms that, and releases the role.",
    "kill": "The agent of {node} was killed (SIGKILL).",
    "freeze": "The agent of {node} is frozen (SIGSTOP).",
    "thaw": "The agent of {node} goes on (SIGCONT).",
}
SHAPES = {
    "leader-alone": "the leader is alone",
    "halves": "no side has a majority",
    "2/3": "the leader is on the smaller side",
}
"""The lab's own words."""
PREPARED = ("stop-leader", "cut-leader", "mend")


class Call(NamedTuple):
    """One POST."""

    where: str
    """`node` or `lab`."""
    path: str
    body: Mapping[str, Any]
    node: str = ""
    """Which node should be asked, if there is a choice."""


class Scene(NamedTuple):
    """What an order may look at."""

    names: tuple[str, ...]
    leader: str
    """The acting or leading node; empty if nobody leads."""
    lab: bool
    down: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()


class Done(NamedTuple):
    """What to call, and what to say when all of it was taken."""

    calls: tuple[Call, ...]
    said: str


def steps_of(body: Mapping[str, Any], scene: Scene) -> Done:
    """Raises `UsageError` for an order that makes no sense, `Refused` for one that cannot be done now."""
    do = _word(body, "do")
    if do in ("step-down", "transfer", "pause", "resume", "approve"):
        return _election(do, body, scene)
    if do in PROCESS_ORDERS or do in ("link", "partition", "heal", "picture"):
        if not scene.lab:
            raise Refused("processes and links can be changed in a lab only; this is no lab")
        return _lab(do, body, scene)
    raise UsageError(f"do = {do}: no such order")


def _election(do: str, body: Mapping[str, Any], scene: Scene) -> Done:
    if do == "step-down":
        if not scene.leader:
            raise Refused("nobody leads, so that nobody can step down")
        return Done((Call("node", "/v1/step-down", {}, scene.leader),), f"{scene.leader} steps down, in order.")
    node = _name(body, "node", scene)
    if do == "transfer":
        said = f"The role is handed over to {node}, in order."
        return Done((Call("node", "/v1/transfer", {"to": node}, scene.leader),), said)
    if do == "approve":
        term = body.get("term")
        if isinstance(term, bool) or not isinstance(term, int) or term < 0:
            raise UsageError("term: the term that is approved, a whole number")
        said = f"{node} was approved for term {term}."
        return Done((Call("node", "/v1/approve", {"node": node, "term": term}, node),), said)
    said = f"{node} is paused: it will not lead." if do == "pause" else f"{node} may lead again."
    return Done((Call("node", f"/v1/{do}", {"node": node}, node),), said)


def _lab(do: str, body: Mapping[str, Any], scene: Scene) -> Done:
    if do in PROCESS_ORDERS:
        node = _name(body, "node", scene)
        return Done((_process(node, do),), PROCESS_ORDERS[do].format(node=node))
    if do == "heal":
        return Done((Call("lab", "/v1/lab/heal", {}),), "All links are mended.")
    if do == "partition":
        return _partition(body, scene)
    if do == "picture":
        return _prepared(body, scene)
    a, b = _name(body, "a", scene), _name(body, "b", scene)
    if a == b:
        raise UsageError(f"a link has two ends, and {a} is one of them twice")
    how = _word(body, "how")
    if how == "break":
        return Done((_link(a, b, "both"),), f"{a} and {b} do not hear each other any more.")
    if how == "one-way":
        return Done((_link(a, b, "in"),), f"{b} still hears {a}; {a} no longer hears {b}.")
    if how == "mend":
        return Done((_link(a, b, "none"),), f"{a} and {b} hear each other again.")
    raise UsageError(f"how = {how}: one of break, one-way, mend")


def _partition(body: Mapping[str, Any], scene: Scene) -> Done:
    shape = _word(body, "shape")
    if shape not in SHAPES:
        raise UsageError(f"shape = {shape}: one of {', '.join(SHAPES)}")
    if shape == "leader-alone" and not scene.leader:
        raise Refused("nobody leads now; wait for a leader, or choose another shape")
    return Done((Call("lab", "/v1/lab/partition", {"shape": shape}),), f"The network is divided: {SHAPES[shape]}.")


def _prepared(body: Mapping[str, Any], scene: Scene) -> Done:
    """The three pictures of the single executor."""
    name = _word(body, "name")
    if name == "mend":
        starts = tuple(_process(node, "start") for node in scene.down)
        thaws = tuple(_process(node, "thaw") for node in scene.frozen)
        heal = Call("lab", "/v1/lab/heal", {})
        return Done((*thaws, *starts, heal), "All links are mended and all nodes run again.")
    if name not in PREPARED:
        raise UsageError(f"name = {name}: one of {', '.join(PREPARED)}")
    if not scene.leader:
        raise Refused("nobody leads now; wait for a leader")
    if name == "stop-leader":
        return Done((_process(scene.leader, "stop"),), f"The leader, {scene.leader}, was told to end.")
    others = [each for each in scene.names if each != scene.leader]
    majority = len(scene.names) // 2 + 1
    lost = others[: len(scene.names) - majority + 1]
    calls = tuple(_link(scene.leader, other, "both") for other in lost)
    return Done(calls, f"{scene.leader} lost its links to {', '.join(lost)}, and with them its majority.")


def _process(node: str, do: str) -> Call:
    return Call("lab", f"/v1/lab/{node}/{do}", {})


def _link(a: str, b: str, cut: str) -> Call:
    return Call("lab", "/v1/lab/links", {"node": a, "with": b, "cut": cut})


def _word(body: Mapping[str, Any], field: str) -> str:
    word = body.get(field)
    if not isinstance(word, str):
        raise UsageError(f"{field} = {str(word)[:40]}: a word")
    return word[:40]


def _name(body: Mapping[str, Any], field: str, scene: Scene) -> str:
    name = body.get(field)
    if not isinstance(name, str) or name not in scene.names:
        raise UsageError(f"{field} = {str(name)[:40]}: no node of this cluster; there are {', '.join(scene.names)}")
    return name
