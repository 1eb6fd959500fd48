"""Notifications of PostgreSQL: what they are worth, and that a liar can break nothing."""

from __future__ import annotations

import pytest
from tests.store_desk import row

from primacy.election.store import StoreAnswer, Take
from primacy.store.hearsay import KNOWN_MAX, Hearsay, Known
from primacy.store.port import News

HERE = "postgresql:1:1"


def knows(seq: int = 5, proof: str = "p5") -> Hearsay:
    """One that has looked at a row."""
    found = Hearsay()
    assert found.answered(HERE, ["job"], {"job": Known(row(seq=seq, server=HERE), proof)})
    return found


def take(seq: int) -> Take:
    return Take("job", 10, seq, HERE, row("b#1", 11, seq + 1))


def test_a_renewal_of_the_known_holder_is_a_row() -> None:
    hearsay = knows()
    assert hearsay.proof(take(5)) == "p5"
    told = StoreAnswer(ok=True, row=row(seq=6, server=HERE), server=HERE)
    assert hearsay.heard("job 10 6 0 p6 ") == News("job", told)
    assert hearsay.proof(take(6)) == "p6"
    assert hearsay.proof(take(5)) is None


def test_a_release_says_whom_it_is_for() -> None:
    news = knows().heard("job 10 5 1 p5b !c")
    assert news is not None
    assert news.answer is not None
    assert news.answer.row == row(seq=5, server=HERE)._replace(released=True, successor="!c")


@pytest.mark.parametrize("old", ["job 10 5 0 p5 ", "job 10 4 0 p4 ", "job 10 4 1 p4 "])
def test_what_an_answer_has_overtaken_is_nothing(old: str) -> None:
    hearsay = knows()
    assert hearsay.heard(old) is None
    assert hearsay.proof(take(5)) == "p5"


@pytest.mark.parametrize(
    ("payload", "worth"),
    [
        ("job 11 7 0 p7 ", None),  # another holder renews: the next look is soon enough
        ("job 11 7 1 p7 ", News("job")),  # another holder releases: nobody should wait for that
        ("other 3 7 0 p7 ", None),
        ("job", News("job")),
        ("", News("")),
        ("job 10 x 0 p7 ", News("job")),
        ("job 10 -6 0 p7 ", News("job")),
        ("job 10 6 0 p7", News("job")),
        ("job 10 6 0 p7  ", News("job")),
        (f"job 10 {10**19} 0 p7 ", News("job")),
        (f"job 10 {2**62 + 1} 0 p7 ", News("job")),
        ("job 10 6 1 p7 " + "x" * 200, News("job")),
    ],
)
def test_A31_what_says_nothing_that_we_understand_is_a_reason_to_look_at_most(payload: str, worth: News | None) -> None:
    hearsay = knows()
    assert hearsay.heard(payload) == worth
    assert hearsay.proof(take(5)) == "p5"


@pytest.mark.parametrize("lie", ["job 10 7 0 lie ", "job 10 6 0 lie ", "job 10 6 1 lie "])
def test_L3_a_look_that_contradicts_shows_the_lie_and_ends_all_belief(lie: str) -> None:
    """The row has come to 6, honestly; what was told of it before was not."""
    hearsay = knows()
    assert hearsay.heard(lie) is not None
    assert not hearsay.answered(HERE, ["job"], {"job": Known(row(seq=6, server=HERE), "p6")})
    assert hearsay.heard("job 10 7 0 p7 ") is None
    assert hearsay.heard("job 10 7 1 p7b ") == News("job")
    assert hearsay.answered(HERE, ["job"], {"job": Known(row(seq=8, server=HERE), "p8")})


def test_a_look_that_agrees_or_is_later_is_no_contradiction() -> None:
    hearsay = knows()
    hearsay.heard("job 10 6 0 p6 ")
    for seq, proof in ((6, "p6"), (7, "p7")):
        assert hearsay.answered(HERE, ["job"], {"job": Known(row(seq=seq, server=HERE), proof)})
    hearsay.heard("job 10 8 0 p8 ")
    assert hearsay.answered(HERE, ["job"], {"job": Known(row("c#1", 12, 9, server=HERE), "p9")}), "taken since"
    hearsay.heard("job 12 10 0 p10 ")
    assert hearsay.answered(HERE, ["job"], {}), "gone"
    assert hearsay.believes


def test_another_server_or_connection_starts_from_nothing() -> None:
    hearsay = knows()
    hearsay.heard("job 10 6 0 p6 ")
    there = HERE + "0"
    assert hearsay.answered(there, ["job"], {"job": Known(row(seq=5, server=HERE), "p5")})
    hearsay.forget()
    assert hearsay.proof(take(5)) is None
    assert hearsay.heard("job 10 6 0 p6 ") is None


def test_it_remembers_a_bounded_number_of_rows() -> None:
    hearsay = knows()
    names = [f"job{n}" for n in range(KNOWN_MAX)]
    hearsay.answered(HERE, names, {name: Known(row(server=HERE), "p") for name in names})
    assert hearsay.proof(take(5)) is None
    assert hearsay.proof(Take(names[-1], 10, 1, HERE, row())) == "p"
