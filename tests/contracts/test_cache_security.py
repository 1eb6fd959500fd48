"""Seals of the cache: what a peer hears of others and of clients, and what it does not (test_W_S8)."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primacy.cache import security
from primacy.cache.security import (
    OLD_MS,
    ClientKey,
    ClientSeal,
    Opened,
    PeerSeal,
    ServerSeal,
    client_secret,
    curve_seed,
    key_text,
    read_key,
    wrong_name,
)
from primacy.errors import CannotHere, UsageError

SECRET = b"0123456789abcdef0123456789abcdef-one"
OTHER = b"0123456789abcdef0123456789abcdef-two"
NOW = 1_800_000_000_000
FRAMES = [b"*", b"tcp://127.0.0.1:6000", b"Q", b"key", b"\x01"]
SENDER = "tcp://127.0.0.1:6000"


def peer(boot: int = 1, *secrets: bytes, cluster: str = "c") -> PeerSeal:
    return PeerSeal(cluster, boot, secrets or (SECRET,))


def server(*secrets: bytes, started: int = NOW, names: tuple[str, ...] = ()) -> ServerSeal:
    return ServerSeal("c", secrets or (SECRET,), started, names)


def client(name: str = "reports", secret: bytes = SECRET, boot: int = 7) -> ClientSeal:
    return ClientSeal("c", ClientKey(name, client_secret(secret, "c", name)), boot)


def test_W_S8_a_sealed_message_of_a_peer_is_heard_once() -> None:
    seal, other = peer(1), peer(2)
    made = seal.sealed(FRAMES)
    assert other.refused(SENDER, FRAMES, made) == ""
    assert other.refused(SENDER, FRAMES, made) == "replayed"
    assert other.refused(SENDER, FRAMES, seal.sealed(FRAMES)) == ""


def test_W_S8_a_message_without_the_secret_is_not_heard() -> None:
    other = peer(2)
    assert other.refused(SENDER, FRAMES, b"") == "unsealed"
    assert other.refused(SENDER, FRAMES, peer(1, OTHER).sealed(FRAMES)) == "bad-seal"
    assert other.refused(SENDER, FRAMES, peer(1, cluster="d").sealed(FRAMES)) == "bad-seal"
    assert other.refused(SENDER, FRAMES, client().sealed(FRAMES, NOW)) == "unsealed"


@given(st.integers(0, len(FRAMES) - 1), st.binary(max_size=8))
def test_W_S8_the_seal_covers_every_frame(at: int, instead: bytes) -> None:
    made = peer(1).sealed(FRAMES)
    changed = [*FRAMES[:at], instead, *FRAMES[at + 1 :]]
    assert (peer(2).refused(SENDER, changed, made) == "") == (changed == FRAMES)


def test_frames_cannot_be_cut_in_another_way() -> None:
    made = peer(1).sealed([b"ab", b"c"])
    assert peer(2).refused(SENDER, [b"a", b"bc"], made) == "bad-seal"
    assert peer(2).refused(SENDER, [b"ab", b"c", b""], made) == "bad-seal"


@given(st.binary(max_size=80))
def test_any_seal_of_a_stranger_is_refused_without_an_error(seal: bytes) -> None:
    assert peer(2).refused(SENDER, FRAMES, seal)
    assert isinstance(server().opened(FRAMES, seal, NOW), str)
    assert not client().is_good(FRAMES, seal)


def test_a_secret_is_changed_peer_by_peer() -> None:
    both = peer(2, OTHER, SECRET)
    assert both.refused(SENDER, FRAMES, peer(1, SECRET).sealed(FRAMES)) == ""
    assert both.refused(SENDER, FRAMES, peer(3, OTHER).sealed(FRAMES)) == ""
    assert peer(4, SECRET).refused(SENDER, FRAMES, both.sealed(FRAMES)) == "bad-seal"
    assert isinstance(server(OTHER, SECRET).opened([b"1"], client().sealed([b"1"], NOW), NOW), Opened)


def test_a_request_and_its_answer() -> None:
    seal, side = client(), server()
    who = side.opened([b"1", b"?"], seal.sealed([b"1", b"?"], NOW), NOW)
    assert who == Opened("reports", 7)
    answer = side.sealed(who, [b"1", b"=", b"value"])
    assert seal.is_good([b"1", b"=", b"value"], answer)
    assert not seal.is_good([b"1", b"=", b"other"], answer)
    assert not client(boot=8).is_good([b"1", b"=", b"value"], answer)


def test_a_request_is_heard_once_and_not_from_before_the_start() -> None:
    made = client().sealed([b"1"], NOW)
    side = server()
    assert isinstance(side.opened([b"1"], made, NOW), Opened)
    assert side.opened([b"1"], made, NOW) == "replayed"
    assert server(started=NOW + 1).opened([b"1"], made, NOW + 1) == "old-seal"
    assert server().opened([b"1"], made, NOW + OLD_MS + 1) == "old-seal"


def test_only_named_clients_where_names_are_given() -> None:
    side = server(names=("reports",))
    assert isinstance(side.opened([b"1"], client().sealed([b"1"], NOW), NOW), Opened)
    assert side.opened([b"1"], client("billing").sealed([b"1"], NOW), NOW) == "unknown-client"


def test_a_client_cannot_speak_as_another_or_as_a_peer() -> None:
    stolen = ClientSeal("c", ClientKey("billing", client_secret(SECRET, "c", "reports")), 7)
    assert server().opened([b"1"], stolen.sealed([b"1"], NOW), NOW) == "bad-seal"
    assert client_secret(SECRET, "c", "a") != client_secret(SECRET, "d", "a") != curve_seed(SECRET, "d", "a")
    assert curve_seed(SECRET, "c") != curve_seed(SECRET, "c", "a")


@pytest.mark.parametrize("name", ["", "a b", "a" * 65, "é", "a/b", "a\n"])
def test_names_that_are_refused(name: str) -> None:
    assert wrong_name(name)


def test_the_file_of_a_key(tmp_path: Path) -> None:
    key = ClientKey("reports", client_secret(SECRET, "c", "reports"), b"P" * 40, b"S" * 40, b"V" * 40)
    file = tmp_path / "reports.key"
    file.write_text(key_text("c", key))
    with pytest.raises(CannotHere, match="others can read it"):
        read_key(str(file))
    os.chmod(file, 0o600)
    assert read_key(str(file)) == ("c", key)
    for damaged in ("", "nonsense", "primacy-cache-key 1\nname: a\n", key_text("c", key).replace("key: ", "key: z")):
        file.write_text(damaged)
        with pytest.raises(UsageError, match="primacy cache key NAME"):
            read_key(str(file))
    with pytest.raises(UsageError, match="not there"):
        read_key(str(tmp_path / "none"))
    with pytest.raises(CannotHere, match="no plain file"):
        read_key(str(tmp_path))


def test_a_stranger_is_not_remembered_and_pushes_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("primacy.cache.security.CLIENTS_MAX", 2)
    side = server()
    made = client(boot=1).sealed([b"1"], NOW)
    assert isinstance(side.opened([b"1"], made, NOW), Opened)
    for boot in range(10, 20):
        assert side.opened([b"1"], client(secret=OTHER, boot=boot).sealed([b"1"], NOW), NOW) == "bad-seal"
        assert side.opened([b"1"], client(boot=boot).sealed([b"1"], NOW - OLD_MS - 1), NOW) == "old-seal"
    assert side.opened([b"1"], made, NOW) == "replayed"


def test_a_known_client_is_judged_as_strictly_as_a_new_one() -> None:
    side, seal = server(), client()
    who = side.opened([b"1"], seal.sealed([b"1"], NOW), NOW)
    made = seal.sealed([b"2"], NOW)
    assert side.opened([b"3"], made, NOW) == "bad-seal"
    assert side.opened([b"2"], made[:-1] + bytes((made[-1] ^ 1,)), NOW) == "bad-seal"
    assert side.opened([b"2"], made, NOW + OLD_MS + 1) == "old-seal"
    assert side.opened([b"2"], made, NOW - OLD_MS - 1) == "early-seal"
    assert side.opened([b"2"], made, NOW) == who
    assert side.opened([b"2"], made, NOW) == "replayed"


def test_an_answer_to_a_client_that_was_forgotten_is_sealed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("primacy.cache.security.CLIENTS_MAX", 1)
    side, seal = server(), client(boot=1)
    who = side.opened([b"1"], seal.sealed([b"1"], NOW), NOW)
    assert isinstance(who, Opened)
    before = side.sealed(who, [b"1", b"#"])
    assert isinstance(side.opened([b"1"], client("other", boot=2).sealed([b"1"], NOW), NOW), Opened)
    assert side.sealed(who, [b"1", b"#"]) == before
    assert seal.is_good([b"1", b"#"], before)


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_W_S8_a_request_of_a_boot_that_had_to_give_way_is_not_heard_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """More processes of clients than are known at one time, within the time in which a seal counts."""
    monkeypatch.setattr(security, "CLIENTS_MAX", 5)
    one, first = server(), client(boot=1)
    recorded = [first.sealed(FRAMES, NOW + 1) for _ in range(3)]
    assert [type(one.opened(FRAMES, seal, NOW + 1)) for seal in recorded] == [Opened] * 3
    for boot in range(2, 40):
        assert isinstance(one.opened(FRAMES, client(boot=boot).sealed(FRAMES, NOW + boot), NOW + boot), Opened)
    for at_ms in (50, 1_000, OLD_MS, OLD_MS + 1):
        for seal in recorded:
            assert one.opened(FRAMES, seal, NOW + at_ms) == "replayed"
    assert isinstance(one.opened(FRAMES, first.sealed(FRAMES, NOW + 60), NOW + 60), Opened), "it goes on"
    assert len(one._known) == len(one._boots) == 5


def test_W_S8_a_seal_from_the_future_is_not_heard_again_when_its_time_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "CLIENTS_MAX", 5)
    one, ahead = server(), client(boot=1)
    seal = ahead.sealed(FRAMES, NOW + OLD_MS)
    assert isinstance(one.opened(FRAMES, seal, NOW), Opened)
    for boot in range(2, 40):
        one.opened(FRAMES, client(boot=boot).sealed(FRAMES, NOW), NOW)
    for at_ms in range(0, 2 * OLD_MS + 1, 5_000):
        one.opened(FRAMES, client(boot=1_000 + at_ms).sealed(FRAMES, NOW + at_ms), NOW + at_ms)
        assert one.opened(FRAMES, seal, NOW + at_ms) == "replayed"
    assert one.opened(FRAMES, seal, NOW + 2 * OLD_MS + 1) == "old-seal"


def test_boots_of_clients_are_bounded_and_one_too_many_is_not_heard_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(security, "CLIENTS_MAX", 5)
    monkeypatch.setattr(security, "ASIDE_MAX", 10)
    one = server()
    heard = [one.opened(FRAMES, client(boot=boot).sealed(FRAMES, NOW), NOW) for boot in range(1, 40)]
    assert [isinstance(each, Opened) for each in heard] == [True] * 15 + [False] * 24
    assert set(heard[15:]) == {"too-many-clients"}
    assert (len(one._known), len(one._aside)) == (5, 10)
    known = client(boot=15)
    known._number = 5
    assert isinstance(one.opened(FRAMES, known.sealed(FRAMES, NOW + 5), NOW + 5), Opened), "who is known is heard"
    for at_ms in (2 * OLD_MS, 2 * OLD_MS + 1):
        later = NOW + at_ms
        found = one.opened(FRAMES, client(boot=98).sealed(FRAMES, later), later)
        assert isinstance(found, Opened) == (at_ms > 2 * OLD_MS)
    assert isinstance(one.opened(FRAMES, client(boot=99).sealed(FRAMES, later), later), Opened)
    assert len(one._aside) <= 10


def test_strangers_are_not_remembered_before_their_seal_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "CLIENTS_MAX", 5)
    one = server()
    for boot in range(100):
        assert one.opened(FRAMES, client(secret=OTHER, boot=boot).sealed(FRAMES, NOW), NOW) == "bad-seal"
    assert (len(one._known), len(one._aside)) == (0, 0)
    for number in range(100):
        one.opened(FRAMES, client(f"name{number}").sealed(FRAMES, NOW), NOW)
    assert len(one._keyed) <= 5, "keys of names are derived again"


def test_W_S8_what_a_peer_said_before_it_left_the_list_is_not_heard_when_it_is_back() -> None:
    seal, other = peer(1), peer(2)
    made = seal.sealed(FRAMES)
    assert other.refused(SENDER, FRAMES, made) == ""
    other.forget([])
    other.forget([SENDER])
    assert other.refused(SENDER, FRAMES, made) == "replayed"
    assert other.refused(SENDER, FRAMES, seal.sealed(FRAMES)) == ""
    for number in range(200):
        other.refused(f"tcp://{number}:1", FRAMES, peer(1).sealed(FRAMES))
        other.forget([SENDER])
    assert len(other._heard) <= security.LEFT_MAX + 1


# --- what the tags of clients' requests and of their answers cover ----------------------------------------------------

SOME_FRAMES = st.lists(st.binary(max_size=4), min_size=1, max_size=4)


def test_the_tags_are_as_another_program_would_make_them() -> None:
    """By the words of `security.py` alone: MessagePack by hand, and BLAKE2b."""
    key, boot = client_secret(SECRET, "c", "reports"), (7).to_bytes(8, "big")

    def tag(direction: bytes, text: bytes) -> bytes:
        lengths = b"".join(number.to_bytes(4, "big") for number in (3, 1, len(direction), 8))
        own = blake2b(lengths + b"c" + direction + boot, key=key, digest_size=32, person=b"primacy cache 1").digest()
        return blake2b(own + text, digest_size=16, person=b"primacy cache 1").digest()

    seal = client()
    seal._number = 299
    number_and_clock = (300).to_bytes(8, "big") + NOW.to_bytes(8, "big")
    text = b"\x94\xcd\x01\x2c\xc4\x011\xc4\x02ab\xcf" + NOW.to_bytes(8, "big")
    assert seal.sealed([b"1", b"ab"], NOW) == b"\x07reports" + boot + number_and_clock + tag(b"request", text)
    between = b"\x93\xc4\x01=\xc4\x03abc\xc4\x04\x00\x00\x00\x02"
    digest = blake2b(between, digest_size=32, person=b"primacy cache 1").digest()
    answer = tag(b"answer", b"id" + b"ex" + digest)
    assert server().sealed(Opened("reports", 7), [b"id", b"=", b"abc", b"ex"]) == answer
    assert client().is_good([b"id", b"=", b"abc", b"ex"], answer)


@given(SOME_FRAMES, SOME_FRAMES)
def test_frames_of_a_request_cannot_be_cut_in_another_way(sealed: list[bytes], instead: list[bytes]) -> None:
    found = server().opened(instead, client().sealed(sealed, NOW), NOW)
    assert found == (Opened("reports", 7) if sealed == instead else "bad-seal")


@given(SOME_FRAMES, SOME_FRAMES)
def test_frames_of_an_answer_cannot_be_cut_in_another_way(sealed: list[bytes], instead: list[bytes]) -> None:
    made = server().sealed(Opened("reports", 7), sealed)
    assert client().is_good(instead, made) == (sealed == instead)


@pytest.mark.parametrize(
    ("sealed", "instead"),
    [
        ([b"1"], [b"1", b""]),
        ([b"1", b"#"], [b"1#"]),
        ([b"1", b"#"], [b"", b"1#"]),
        ([b"1", b"="], [b"1", b"", b"="]),
        ([b"1", b"=", b"v", b"ab"], [b"1a", b"=", b"v", b"b"]),
        ([b"1", b"=", b"v", b"ab"], [b"1", b"=", b"va", b"b"]),
        ([b"1", b"=", b"v", b"ab"], [b"1", b"=v", b"", b"ab"]),
    ],
)
def test_an_answer_that_is_cut_in_another_way_is_not_heard(sealed: list[bytes], instead: list[bytes]) -> None:
    for made, other in ((sealed, instead), (instead, sealed)):
        assert not client().is_good(other, server().sealed(Opened("reports", 7), made))


def test_every_byte_of_a_clients_seal_counts() -> None:
    """The name, the boot, the number, the clock and the tag, for a client that is known and for one that is not."""
    seal, side = client(), server()
    assert isinstance(side.opened([b"1"], seal.sealed([b"1"], NOW), NOW), Opened)
    made = seal.sealed([b"2"], NOW)
    for at in range(len(made)):
        for bit in range(8):
            changed = made[:at] + bytes((made[at] ^ 1 << bit,)) + made[at + 1 :]
            for receiver in (side, server()):
                assert receiver.opened([b"2"], changed, NOW) in {"bad-seal", "unsealed"}
    for changed in (made[1:], made[:-1], made + b"\x00", b"\x00" + made, b"", made[-16:], made[-32:]):
        assert side.opened([b"2"], changed, NOW) in {"bad-seal", "unsealed"}
    assert isinstance(side.opened([b"2"], made, NOW), Opened), "none of them has used its number up"


def test_a_seal_of_one_direction_is_none_of_the_other() -> None:
    made = client().sealed([b"1"], NOW)
    assert not client().is_good([b"1"], made)
    assert not client().is_good([b"1"], made[-16:])
    answer = server().sealed(Opened("reports", 7), [b"1"])
    assert server().opened([b"1"], made[:-16] + answer, NOW) == "bad-seal"


def test_a_refused_request_keeps_its_frames_but_for_the_seal() -> None:
    side = server()
    for seal in (b"", b"x" * 60, client(secret=OTHER).sealed([b"1", b"2"], NOW)):
        frames = [b"identity", b"1", b"2", seal]
        assert side.heard(frames, *side.times(NOW)) is None
        assert frames == [b"identity", b"1", b"2"]
