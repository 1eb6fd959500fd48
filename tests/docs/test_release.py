"""What `make release` does, with the real builder, checker and signer; the installation is that of test_build.py."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from primacy import __version__
from tests.support import release
from tests.support.release import Refused

pytestmark = pytest.mark.beside(order=587)

KEY = "release@primacy.example"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return release.build(tmp_path_factory.mktemp("release") / "dist")


@pytest.fixture
def sums(files: list[Path]) -> Path:
    return release.write_sums(files[0].parent, files)


def verified(sums: Path) -> bool:
    call = ["sha256sum", "--check", "--strict", sums.name]
    return subprocess.run(call, cwd=sums.parent, capture_output=True, check=False).returncode == 0


def test_versions_and_notes_agree() -> None:
    assert not release.disagreements()


def test_all_disagreements_are_said_at_once(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(release.ROOT / name, tmp_path)
    assert release.disagreements(tmp_path, "9.9.9") == [
        f"pyproject.toml says {__version__}, the program 9.9.9",
        f"CHANGELOG.md says {__version__}, the program 9.9.9",
        "there is no docs/releases/9.9.9.md: what is new, for its users",
    ]


def test_the_archives_are_built_and_the_metadata_are_right(files: list[Path]) -> None:
    assert [file.name for file in files] == [f"primacy-{__version__}-py3-none-any.whl", f"primacy-{__version__}.tar.gz"]
    pytest.importorskip("twine", reason="twine is not here (make release-tools installs it)")
    assert "nothing wrong" in release.check(files)


def test_wrong_metadata_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("twine", reason="twine is not here (make release-tools installs it)")
    other = tmp_path / f"primacy-{__version__}-py3-none-any.whl"
    other.write_bytes(b"nothing")
    with pytest.raises(Refused, match="check"):
        release.check([other])


def test_without_twine_it_says_that_nothing_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "NOT checked" in release.check([])


def test_checksums_are_those_that_sha256sum_reads(sums: Path, files: list[Path]) -> None:
    assert verified(sums)
    kept = files[0].read_bytes()
    files[0].write_bytes(kept + b"x")
    try:
        assert not verified(sums)
    finally:
        files[0].write_bytes(kept)


def test_without_a_key_it_says_that_the_checksums_are_not_signed(sums: Path) -> None:
    assert "NOT signed" in release.sign(sums, "")
    assert not sums.with_name("SHA256SUMS.asc").exists()


def test_a_key_signs_them_and_a_changed_one_is_noticed(
    sums: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("gpg") is None:
        pytest.skip("gpg is not here (apt-get install gnupg)")
    home = tmp_path / "keys"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    call = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", KEY, "ed25519", "sign"]
    subprocess.run(call, check=True, capture_output=True, timeout=60)
    try:
        assert KEY in release.sign(sums, KEY)
        signature = sums.with_name("SHA256SUMS.asc")
        release.ran("gpg", "--verify", signature, sums)
        sums.write_text(sums.read_text() + "\n")
        with pytest.raises(Refused, match="BAD signature"):
            release.ran("gpg", "--verify", signature, sums)
        with pytest.raises(Refused, match="gpg"):
            release.sign(sums, "nobody@primacy.example")
    finally:
        subprocess.run(["gpgconf", "--kill", "all"], check=True, capture_output=True, timeout=60)
        sums.with_name("SHA256SUMS.asc").unlink(missing_ok=True)


def test_what_a_person_has_to_do_is_said() -> None:
    said = "\n".join(release.left_to_do())
    assert "project.urls" in said
    assert "unreleased" in said
