"""Messages as bytes, seals, secrets: what was sealed for a node is opened by it alone (A01-A05, A08, A13, A14, A16)."""

from __future__ import annotations

import os
import random
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from primacy.cli.new import write_secret
from primacy.errors import CannotHere, UsageError
from primacy.transport import layout, seal
from primacy.transport.layout import packed, unpacked
from primacy.transport.seal import (
    DATAGRAM_BYTES_MAX,
    STARTS_MAX,
    WINDOW,
    Drop,
    Opened,
    Sort,
    Window,
    Windows,
    read_secret,
    read_secrets,
)
from tests.support.transport_harness import BIG, CHANCES, EVERY, ORIGIN, OTHER, SECRET, seal_of

# --- layout -----------------------------------------------------------------------------------------------------------


def test_every_message_comes_back_as_it_was_and_fits() -> None:
    assert {type(message) for message in EVERY} == {kind.made for kind in layout.KINDS}
    for message in EVERY:
        payload = packed(message)
        assert unpacked(ORIGIN.node, payload) == message
        name = ORIGIN.node
        assert len(seal_of(name).sealed(Sort.MESSAGE, name, BIG, payload)) <= DATAGRAM_BYTES_MAX


def test_fields_of_a_later_version_are_ignored_and_those_with_a_default_may_be_missing() -> None:
    for message in EVERY:
        row = msgspec.msgpack.decode(packed(message))
        assert unpacked(ORIGIN.node, msgspec.msgpack.encode([*row, "new", {"x": [1]}])) == message
        kind = next(kind for kind in layout.KINDS if kind.made is type(message))
        least = layout.ORIGIN_FIELDS + kind.needed
        assert type(unpacked(ORIGIN.node, msgspec.msgpack.encode(row[:least]))) is type(message)
        assert unpacked(ORIGIN.node, msgspec.msgpack.encode(row[: least - 1])) is None


@pytest.mark.parametrize(
    "value", [None, 2**64 - 1, -2, 1.5, float("nan"), "", "x" * 70, b"\xff", [], [[[]]], {}, True, {"a": 1}]
)
def test_a_field_of_another_kind_is_no_message(value: Any) -> None:
    """Every field of every message, replaced: either that is a value that may stand there, or nothing is read."""
    for message in EVERY:
        row = msgspec.msgpack.decode(packed(message))
        for place in range(len(row)):
            changed = [*row[:place], value, *row[place + 1 :]]
            found = unpacked(ORIGIN.node, msgspec.msgpack.encode(changed))
            if found is not None and place:
                assert msgspec.msgpack.decode(packed(found)) == changed, (message, place)


def test_A08_garbage_is_never_read_and_never_raises() -> None:
    chance = random.Random(8)
    whole = [packed(message) for message in EVERY]
    took_s = []
    for turn in range(4_000):
        if turn % 2:
            data = chance.randbytes(chance.randrange(0, 600))
        else:
            parts = bytearray(chance.choice(whole))
            for _ in range(chance.randrange(1, 5)):
                parts[chance.randrange(len(parts))] = chance.randrange(256)
            data = bytes(parts[: chance.randrange(len(parts) + 1)])
        began_s = time.thread_time()
        unpacked("b", data)
        took_s.append(time.thread_time() - began_s)
    for data in (b"", b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xa1\xff", b"\x95\x03"):
        assert unpacked("b", data) is None
    assert sorted(took_s)[-CHANCES] < 0.1


# --- seals ------------------------------------------------------------------------------------------------------------


def test_what_was_sealed_for_a_node_is_opened_by_it() -> None:
    data = seal_of("a", 5).sealed(Sort.MESSAGE, "b", 6, b"payload")
    assert seal_of("b", 6).opened(data) == Opened(Sort.MESSAGE, "a", 5, 6, 1, b"payload")


def test_A01_A02_every_flipped_byte_of_every_message_and_every_cut_is_noticed() -> None:
    receiver = seal_of("b")
    for message in EVERY:
        for sort in Sort:
            data = seal_of("a").sealed(sort, "b", 1, packed(message))
            assert isinstance(receiver.opened(data), Opened)
            for place in range(len(data)):
                for mask in (0x01, 0x80, 0xFF):
                    flipped = data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]
                    assert isinstance(receiver.opened(flipped), Drop)
                assert isinstance(receiver.opened(data[:place]), Drop)
            assert isinstance(receiver.opened(data + b"\0"), Drop)


def test_A05_thrown_back_or_of_another_cluster_election_receiver_or_secret() -> None:
    data = seal_of("a").sealed(Sort.MESSAGE, "b", 1, packed(EVERY[0]))
    for wrong in (
        seal_of("a"),
        seal_of("c"),
        seal_of("b", cluster="lab2"),
        seal_of("b", election="other"),
        seal_of("b", secrets=(OTHER,)),
        seal_of("b", cluster="la", election="bmain"),
    ):
        assert wrong.opened(data) == Drop("seal")


