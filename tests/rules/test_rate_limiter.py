"""How often the same is said."""

from __future__ import annotations

from primacy.rate_limiter import RateLimiter


def test_the_same_passes_at_first_and_when_its_interval_is_over() -> None:
    limiter = RateLimiter(60_000)
    moments_ms = (0, 1, 59_999, 60_000, 60_001, 119_999, 120_000)
    assert [limiter.passes(now_ms) for now_ms in moments_ms] == [True, False, False, True, False, False, True]


def test_what_was_held_back_does_not_postpone_the_next() -> None:
    limiter = RateLimiter(10)
    assert [now_ms for now_ms in range(35) if limiter.passes(now_ms)] == [0, 10, 20, 30]


def test_another_text_passes_at_once_and_is_remembered_instead() -> None:
    limiter = RateLimiter(10)
    assert [limiter.passes(1, text) for text in ("a", "b", "b", "a")] == [True, True, False, True]


def test_so_many_texts_are_remembered_and_the_oldest_is_forgotten() -> None:
    limiter = RateLimiter(10, texts_max=2)
    assert [limiter.passes(1, text) for text in "aabbab"] == [True, False, True, False, False, False]
    assert [limiter.passes(2, text) for text in "ccba"] == [True, False, False, True], "c took the place of a"


def test_the_newest_is_the_last_that_passed() -> None:
    limiter = RateLimiter(10, texts_max=2)
    assert limiter.newest is None
    for now_ms, text, newest in ((0, "a", "a"), (5, "b", "b"), (6, "a", "b"), (10, "a", "a")):
        limiter.passes(now_ms, text)
        assert limiter.newest == newest
