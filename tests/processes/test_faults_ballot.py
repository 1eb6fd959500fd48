"""The ballot of a real node on a disk that fails at every step (F31-F36, F38): it remembers, or it is mute.

One real node, b; the test itself plays a and c, with real datagrams sealed by the cluster's secret, and asks for votes.
strace makes b's system calls fail, take too long, lie, or be its last. Whatever happens, in no term do both a and c get
b's vote, and what b said yes to, it still knows after its next start, or it says nothing (Q1, I3, I7, I8).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from primacy.election.messages import Message, Origin, VoteReply, VoteRequest
from primacy.election.model import Ballot, ListRecord
from primacy.node.ballot import FileDurable
from primacy.node.folder import Folder
from primacy.settings import config_hash, load
from primacy.transport.layout import packed, unpacked
from primacy.transport.seal import Drop, Seal, Sort
from tests.support.holder_process import state_of
from tests.support.real_nodes import Crowd, Node, crowd_in
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=160)

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
BASE = 1_700_000_000_000
CALLS = ("unlinkat,unlink", "openat", "write", "fsync,fdatasync", "close", "renameat,renameat2,rename")
"""What a save is made of."""
SYNCS = CALLS[3]
FAULTS = (
    "openat:error=ENOSPC",
    "write:error=ENOSPC",
    f"{SYNCS}:error=EIO",
    f"{SYNCS}:error=EIO:when=2+",
    "renameat,renameat2,rename:error=EROFS",
)
CRASHES_MAX = 12
"""Of one kind, before a vote is answered: the save has one or two of each, and the log a line."""
ANSWER_S = 60.0
"""For an answer that must come."""


class Asker:
    """A node that the test plays: it asks for votes, and hears the answers."""

    def __init__(self, crowd: Crowd, name: str, config: str) -> None:
        self.crowd, self.name, self.config = crowd, name, config
        self.boot = int.from_bytes(os.urandom(7), "big") | 1
        secret = (crowd.folder / "secret").read_bytes().strip()
        self.seal = Seal("crowd", "main", name, self.boot, (secret,))
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", crowd.ports[name]))
        self.socket.settimeout(0.05)
        self.theirs = 0
        """b's boot, once it has greeted us."""

    def say(self, message: Message) -> None:
        data = self.seal.sealed(Sort.MESSAGE, "b", self.theirs, packed(message))
        self.socket.sendto(data, ("127.0.0.1", self.crowd.ports["b"]))

    def hear(self) -> Message | None:
        try:
            opened = self.seal.opened(self.socket.recv(1_000))
        except (TimeoutError, ConnectionRefusedError):
            return None
        assert not isinstance(opened, Drop), opened
        if opened.sort is Sort.GREETING or opened.receiver_boot == self.boot:
            self.theirs = opened.boot
        return unpacked("b", opened.payload) if opened.sort is Sort.MESSAGE else None

    def ask(self, term: int, node: Node, within_s: float = ANSWER_S) -> bool | None:
        """b's final word about our candidacy in this term; None if it has none, or is dead."""
        end = time.monotonic() + within_s
        while time.monotonic() < end and node.is_up:
            self.say(VoteRequest(Origin(self.name, 1, self.boot, self.config, BASE), term, False))
            for _ in range(8):
                said = self.hear()
                if isinstance(said, VoteReply) and said.asked == term and not said.pre:
                    if said.granted or not said.retry_ms:
                        return said.granted
                    time.sleep(said.retry_ms / 1_000)
                    break
        return None

    def close(self) -> None:
        self.socket.close()