def test_A08_sizes_that_cannot_be() -> None:
    receiver = seal_of("b")
    chance = random.Random(9)
    for size in (0, 1, 20, 45, 513, 65_507):
        assert receiver.opened(chance.randbytes(size)) == Drop("size")
    for _ in range(2_000):
        assert isinstance(receiver.opened(chance.randbytes(chance.randrange(600))), Drop)


def test_a_layout_of_tomorrow_is_refused_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    sender, receiver = seal_of("a"), seal_of("b")
    with monkeypatch.context() as tomorrow:
        tomorrow.setattr(seal, "LAYOUT", 2)
        data = sender.sealed(Sort.MESSAGE, "b", 1, b"what may stand here then")
    assert receiver.opened(data) == Drop("layout", "a", 2)


def test_A03_each_counter_is_new_once_and_only_within_the_window() -> None:
    window = Window()
    assert [window.is_new(n) for n in (1, 2, 2, 5, 3, 3, 5, 1)] == [True, True, False, True, True, False, False, False]
    assert window.is_new(5 + WINDOW)
    assert not window.is_new(5)
    assert window.is_new(6)
    assert window.is_new(10**18)
    assert not window.is_new(7)
    chance = random.Random(3)
    window, heard = Window(), set()
    for _ in range(10_000):
        counter = max(1, window.highest + chance.randrange(-2 * WINDOW, 40))
        fits = counter not in heard and counter > window.highest - WINDOW
        assert window.is_new(counter) is fits
        heard.add(counter)


@pytest.mark.parametrize("run", [1, 2, 700, WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW])
def test_A03_after_a_long_run_in_order_nothing_of_it_is_new(run: int) -> None:
    window = Window()
    assert window.is_new(5)
    assert all(window.is_new(counter) for counter in range(6, 6 + run))
    highest = window.highest
    for counter in (highest, highest - run // 2, highest - run, highest - WINDOW + 1, highest - WINDOW):
        assert window.is_new(counter) is (highest - WINDOW < counter < 5), counter
    for counter in range(max(5, highest - WINDOW), highest + 1):
        assert not window.is_new(counter), counter
    assert window.is_new(highest + 2)
    assert window.is_new(highest + 1)
    assert not window.is_new(highest + 2)


def test_A03_the_start_that_was_forgotten_is_over() -> None:
    windows = Windows()
    for boot in range(STARTS_MAX + 3):
        assert windows.is_new(boot, 1)
    for boot in range(STARTS_MAX + 3):
        assert not windows.is_new(boot, 1)
    assert windows.is_new(STARTS_MAX, 2)
    assert not windows.is_new(0, 2)


def test_A16_a_secret_is_changed_without_a_moment_in_which_two_nodes_do_not_understand_each_other() -> None:
    steps = ((SECRET,), (SECRET, OTHER), (OTHER, SECRET), (OTHER,))
    for before, after in pairwise(steps):
        for one, two in ((before, before), (before, after), (after, before), (after, after)):
            data = seal_of("a", secrets=one).sealed(Sort.MESSAGE, "b", 1, b"")
            assert isinstance(seal_of("b", secrets=two).opened(data), Opened)
    data = seal_of("a", secrets=steps[0]).sealed(Sort.MESSAGE, "b", 1, b"")
    assert seal_of("b", secrets=steps[-1]).opened(data) == Drop("seal")


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_A13_A14_a_secret_is_long_random_and_nobody_elses(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(UsageError, match="primacy keygen"):
        read_secret(str(path))
    write_secret(path)
    assert len(read_secret(str(path))) == 64
    assert read_secrets(str(path)) == (read_secret(str(path)),)
    for mode in (0o640, 0o604, 0o660):
        path.chmod(mode)
        with pytest.raises(CannotHere, match=r"others can read it .* chmod 600"):
            read_secret(str(path))
    path.chmod(0o600)
    for weak in (b"", b"short", b"a" * 64, b"0123456789abcdef" * 2, b"abcd" * 20, b"x" * 5_000):
        path.write_bytes(weak)
        with pytest.raises(UsageError, match="keygen") as raised:
            read_secret(str(path))
        assert not weak or weak.decode() not in str(raised.value)
    with pytest.raises(CannotHere, match="no plain file"):
        read_secret(str(tmp_path))


def test_the_other_secret_is_read_beside_the_first(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_secret(path)
    write_secret(tmp_path / "secret.other")
    first, second = read_secrets(str(path))
    assert first != second
    os.chmod(tmp_path / "secret.other", 0o644)
    with pytest.raises(CannotHere, match=r"secret\.other: others can read it"):
        read_secrets(str(path))
