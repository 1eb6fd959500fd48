"""The note beside a SQLite file: damaged, torn, shared, with hostile rows in the file (L5, L6, L10; real files)."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from primacy.election.store import GENESIS, Look, Prune, Renew
from primacy.store import perform
from primacy.store.note import SLOT, SUFFIX, Note
from primacy.store.sqlite import SqliteStore
from tests.contracts.test_store_sqlite import copied, file, put_back_by_sqlite, world
from tests.support.store_harness import Harness, row
from tests.support.store_world import LONG_MS, World

__all__ = ["file", "world"]


def test_L5_a_note_that_is_gone_is_another_server(world: World, file: Path) -> None:
    a = world.node("a")
    world.until_leads(a)
    b, before = world.node("b"), Harness(SqliteStore(str(file))).server()
    Path(f"{file}{SUFFIX}").unlink()
    assert Harness(SqliteStore(str(file))).server() != before
    world.run(4_000)
    assert a.leads, "its hold is unbroken, and it moves along"
    assert not b.holds
    a.step_down()
    a.is_cut = True
    world.until_leads(b)
    assert world.overlaps() == []


@pytest.mark.parametrize("damage", ["torn head", "short", "empty", "other boot", "folder"])
def test_L5_a_note_of_no_use_is_another_server(file: Path, damage: str, tmp_path: Path) -> None:
    store = SqliteStore(str(file))
    store.make_table(new=True)
    harness, note = Harness(store), Path(f"{file}{SUFFIX}")
    before = harness.take()
    match damage:
        case "torn head":
            note.write_bytes(b"?" + note.read_bytes()[1:])
        case "short":
            note.write_bytes(note.read_bytes()[:100])
        case "empty":
            note.write_bytes(b"")
        case "other boot":
            other = tmp_path / "boot_id"
            other.write_text("00000000-0000-0000-0000-000000000000\n")
            found = os.stat(file)
            Note(str(file), str(other)).make((found.st_dev, found.st_ino))
        case "folder":
            note.unlink()
            note.mkdir()
            answer = harness.look()
            assert (answer.ok, answer.final) == (False, True)
            assert "Is a directory" in answer.reason
            return
    after = harness.look(count=True)
    assert after.ok
    assert after.server != before.server
    assert after.row is not None
    assert after.row.server == before.server, "of another server, and nothing of it is believed at once"
    assert after.genesis is not None
    assert not after.genesis.is_settled(after.server)


def test_L5_a_torn_slot_vouches_for_nothing(file: Path) -> None:
    store = SqliteStore(str(file))
    store.make_table(new=True)
    harness, note = Harness(store), Path(f"{file}{SUFFIX}")
    assert harness.take().done
    data = bytearray(note.read_bytes())
    at = data.index(b"job\0")
    assert at % SLOT == 0
    data[at + 125] ^= 1
    note.write_bytes(data)
    found = harness.look()
    assert found.row is not None
    assert not found.row.vouches
    assert found.genesis is not None
    assert found.genesis.vouches
    assert not harness.renew().done, "it is nobody's"


KILLED = """
import os, signal, sys
from primacy.store.note import Note
from primacy.store.sqlite import SqliteStore
from tests.support.store_harness import Harness, row

write_all = Note.write_all
def killed(note, proofs):
    write_all(note, proofs)
    if "job" in proofs:
        os.kill(os.getpid(), signal.SIGKILL)