class Voter:
    """b, with a ballot that was used before, and the two that ask it."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        config = config_hash(load(crowd.folder / "primacy.yaml"))
        self.where = crowd.folder / "state-b/crowd/main"
        for folder in (crowd.folder / "state-b", crowd.folder / "state-b/crowd", self.where):
            folder.mkdir(mode=0o700, exist_ok=True)
        self.ballot = Ballot(BASE, 5, "", 500, BASE + 5, 3, (ListRecord(config, ("a", "b", "c"), True),))
        self.save()
        self.a, self.c = (Asker(crowd, name, config) for name in "ac")
        self.term = 5
        self.granted: dict[int, set[str]] = {}
        self.node = self.start()

    def save(self) -> None:
        folder = Folder(str(self.where))
        FileDurable(folder).save(self.ballot)
        folder.close()

    def start(self) -> Node:
        self.node = self.crowd.start("b")
        self.a.theirs = self.c.theirs = 0
        self.crowd.until(lambda: "listens on UDP" in self.node.text, "b to listen")
        return self.node

    def restart(self) -> None:
        self.node.process.kill()
        self.node.wait()
        self.start()

    def ask(self, asker: Asker, within_s: float = ANSWER_S) -> bool | None:
        said = asker.ask(self.term, self.node, within_s)
        if said:
            self.granted.setdefault(self.term, set()).add(asker.name)
        assert len(self.granted.get(self.term, ())) <= 1, f"two votes in term {self.term}: {self.granted[self.term]}"
        return said

    def awake(self) -> None:
        """Its silence after the start is over: it has answered in a term of its own."""
        self.term += 1
        assert self.ask(self.a) is True
        self.term += 1

    def refused_by_its_disk(self) -> None:
        """It says so; and what a asked is answered for: nothing of it is left that a disk that is well would take."""
        wait_until(lambda: "its disk to take the ballot" in str(self.node.document()["waits_for"]), "b to say why")
        for _ in range(3):  # a question that had to wait was there before these
            self.node.document()

    def remembers(self) -> None:
        """After the next start, in the same term: at most one of the two gets its vote, whoever asks first."""
        before = self.granted.get(self.term, set())
        said = {asker.name: self.ask(asker) for asker in (self.c, self.a)}
        assert not before or {name for name, yes in said.items() if yes} <= before, (said, before)

    def told(self) -> str:
        """What b and the tracer wrote."""
        return "\n".join(f"--- {log.name}\n{log.read_text()}" for log in sorted(self.crowd.folder.glob("log-*")))

    def close(self) -> None:
        self.a.close()
        self.c.close()


@pytest.fixture
def voter(tmp_path: Path) -> Iterator[Voter]:
    with crowd_in(tmp_path) as crowd, contextlib.closing(Voter(crowd)) as made:
        yield made


class Traced:
    """strace at a running node, with one fault."""

    def __init__(self, node: Node, fault: str, path: Path | None = None) -> None:
        """`path`: only calls that concern this file; a node also writes to its log, its guard and its loop."""
        log = node.log.with_suffix(".strace")
        call = ["strace", "-o", str(log), "-p", str(node.pid), "-e", f"trace={fault.partition(':')[0]}"]
        call += ["-P", str(path)] if path is not None else []
        self.log = log
        self.process = subprocess.Popen([*call, "-e", f"inject={fault}"], stderr=subprocess.PIPE)
        assert self.process.stderr is not None
        said = self.process.stderr.readline()  # it is a tracer a moment before it stops the first call
        assert b"attached" in said, said

    def __enter__(self) -> Traced:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)


def crashes_of(voter: Voter, calls: str) -> int:
    """The n-th such call after the question is b's last, for every n until b answers; how often it died."""
    for nth in range(1, CRASHES_MAX + 1):
        voter.term += 1
        with Traced(voter.node, f"{calls}:signal=KILL:when={nth}"):
            answered = voter.ask(voter.a)
        if state_of(str(voter.node.pid)) == "K":  # killed, and waits for a processor to die on
            voter.node.wait()
        if not voter.node.is_up:  # also if it had answered, and died of something later that it wrote
            voter.restart()
            voter.remembers()
        if answered is not None:
            assert answered is True
            return nth - 1
    raise AssertionError(f"still dying after {CRASHES_MAX} calls of {calls}")


