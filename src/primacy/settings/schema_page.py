"""Who may use the dashboard's page, and where it may be shown, as frozen dataclasses (see `schema.py`)."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from primacy.settings.rule import setting

USER_CHARS_MAX = 100


def wrong_network(text: str) -> str:
    """What is wrong with the address of a proxy, or a network of them."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return "an address or a network, such as 10.0.0.5 or 10.0.8.0/24"
    return ""


def wrong_user(text: str) -> str:
    """What is wrong with a name that a proxy's header may hold."""
    if 1 <= len(text) <= USER_CHARS_MAX and text.isprintable() and text == text.strip():
        return ""
    return f"a name has 1 to {USER_CHARS_MAX} characters that can be printed"


def wrong_site(text: str) -> str:
    """What is wrong with a site that may frame the strip: it becomes a part of a header."""
    if re.fullmatch(r"https?://(\*\.)?[A-Za-z0-9.-]+(:[0-9]{1,5})?", text):
        return ""
    return "a site is https://NAME or https://NAME:PORT, without a path; *.NAME is any name below it"


@dataclass(frozen=True, slots=True)
class Page:
    """Who may use the dashboard, and where its strip may be shown."""

    hosts: tuple[str, ...] = setting(
        tuple,
        "Names by which browsers reach the page, besides loopback's: that of a proxy in front of it, too.",
        pattern=r"[A-Za-z0-9.:-]{1,253}",
        says="the name of a host, without a port",
        one_or_more=True,
    )
    proxies: tuple[str, ...] = setting(
        tuple,
        "Addresses or networks of proxies that sign people in: `user_header` is believed from these only. Everybody "
        "who can connect from one of them can claim any name. Empty: no header is believed.",
        check=wrong_network,
        one_or_more=True,
    )
    user_header: str = setting(
        "X-Forwarded-Email",
        "The header in which those proxies name the person; they must remove it from what browsers send.",
        pattern=r"[A-Za-z0-9-]{1,60}",
        says="the name of a header",
    )
    operators: tuple[str, ...] = setting(
        tuple,
        "Who of them may change things. Everybody else only looks, unless they sign in with the control key.",
        check=wrong_user,
        one_or_more=True,
    )
    viewers: tuple[str, ...] = setting(
        tuple, "Who of them may look. Empty: everybody whom a proxy names.", check=wrong_user, one_or_more=True
    )
    frame_ancestors: tuple[str, ...] = setting(
        tuple,
        "Sites that may show `/embed/status`, the strip alone, in a frame: `https://wall.example.org`. No other page "
        "of the dashboard can be framed.",
        check=wrong_site,
        one_or_more=True,
    )