store = SqliteStore(sys.argv[1])
harness = Harness(store)
harness.server()
Note.write_all = killed
harness.take(new=row("k#1", 5_000, 9))
"""


def test_L5_killed_between_note_and_commit(world: World, file: Path) -> None:
    """The note tells of a write that never was. The name is not locked out: it is waited for and taken."""
    a = world.node("a")
    world.until_leads(a)
    a.step_down()
    a.is_cut = True
    done = subprocess.run([sys.executable, "-c", KILLED, str(file)], check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    found = Harness(SqliteStore(str(file))).look()
    assert found.row is not None
    assert (found.row.released, found.row.vouches) == (True, False)
    b = world.node("b")
    assert world.until_leads(b) >= LONG_MS
    assert b.holds[-1][0] > max(a.holds[-1][0], 5_000)
    b.step_down()
    b.is_cut = True
    assert world.until_leads(world.node("c")) <= 50, "all is well again"


def test_L5_a_write_that_fails_leaves_the_note_as_it_was(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(str(file))
    store.make_table(new=True)
    harness = Harness(store)
    harness.take()
    before = harness.look()
    monkeypatch.setattr(store, "texts", store.texts._replace(take="INSERT INTO nowhere VALUES (1)"))
    assert not harness.renew().ok
    monkeypatch.undo()
    assert harness.look() == before
    assert harness.renew().done


def test_a_full_disk_is_told_and_changes_nothing(file: Path) -> None:
    """A limit on the size of files stands for it: neither note nor database can grow."""
    script = textwrap.dedent("""
        import resource, signal, sys
        from primacy.store.sqlite import SqliteStore
        from tests.support.store_harness import Harness
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        harness = Harness(SqliteStore(sys.argv[1]))
        seen = harness.look("new", count=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (256, 256))
        answer = harness.take("new", seen=seen)
        assert not answer.ok, answer
        assert not answer.final, answer
        print(answer.reason)
    """)
    SqliteStore(str(file)).make_table(new=True)
    done = subprocess.run(
        [sys.executable, "-c", script, str(file)], check=False, cwd=Path(__file__).parents[2], capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"cannot be written" in done.stdout
    harness = Harness(SqliteStore(str(file)))
    assert harness.look("new").row is None
    assert harness.take("new").done, "settled as before"


def test_the_note_has_the_rights_of_the_file(file: Path) -> None:
    sqlite3.connect(file).close()
    file.touch()
    file.chmod(0o660)
    store = SqliteStore(str(file))
    store.make_table(new=True)
    assert stat.S_IMODE(Path(f"{file}{SUFFIX}").stat().st_mode) == 0o660
    if os.geteuid() == 0:
        os.chown(file, 65_534, 65_534)
        Path(f"{file}{SUFFIX}").unlink()
        assert Harness(store).look().ok
        found = Path(f"{file}{SUFFIX}").stat()
        assert (found.st_uid, found.st_gid) == (65_534, 65_534)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_two_users_of_one_group_share_file_and_note(tmp_path: Path) -> None:
    """And one who may only read can look, and is told why it cannot take."""
    with tempfile.TemporaryDirectory(prefix="primacy-shared-") as name:
        _shared(Path(name), tmp_path)


def _shared(folder: Path, tmp_path: Path) -> None:
    os.chown(folder, 0, 65_534)
    folder.chmod(0o2770)
    file = folder / "leases.db"
    file.touch()
    os.chown(file, 0, 65_534)
    file.chmod(0o660)
    script = textwrap.dedent("""
        import os, sys
        from primacy.store.sqlite import SqliteStore
        from tests.support.store_harness import Harness, row
        warm = Harness(SqliteStore(sys.argv[6]))
        warm.store.make_table(new=True)
        assert warm.take().done  # everything is loaded: the other user may not be able to read this Python
        warm.store.close()
        store = SqliteStore(sys.argv[1])
        os.umask(0o007)
        os.setgroups([65534]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[3]))
        harness = Harness(store)
        if sys.argv[4] == "new":
            store.make_table(new=True)
        seen = harness.look(count=True)
        answer = harness.take(new=row(token=int(sys.argv[5]), seq=7), seen=seen)
        print(answer.ok, answer.done, answer.final, answer.reason)
    """)

    def by(user: int, group: int, token: int, new: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-c", script, str(file), str(group), str(user), new, str(token), f"{tmp_path}/w{token}"],
            check=False, capture_output=True, cwd=Path(__file__).parents[2], env={**os.environ, "PYTHONPATH": "."},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    assert by(12_001, 65_534, 10, "new") == "True True False"
    assert by(12_002, 65_534, 11) == "True True False"
    assert by(12_001, 65_534, 12) == "True True False"
    folder.chmod(0o2775)
    for path in folder.iterdir():
        path.chmod(0o664)
    Path(f"{file}{SUFFIX}").chmod(0o644)
    told = by(12_003, 65_534, 13)
    assert told.startswith("False False True")
    assert f"{file}{SUFFIX} is read-only for this user: give it the rights of {file}" in told


def test_names_without_number_fit_and_pruned_slots_are_used_again(file: Path) -> None:
    store, other = SqliteStore(str(file)), SqliteStore(str(file))
    store.make_table(new=True)
    one, two = Harness(store), Harness(other)
    for number in range(30):
        assert (one if number % 2 else two).take(f"job{number}").done
    size = Path(f"{file}{SUFFIX}").stat().st_size
    for number in range(10):
        one.release(f"job{number}")
        seen = one.look(f"job{number}", count=True)
        assert seen.row is not None
        assert seen.genesis is not None
        assert one.ask(Prune(f"job{number}", seen.row, seen.server, seen.genesis)).done
    for number in range(10):
        assert two.take(f"new{number}", row(token=11)).done
        assert one.renew(f"new{number}", token=11).done
        assert two.look(f"job{number}").row is None
    assert Path(f"{file}{SUFFIX}").stat().st_size == size
    for number in range(10, 30):
        assert two.renew(f"job{number}").done


def test_L10_a_pruned_row_that_comes_back_does_not_vouch(file: Path) -> None:
    store = SqliteStore(str(file))
    store.make_table(new=True)
    harness = Harness(store)
    harness.take()
    harness.release()
    backup = copied(file)
    seen = harness.look(count=True)
    assert seen.row is not None
    assert seen.genesis is not None
    assert harness.ask(Prune("job", seen.row, seen.server, seen.genesis)).done
    put_back_by_sqlite(file, backup)
    found = harness.look(count=True)
    assert found.row is not None
    assert not found.row.vouches
    assert found.genesis is not None
    assert not found.genesis.vouches


def test_L5_all_names_of_a_file_lead_to_one_note(tmp_path: Path) -> None:
    """Or one user's note would not know of the other's writes."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    (tmp_path / "short.db").symlink_to(real / "leases.db")
    one = Harness(SqliteStore(str(real / "leases.db")))
    one.store.make_table(new=True)  # type: ignore[attr-defined]
    assert one.take().done
    for other in (link / "leases.db", tmp_path / "short.db"):
        harness = Harness(SqliteStore(str(other)))
        assert harness.look() == one.look()._replace(link=harness.look().link)
    assert [path.name for path in tmp_path.rglob(f"*{SUFFIX}")] == [f"leases.db{SUFFIX}"]
    os.link(real / "leases.db", real / "second.db")
    answer = Harness(SqliteStore(str(real / "second.db"))).look()
    assert (answer.ok, answer.final) == (False, True)
    assert "has 2 names (hard links)" in answer.reason