@needs_strace
def test_F34_a_crash_at_every_system_call_of_a_vote(voter: Voter) -> None:
    voter.awake()
    crashes = {calls: crashes_of(voter, calls) for calls in CALLS}
    print(f"crashes: {crashes}")
    assert min(crashes.values()) >= 1, crashes
    assert crashes[SYNCS] >= 2, "the file and its folder; more, if it stood for itself before it was asked again"


@needs_strace
def test_F31_F33_a_disk_that_refuses_gets_no_vote_out_of_the_node(voter: Voter) -> None:
    """It says nothing, and why; once the disk is well, it votes, once, and knows that after its next start."""
    voter.awake()
    for fault in FAULTS:
        voter.term += 1
        with Traced(voter.node, fault):
            assert voter.ask(voter.a, within_s=0.5) is None, fault
            assert voter.node.is_up, fault
            voter.refused_by_its_disk()
        assert voter.ask(voter.c) is True, fault
        assert voter.ask(voter.a) is False, fault
    voter.restart()
    voter.remembers()
    assert voter.granted[voter.term] == {"c"}


@needs_strace
def test_F32_F36_a_write_that_lies_leaves_no_memory_and_never_a_second_vote(voter: Voter) -> None:
    """It says ten bytes and takes none, so that the ballot is torn: b is mute after its next start, and says why.

    Each write lies until b is dead: it may have something else to write before the vote or after it.
    """
    voter.awake()
    with Traced(voter.node, "write:retval=10:when=1+", voter.where / "ballot.new"):
        assert voter.ask(voter.a) is True
        voter.node.process.kill()
        voter.node.wait()
    voter.start()
    wait_until(lambda: "cannot be trusted" in voter.node.text, "why", told=voter.told)
    wait_until(lambda: voter.node.document()["role"] == "recovering", "that it recovers")
    assert voter.ask(voter.c, within_s=1.0) is None
    assert voter.ask(voter.a, within_s=0.2) is None


@needs_strace
def test_F35_a_slow_disk_makes_a_vote_late_and_not_wrong(voter: Voter) -> None:
    voter.awake()
    began = time.monotonic()
    with Traced(voter.node, "fsync,fdatasync:delay_enter=400000"):
        assert voter.ask(voter.a) is True
    assert time.monotonic() - began > 0.8  # the file, and its folder
    assert voter.ask(voter.c) is False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")
def test_F31_F32_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """A file system of 256 KiB, filled to the last byte: a write takes a part, and says no error."""
    with (
        crowd_in(tmp_path) as crowd,
        mounted(tmp_path / "state-b", crowd) as small,
        contextlib.closing(Voter(crowd)) as voter,
    ):
        voter.awake()
        filling = small / "filling"
        with filling.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4_096))
        assert voter.ask(voter.a, within_s=0.6) is None
        voter.refused_by_its_disk()
        filling.unlink()
        assert voter.ask(voter.c) is True
        voter.restart()
        voter.remembers()
        assert voter.granted[voter.term] == {"c"}


@contextlib.contextmanager
def mounted(folder: Path, crowd: Crowd) -> Iterator[Path]:
    """A small file system here, until no process of the crowd needs it any more."""
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        for node in crowd.started:
            node.process.kill()
            node.wait()
        call = ["umount", str(folder)]
        wait_until(
            lambda: subprocess.run(call, check=False, capture_output=True).returncode == 0, "the end of its users"
        )


@pytest.mark.parametrize("wrong", ["mode", "link"])
def test_F38_wrong_rights_and_a_link_in_place_of_the_ballot_are_refused(tmp_path: Path, wrong: str) -> None:
    with crowd_in(tmp_path) as crowd, contextlib.closing(Voter(crowd)) as voter:
        voter.node.process.kill()
        voter.node.wait()
        ballot = voter.node.ballot
        if wrong == "mode":
            ballot.chmod(0o644)
        else:
            ballot.rename(tmp_path / "elsewhere")
            ballot.symlink_to(tmp_path / "elsewhere")
        node = crowd.start("b")
        assert node.wait() == 4
        assert ("mode 0644" if wrong == "mode" else "is a link") in node.text
