"""Every scene in tests/transcripts/ gives the lines that stand there. `--rewrite-transcripts` writes them anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from primacy.election.raft.recovery import FLOOR, Recovery
from primacy.sim.transcripts.scenario import TranscriptError
from primacy.sim.transcripts.transcript import parse, play

pytestmark = pytest.mark.coverage

SCENES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCENES, ids=lambda path: path.stem)
def test_scene(path: Path, rewrite_transcripts: bool) -> None:
    written = path.read_text(encoding="utf-8")
    played = play(written, path.name)
    assert "VIOLATION" not in played
    if rewrite_transcripts:
        path.write_text(played, encoding="utf-8")
        return
    assert played.splitlines() == written.splitlines()


@pytest.mark.parametrize("path", SCENES, ids=lambda path: path.stem)
def test_scene_says_in_its_first_line_what_it_shows(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")


def test_M2_a_floor_that_does_not_stand_above_known_tokens_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovery, "_floor", lambda self, term, token_max, base: term + FLOOR)
    path = Path(__file__).parent / "raft_rejoin_without_after_lease.txt"
    assert "VIOLATION of I1" in play(path.read_text(encoding="utf-8"), path.name)


def test_the_same_scene_is_played_the_same_way_twice() -> None:
    scene = "> cluster a b c seed=3\n> pass 2 s\n> kill a\n> pass 2 s\n> show\n"
    assert play(scene) == play(scene)


def test_another_seed_is_another_history() -> None:
    scene = "> cluster a b c seed={}\n> pass 2 s\n"
    assert len({play(scene.format(seed)).split("\n", 1)[1] for seed in range(5)}) > 1


def test_remarks_blank_lines_and_output_are_told_apart() -> None:
    blocks = parse("# a remark\n> show\nold line\n\n> heal\n")
    assert [block.command for block in blocks] == ["", "show", "", "heal"]
    assert blocks[1].output == ("old line",)
    assert [block.line for block in blocks] == [1, 2, 4, 5]


@pytest.mark.parametrize(
    ("scene", "complaint"),
    [
        ("> dance", "s.txt, line 1: unknown command 'dance'"),
        ("> cluster a\n> weather loss=0.1", "unknown command 'weather loss=0.1': `weather` is called `conditions` now"),
        ("> cluster a\n> twin a", "`twin` is called `duplicate` now"),
        ("> cluster a\n> end twin a", "`end twin` is called `end duplicate` now"),
        ("> pass 1 s", "s.txt, line 1: a scene begins with `> cluster ...`"),
        ("> cluster a b\n\n> kill z", "s.txt, line 3: unknown node 'z'; there are a, b"),
        ("> cluster a colour=red", "unknown option colour"),
        ("> cluster a strategy=raft profile=ghoti", "no profile 'ghoti' of strategy 'raft'"),
        ("> cluster seed=1", "a list of nodes is needed"),
        ("> cluster a\n> timing ghoti on a", "no profile 'ghoti'"),
        ("> cluster a\n> conditions sun=1", "the conditions have no 'sun'"),
        ("> cluster a\n> restore a", "no copy of the disk of a"),
        ("> cluster a\n> put term on disk of a 7", "a must be off and have a ballot"),
        ("> cluster a\n> put token on disk of a A+7", "a must be off and have a ballot"),
        ("> cluster a b\n> power off b\n> elect a", "a does not become leader"),
        ("> cluster a b\n> power off b\n> pause b", "b is off and hears nothing"),
        ("> cluster a\n> store fails over", "strategy 'raft' has no store"),
    ],
)
def test_a_wrong_scene_is_refused_with_file_and_line(scene: str, complaint: str) -> None:
    with pytest.raises(TranscriptError) as raised:
        play(scene, "s.txt")
    assert complaint in str(raised.value)


def test_a_broken_rule_is_written_into_the_scene() -> None:
    """The checkers listen in scenes, too: a clock far outside of the promise makes two copies of the work run."""
    scene = "> cluster a b c\n> elect a\n> freeze guard of a\n> drift a -80%\n> cut a | b c\n> pass 3 s\n"
    assert "VIOLATION of I1: " in play(scene)


OLD_COPY = "> cluster a b c seed=1\n> elect a\n> back up c\n> kill c\n> start c\n> pass 100 ms\n"
"""A copy of the disk of c, and one more start of c that the others have heard."""
ONE_MORE = "> kill c\n> start c\n> pass 100 ms\n"
NEW_LEADER = "> power off a\n> pass 1 s\n"
"""c leads term 2 with the vote of b, and a does not know of it."""


@pytest.mark.parametrize(
    "scene",
    [
        OLD_COPY + NEW_LEADER + "> restore c\n> power off b\n> start a b c\n> cut b | a c\n> pass 2 s\n",
        OLD_COPY
        + ONE_MORE
        + NEW_LEADER
        + "> restore c\n> power off b\n> start a c\n> pass 700 ms\n> kill c\n> start c\n> pass 2 s\n",
    ],
    ids=["peers-restarted", "told-and-restarted"],
)
def test_an_old_copy_of_a_disk_never_leads_a_term_again(scene: str) -> None:
    """Q10, F39: the boot that was heard is durable with its peers, and so is the doubt of a node that was told."""
    assert "VIOLATION" not in play(scene)


def test_the_limit_of_incarnations_is_a_copy_that_was_started_more_often_than_its_peers_have_heard() -> None:
    """What Q10 cannot see: nothing tells such a copy from a node that was restarted, so its lost vote is given twice.

    It takes a disk put back by hand, restarts that no peer hears of, and nobody in reach who knows the lost term.
    Whoever restores a disk must delete the ballot first: then the node has no memory, which is always safe (M2).
    """
    unheard = "> cut c | a b\n> start c\n> pass 100 ms\n> kill c\n> heal\n"
    restored = "> restore c\n{}" + unheard + "> cut b | a c\n> start c\n> start a\n> pass 2 s\n"
    played = play(OLD_COPY + NEW_LEADER + restored.format(""))
    assert "VIOLATION of I4: c started" in played
    played = play(OLD_COPY + NEW_LEADER + restored.format("> forget c\n"))
    assert "VIOLATION" not in played