def test_a_pipe_in_place_of_the_note_is_told(file: Path) -> None:
    store = SqliteStore(str(file))
    store.make_table(new=True)
    Path(f"{file}{SUFFIX}").unlink()
    os.mkfifo(f"{file}{SUFFIX}")
    answer = Harness(store).look()
    assert (answer.ok, answer.final) == (False, True)
    assert "is no file: remove it" in answer.reason


def test_hostile_rows_are_told_and_cost_no_live_holder_its_lease(file: Path) -> None:
    store = SqliteStore(str(file))
    store.make_table(new=True)
    harness = Harness(store)
    server = harness.take().server
    hand = sqlite3.connect(file, isolation_level=None)
    hand.execute("PRAGMA ignore_check_constraints = ON")
    hand.execute("INSERT INTO primacy_leases SELECT 'bad', 7, 'x', -1, 1e9, 0, 9, '', '', '', '', x'00' ")
    answers = [harness.look("bad"), harness.look()]
    assert [answer.ok for answer in answers] == [False, True]
    assert "'bad': the row in the store is not one of primacy's" in answers[0].reason
    hand.execute("UPDATE primacy_leases SET token = 'x', proof = 7 WHERE name = ?", (GENESIS,))
    assert not harness.look().ok
    assert harness.renew(server=server).done
    assert harness.release(seq=2).done
    hand.close()


def test_L6_a_row_whose_text_is_broken_costs_the_others_of_its_batch_nothing(file: Path) -> None:
    """One process holds both: they are renewed, and looked at, together."""
    store = SqliteStore(str(file))
    store.make_table(new=True)
    harness = Harness(store)
    server = harness.take().server
    assert harness.take("bad").done
    hand = sqlite3.connect(file, isolation_level=None)
    hand.execute("UPDATE primacy_leases SET successor = CAST(x'ff' AS TEXT) WHERE name = 'bad'")
    hand.close()
    bad, good = perform(store, [Renew("bad", "a#1", 10, 1, server), Renew("job", "a#1", 10, 1, server)])
    assert good.done
    assert (bad.ok, bad.final) == (False, False)
    assert "a text is not UTF-8" in bad.reason
    assert [answer.ok for answer in perform(store, [Look("bad"), Look("job")])] == [False, True]


MOUNTED = """
import sys
from primacy.store.sqlite import SqliteStore
from tests.support.store_harness import Harness
for path in sys.argv[1:]:
    answer = Harness(SqliteStore(path)).look()
    print(answer.ok, answer.final, answer.reason)
"""


def test_L5_a_file_that_is_mounted_by_itself_is_refused(tmp_path: Path) -> None:
    """As `docker run -v /srv/leases.db:/app/leases.db`: each path has its own log and note, and its own holder.

    A folder that is mounted has one of each, whatever its path; a path may have blanks and letters of any language.
    """
    host, alone, whole = tmp_path / "host", tmp_path / "by itself é", tmp_path / "whole é"
    for folder in (host, alone, whole):
        folder.mkdir()
    store = SqliteStore(str(host / "leases.db"))
    store.make_table(new=True)
    word = Harness(store).take().server
    store.close()
    (alone / "leases.db").touch()
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not here")
    rights = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    script = 'mount --bind "$1/leases.db" "$2/leases.db" && mount --bind "$1" "$3" || exit 77\nshift 3\nexec "$@"'
    paths = [str(folder / "leases.db") for folder in (host, alone, whole)]
    done = subprocess.run(
        [unshare, *rights, "--mount", "--propagation", "private", "sh", "-c", script, "sh", host, alone, whole,
         sys.executable, "-c", MOUNTED, *paths],
        check=False, capture_output=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    errors = done.stderr.decode()
    if done.returncode == 77 or "unshare failed" in errors:
        pytest.skip(f"nothing can be mounted here: {errors.strip()}")
    assert done.returncode == 0, errors
    by_host, by_itself, by_folder = done.stdout.decode().splitlines()
    assert (by_host, by_folder) == ("True False ", "True False ")
    assert by_itself.startswith("False True ")
    assert "is mounted as a single file: mount its folder" in by_itself
    assert not Path(f"{alone}/leases.db{SUFFIX}").exists()
    assert Harness(store).server() == word
