"""What stands on the pages without a mark is run, scene by scene (tests/support/page_scenes.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from primacy.settings.timing import PROFILES
from tests.support.canary import beside_a_canary
from tests.support.page_scenes import SCENES, Scene
from tests.support.page_shell import Lines, Shell

pytestmark = pytest.mark.beside(order=586)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    found = Shell(tmp_path)
    yield found
    found.end()


@pytest.mark.parametrize("scene", SCENES, ids=[scene.name for scene in SCENES])
@beside_a_canary(PROFILES["fast"].heartbeat_ms, passes_if_late=True)
def test_the_commands_of_the_pages_do_what_they_say(scene: Scene, shell: Shell) -> None:
    lines = scene.lines()
    scene.play(shell, *lines)
    for each in lines:
        each.all_taken()


def test_a_line_that_nobody_takes_is_noticed() -> None:
    lines = Lines("here", "$ primacy a   # so\n# not\nprimacy b \\\n    c\n")
    assert lines.left == ["primacy a", "primacy b c"]
    assert lines.take("primacy b") == "primacy b c"
    with pytest.raises(AssertionError, match="nobody runs"):
        lines.all_taken()
    with pytest.raises(AssertionError, match="no 'primacy b' any more"):
        lines.take("primacy b")
