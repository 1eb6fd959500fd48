"""Who is a viewer and who an operator, by session, by place and by the header of a trusted proxy. Without a browser."""

from __future__ import annotations

import ipaddress

import pytest

from primacy.control.audit import NAMELESS
from primacy.dashboard.access import NOBODY, OPERATOR, VIEWER, Access, TrustedProxy, user_of

KEY = "ab" * 32
NETWORKS = (ipaddress.ip_network("10.0.8.0/24"), ipaddress.ip_network("fd00::5/128"))
PROXY = TrustedProxy(NETWORKS, "X-Forwarded-Email", operators=("ann@x",))


def test_a_header_is_believed_from_listed_addresses_only() -> None:
    for remote in ("10.0.8.1", "10.0.8.255", "::ffff:10.0.8.7", "fd00::5"):
        assert PROXY.is_from(remote), remote
    for remote in ("10.0.9.1", "127.0.0.1", "::1", "fd00::6", "", "unix:", "10.0.8.1, 1.2.3.4", "evil.example"):
        assert not PROXY.is_from(remote), remote
    assert not TrustedProxy().is_from("127.0.0.1"), "off, unless it is asked for"


@pytest.mark.parametrize(
    ("values", "user"),
    [
        (["ann@x"], "ann@x"),
        ([" ann@x "], "ann@x"),
        ([], ""),
        ([""], ""),
        (["bob@x", "ann@x"], ""),
        (["x" * 101], ""),
        (["a\x1bb"], ""),
    ],
)
def test_a_header_that_is_missing_double_or_nonsense_names_nobody(values: list[str], user: str) -> None:
    assert user_of(values) == user


def test_roles_behind_a_proxy() -> None:
    for loopback in (True, False):
        access = Access(KEY, loopback=loopback, lab=False, proxy=PROXY)
        assert access.who("", 0, "ann@x") == ("ann@x", OPERATOR, "ann@x")
        assert access.who("", 0, "bob@x") == ("bob@x", VIEWER, "bob@x")
        assert access.who("", 0, "").role == NOBODY, "what comes through the proxy is from anywhere, not from here"
    only = Access(KEY, loopback=True, lab=True, proxy=PROXY._replace(viewers=("eve@x",)))
    assert [only.who("", 0, user).role for user in ("ann@x", "eve@x", "bob@x")] == [OPERATOR, VIEWER, NOBODY]


def test_without_a_key_nobody_is_an_operator() -> None:
    assert Access("", loopback=True, lab=False, proxy=PROXY).who("", 0, "ann@x").role == VIEWER


def test_the_control_key_makes_an_operator_of_anybody_and_the_trail_says_so() -> None:
    access = Access(KEY, loopback=True, lab=False, proxy=PROXY)
    session = access.enter(key=KEY, code="", now_ms=0)
    assert session is not None
    assert access.who(session, 1) == (NAMELESS, OPERATOR, "")
    assert access.who(session, 1, "bob@x") == ("bob@x, with the control key", OPERATOR, "bob@x")


def test_here_everybody_looks_and_in_a_lab_everybody_breaks_things() -> None:
    assert Access(KEY, loopback=True, lab=False).who("", 0).role == VIEWER
    assert Access(KEY, loopback=True, lab=True).who("", 0).role == OPERATOR
    assert Access(KEY, loopback=False, lab=True).who("", 0).role == NOBODY
