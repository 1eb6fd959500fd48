"""The chain and the signer: what is taken, what is refused, and what proves that two were at work at once."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.cli import main as entry
from primacy.control import ORDER_HEADER
from primacy.lab import ledger as machine
from primacy.lab import signer as program
from primacy.lab.ledger import Ledger, Signer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=430)

A = Signer(100, 1, "a", "a" * 16)
A2 = Signer(100, 2, "a", "c" * 16)
B = Signer(101, 1, "b", "b" * 16)
INTERVAL_MS = 100
WITHIN_S = 180.0


def us(ms: int) -> int:
    return ms * 1_000


@pytest.fixture
def chain() -> Ledger:
    """Two heights, signed by a."""
    made = Ledger()
    assert made.open(A, us(10), INTERVAL_MS).next_height == 1
    assert made.sign(A, 1, us(20), 0).next_height == 2
    assert made.sign(A, 2, us(120), 0).next_height == 3
    return made


# --- the ledger -------------------------------------------------------------------------------------------------------


def test_a_handover_goes_on_where_the_other_left_off(chain: Ledger) -> None:
    assert chain.open(B, us(500), INTERVAL_MS) == (True, 3, "")
    assert chain.sign(B, 3, us(520), 7).is_taken
    last = chain.signatures[-1]
    assert (last.height, last.node, last.gap_ms, last.at_unix_ms) == (3, "b", 400, 7)
    counted = {name: count for name, count in chain.counters.items() if count}
    assert counted == {"signatures": 3, "handovers": 1, "gaps": 1, "longest_gap_ms": 400}


def test_what_was_sent_before_its_sender_died_is_refused_and_is_no_crime(chain: Ledger) -> None:
    chain.open(B, us(500), INTERVAL_MS)
    late = chain.sign(A, 3, us(499), 0)
    assert not late.is_taken
    assert "token 100, run 1 is stale: b (token 101, run 1) has begun" in late.why
    assert not chain.open(A, us(400), INTERVAL_MS).is_taken
    assert (chain.counters["stale"], chain.counters["double_signatures"]) == (2, 0)


def test_a_signature_that_an_older_signer_makes_after_a_newer_began_is_a_double(chain: Ledger) -> None:
    chain.open(B, us(500), INTERVAL_MS)
    assert not chain.sign(A, 3, us(501), 0).is_taken
    assert chain.counters["double_signatures"] == 1
    assert chain.alerts[0] == "a (token 100, run 1) signs height 3 after b (token 101, run 1) had begun"


def test_it_is_a_double_also_if_the_older_ones_word_arrives_first(chain: Ledger) -> None:
    assert chain.open(B, us(119), INTERVAL_MS).is_taken
    assert chain.counters["double_signatures"] == 1
    assert "signed height 2 after b (token 101, run 1) had begun" in chain.alerts[0]


def test_one_height_has_one_signer(chain: Ledger) -> None:
    chain.open(B, us(500), INTERVAL_MS)
    assert chain.sign(B, 2, us(510), 0).why == "height 2 is signed by a"
    assert chain.counters["double_signatures"] == 1


def test_a_token_and_run_belong_to_one_signer(chain: Ledger) -> None:
    duplicate = A._replace(id="d" * 16)
    assert not chain.open(duplicate, us(500), INTERVAL_MS).is_taken
    assert chain.counters["double_signatures"] == 1
    assert not chain.sign(duplicate, 3, us(510), 0).is_taken
    assert (chain.counters["signatures"], chain.counters["double_signatures"]) == (2, 1)


@pytest.mark.parametrize("does", ["open", "sign"])
def test_a_token_and_run_belong_to_one_signer_also_after_others_have_begun(chain: Ledger, does: str) -> None:
    """And whenever its word was made: no two are told apart by a token that both have."""
    assert chain.open(B, us(500), INTERVAL_MS).is_taken
    second = A._replace(node="c", id="d" * 16)
    verdict = chain.open(second, us(5), INTERVAL_MS) if does == "open" else chain.sign(second, 3, us(5), 0)
    assert verdict.why == "token 100, run 1 is another signer's"
    assert chain.counters["double_signatures"] == 1
    assert chain.alerts[0] == "c (token 100, run 1) has the token and run of another signer"


def test_it_remembers_a_bounded_number_of_signers(chain: Ledger) -> None:
    for token in range(200, 200 + machine.SIGNERS_MAX + 10):
        assert chain.open(A._replace(token=token, id=f"{token:016x}"), us(token * 1_000), INTERVAL_MS).is_taken
    assert len(chain._ids) == machine.SIGNERS_MAX
    assert chain.counters["double_signatures"] == 0


def test_a_restart_under_one_token_is_no_handover(chain: Ledger) -> None:
    assert chain.open(A2, us(500), INTERVAL_MS).is_taken
    assert chain.sign(A2, 3, us(510), 0).is_taken
    assert (chain.counters["restarts"], chain.counters["handovers"], chain.counters["double_signatures"]) == (1, 0, 0)


def test_a_lost_answer_is_asked_for_again_and_counts_once(chain: Ledger) -> None:
    assert chain.open(A, us(130), INTERVAL_MS).next_height == 3
    assert chain.sign(A, 2, us(140), 0) == (True, 3, "")
    assert (chain.counters["signatures"], chain.counters["repeats"]) == (2, 1)


def test_heights_are_not_left_out_and_nobody_signs_unopened(chain: Ledger) -> None:
    assert "would leave out height 3" in chain.sign(A, 4, us(200), 0).why
    assert "opens before it signs" in chain.sign(B, 3, us(200), 0).why
    assert chain.counters["signatures"] == 2


def test_it_keeps_a_bounded_number(chain: Ledger) -> None:
    for height in range(3, machine.SIGNATURES_MAX + 10):
        assert chain.sign(A, height, us(height * 100), 0).is_taken
    assert len(chain.signatures) == machine.SIGNATURES_MAX
    assert chain.sign(A, 1, 0, 0).why == "height 1 is long signed"
    assert [each.height for each in chain.after(chain.newest - 2)] == [1008, 1009]
    assert len(chain.after(10**6)) == machine.SIGNATURES_MAX


# --- processes --------------------------------------------------------------------------------------------------------


class Served:
    """A chain as a process."""

    def __init__(self) -> None:
        call = [sys.executable, "-m", "primacy.cli.main", "lab", "chain", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        found = re.search(r"http://(127\.0\.0\.1:\d+)/v1/sign", self.process.stdout.readline())
        assert found
        self.at = found[1]

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.at, timeout=WITHIN_S)
        sent = None if body is None else body if isinstance(body, str) else json.dumps(body)
        more = {ORDER_HEADER: "1"} if sent is not None else {}
        connection.request("GET" if sent is None else "POST", path, sent, {**more, **headers})
        answer = connection.getresponse()
        try:
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def signer(self, token: int, run: int = 1) -> subprocess.Popen[str]:
        environment = {"PRIMACY_TOKEN": str(token), "PRIMACY_RUN": str(run), "PRIMACY_NODE": f"n{token}"}
        call = [sys.executable, "-I", "-S", str(Path(program.__file__)), self.at, "5"]
        return subprocess.Popen(call, env=environment, stderr=subprocess.PIPE, text=True)

    def until(self, check: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        said: dict[str, Any] = {}

        def asked() -> bool:
            nonlocal said
            said = self.ask("/v1/chain")[1]
            return check(said)

        wait_until(asked, "that of the chain", WITHIN_S, 0.005, told=lambda: said)
        return said

    def end(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=WITHIN_S)
        return self.process.returncode, out


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.process.kill()
    made.process.communicate()


def test_signers_one_after_the_other_then_a_stale_one_then_two_at_once(served: Served) -> None:
    first = served.signer(100)
    served.until(lambda said: said["height"] >= 3)
    first.kill()
    first.communicate()
    second = served.signer(101)
    try:
        said = served.until(lambda said: said["counters"]["handovers"] == 1 and said["signatures"][-1]["token"] == 101)
        heights = [each["height"] for each in said["signatures"]]
        assert heights == list(range(heights[0], said["height"] + 1))
        assert said["counters"]["double_signatures"] == 0

        # An older token that comes to life again is refused by the chain, and is the proof that two were at work.
        stale = served.signer(100, run=2)
        _, err = stale.communicate(timeout=WITHIN_S)
        assert stale.returncode == 1
        assert "the chain refuses it: token 100, run 2 is stale: n101 (token 101, run 1) has begun" in err
        said = served.until(lambda said: said["counters"]["double_signatures"] == 1)
        assert "n100 (token 100, run 2) begins after n101 (token 101, run 1) had begun" in said["alerts"]
    finally:
        second.kill()
        second.communicate()
    code, out = served.end()
    assert code == 1
    assert "1 double signature" in out
    assert "DOUBLE SIGNATURE: n100" in out


def test_the_stream_goes_on_where_a_reader_left_off_and_a_quiet_chain_ends_with_0(served: Served) -> None:
    who = {"token": 5, "run": 1, "node": "a", "id": "0" * 16}
    assert served.ask("/v1/open", {**who, "made_us": 1, "interval_ms": 100})[0] == 200
    for height in (1, 2, 3):
        assert served.ask("/v1/sign", {**who, "made_us": height, "height": height}) == (
            200,
            {"next_height": height + 1},
        )
    connection = http.client.HTTPConnection(served.at, timeout=WITHIN_S)
    connection.request("GET", "/v1/signatures", headers={"Accept": "text/event-stream", "Last-Event-ID": "1"})
    stream = connection.getresponse()
    text = b""
    while text.count(b"\ndata: ") < 2:
        text += stream.readline()
    connection.close()
    assert [json.loads(line[6:])["height"] for line in text.splitlines() if line.startswith(b"data: ")] == [2, 3]
    assert [row["height"] for row in served.ask("/v1/signatures?last=2")[1]] == [2, 3]
    code, out = served.end()
    assert (code, out) == (0, "3 signatures, 0 handovers, longest gap 0 ms, 0 stale refused, 0 double signatures\n")


def test_nonsense_gets_one_sentence(served: Served) -> None:
    right = {"token": 5, "run": 1, "node": "a", "id": "0" * 16, "made_us": 1, "height": 1}
    for changed, part in (
        ({"token": "7"}, "token = 7: a whole number"),
        ({"token": 2**60}, "a whole number from 0 to"),
        ({"run": True}, "run = True"),
        ({"node": "<b>"}, "the name of a node"),
        ({"id": "?"}, "8 to 64 hexadecimal digits"),
        ({"height": -1}, "height = -1"),
    ):
        status, said = served.ask("/v1/sign", {**right, **changed})
        assert status == 400, changed
        assert part in said["error"]
    assert served.ask("/v1/sign", "[]")[0] == 400
    assert served.ask("/v1/sign", right)[0] == 409
    assert served.ask("/v1/chain", Host="evil.example")[0] == 403
    assert served.ask("/v1/sign") == (405, {"error": "GET is not for /v1/sign; there is POST"})
    assert served.ask("/nothing")[0] == 404


def test_the_commands_refuse_what_cannot_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.run(["lab", "chain", "--listen", "0.0.0.0:6111"]) == 2
    assert "an address of this machine's loopback" in capsys.readouterr().err
    monkeypatch.delenv("PRIMACY_TOKEN", raising=False)
    assert entry.run(["lab", "signer"]) == 2
    assert "PRIMACY_TOKEN of `primacy run`" in capsys.readouterr().err


def test_the_signer_loads_next_to_nothing() -> None:
    code = "import sys, runpy; runpy.run_path(sys.argv[1]); print(len(sys.modules), 'primacy' in sys.modules)"
    call = [sys.executable, "-I", "-S", "-c", code, str(Path(program.__file__))]
    count, ours = subprocess.run(call, capture_output=True, text=True, check=True, env=dict(os.environ)).stdout.split()
    assert int(count) < 110
    assert ours == "False"
