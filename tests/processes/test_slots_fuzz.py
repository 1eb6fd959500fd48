"""Ten seconds of hostile clients on the data port: no exception, no growth, and service goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.slots_fuzz import PROTOCOLS, fuzz

pytestmark = pytest.mark.beside(order=290)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_that_a_client_sends_harms_the_server(protocol: str, tmp_path: Path) -> None:
    seed = 1 + PROTOCOLS.index(protocol)  # `make proof` draws others
    found = fuzz(protocol, 10 / len(PROTOCOLS), seed, tmp_path)
    assert found["steps"] > 0
