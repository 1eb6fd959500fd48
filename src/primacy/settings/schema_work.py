"""Of the one file, what the one does: a process (`run`), the slot server. The rest: `schema.py`, `schema_cache.py`."""

# ruff: noqa: RUF009  (`setting` returns a `dataclasses.field`, which is what a default may be)
from __future__ import annotations

from dataclasses import dataclass

from primacy.settings.accepted import SPAN_MS_MAX, wrong_address, wrong_listen
from primacy.settings.rule import setting

HOOKS = ("elected", "started", "stopped", "lost")


@dataclass(frozen=True, slots=True)
class Probe:
    """One question about the health of this node. Exactly one of `http`, `tcp` and `command`."""

    http: str = setting(
        "", "A URL that answers 200 to 299 when well.", pattern=r"https?://.+", says="http://… or https://…"
    )
    tcp: str = setting("", "A `host:port` that accepts a connection when well.", check=wrong_address)
    command: tuple[str, ...] = setting(tuple, "A command that ends with 0 when well; a list of words, no shell.")
    every_ms: int = setting(
        1000, "How often. Too small: load. Too large: a sick leader is noticed late.", least=10, most=SPAN_MS_MAX
    )
    timeout_ms: int = setting(1000, "How long one try may take.", least=10, most=SPAN_MS_MAX)
    failures: int = setting(
        3, "Failures in a row that make it unhealthy. 1: one hiccup costs the role.", least=1, most=1_000
    )
    successes: int = setting(
        2, "`always`: successes in a row that make it healthy again. 1: it may come and go.", least=1, most=1_000
    )
    when: str = setting(
        "running",
        "`running`: it asks the command, and only while that runs. `always`: it asks something else of this node (a "
        "disk, a route), whether it leads or not.",
        choices=("running", "always"),
    )
    start_ms: int = setting(
        10_000,
        "`running`: how long the command may take to answer well for the first time; failures before that do not "
        "count. Too small: a slow start costs the role.",
        least=0,
        most=SPAN_MS_MAX,
    )
    rest_ms: int = setting(
        30_000,
        "`running`: how long the node does not campaign after it stepped down for this; then it may try again. Too "
        "small: a sick node takes the role back at once.",
        least=0,
        most=SPAN_MS_MAX,
    )


@dataclass(frozen=True, slots=True)
class Run:
    """The process that only the leader runs."""

    command: tuple[str, ...] = setting(
        tuple, "The program and its arguments, a list of words, no shell. Or after `--`."
    )
    cwd: str = setting("", "The folder that it starts in. Default: the agent's.")
    user: str = setting("", "The user that it runs as. Default: the agent's.")
    group: str = setting("", "The group that it runs as. Default: the user's groups, or the agent's.")
    umask: str = setting(
        "",
        'Which rights the files that it makes do not get, in octal digits in quotes: `"027"`. Default: the agent\'s.',
        pattern=r"[0-7]{1,4}",
        says="1 to 4 octal digits, such as 027",
    )
    stdout: str = setting("", "A file that what it prints is appended to. Default: passed through.")
    stderr: str = setting("", "A file that its errors are appended to. Default: passed through.")
    environment: dict[str, str] = setting(
        dict,
        "Variables that it gets, besides the `PRIMACY_` ones.",
        keys=r"[A-Za-z_][A-Za-z0-9_]*",
        keys_say="a variable is a letter or underscore, then letters, digits or underscores",
    )
    stop_signal: str = setting(
        "TERM", "The signal that asks it to end.", choices=("TERM", "INT", "QUIT", "HUP", "USR1", "USR2")
    )
    stop_ms: int = setting(
        3000,
        "How long a *planned* stop may take: leadership is kept meanwhile, so it may be minutes. After a "
        "loss there is only "
        "the time between TERM and KILL. Too small: work is cut off. Too large: a handover takes long.",
        least=0,
        most=SPAN_MS_MAX,
    )
    restart: str = setting("always", "What follows when it ends by itself.", choices=("always", "on-failure", "never"))
    restart_limit: int = setting(
        20,
        "Ends in a row within 10 s of their start until the node gives up, so that another one may try. 0: never. Too "
        "small: a short trouble costs the node. The back-off between two starts grows from 100 ms to 10 s.",
        least=0,
        most=1_000_000,
    )
    require_containment: str = setting(
        "",
        "`strong`: refuse to start where the kernel cannot kill the whole tree. `any`: start all the same; then, if "
        "the guard is killed, a process that left the command runs on at the same time as the next leader's. Default: "
        "`any` for one node alone, else `strong`.",
        choices=("any", "strong"),
    )
    health: tuple[Probe, ...] = setting(tuple, "Probes; an unhealthy node steps down and does not campaign.")
    hooks: dict[str, tuple[str, ...]] = setting(
        dict,
        f"Commands told of a change: {', '.join(HOOKS)}.",
        keys="|".join(HOOKS),
        keys_say=f"a hook is one of {', '.join(HOOKS)}",
    )
    hook_ms: int = setting(10_000, "How long a hook may take before it is killed.", least=10, most=SPAN_MS_MAX)
    fence_command: tuple[str, ...] = setting(
        tuple,
        "A command that the successor must see end with 0 before it starts: a power switch, an API call. Left out "
        "where a release of the last leader proves its work gone. Tried again, ever more slowly, while it fails.",
    )
    fence_ms: int = setting(
        30_000,
        "How long the fence command may take before it is killed and counts as failed. Too small: no start at all.",
        least=10,
        most=SPAN_MS_MAX,
    )


SLOT_KINDS = (
    "simple_memory",
    "timeout_memory",
    "token_bucket",
    "leaky_bucket",
    "ticker",
    "atomic",
    "broadcast",
    "multicast",
    "random",
)


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot; which keys it needs depends on its kind."""

    kind: str = setting("", "What the slot does.", choices=SLOT_KINDS, also=("type",))
    users: dict[str, str] = setting(
        dict, "Who may read (`r`), write (`w`) or both (`a`). Empty: everybody.", pattern=r"[rwa]", says="r, w or a"
    )
    timeout: int | None = setting(
        None,
        "timeout_memory: seconds. multicast, random: seconds that a client must have stood still before it is "
        "deregistered (1).",
        least=1,
        most=2**40,
    )
    bucket_size: int | None = setting(None, "token_bucket, leaky_bucket: how much fits in.", least=1, most=2**53)
    period: str = setting("", "token_bucket: how often it is refilled.", choices=("second", "minute", "hour"))
    refresh_rate: int | None = setting(
        None, "token_bucket: tokens per period (1). leaky_bucket (1000), ticker: milliseconds.", least=1, most=2**53
    )
    tokens_per_req: int | None = setting(None, "token_bucket: tokens per request (1).", least=1, most=2**53)
    initial_value: int | None = setting(None, "ticker: where it starts.", least=0, most=2**53)
    dereg_tries: int | None = setting(
        None,
        "multicast, random: messages in a row that a client did not take until it is deregistered (3).",
        least=1,
        most=1_000_000,
    )


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Ghoti's metrics files."""

    addr: str = setting("", "From Ghoti 0.2 on: where it serves them instead.", check=wrong_listen)
    enabled: bool = setting(False, "Write them.")
    output_dir: str = setting("", "The folder.")
    rotation: str = setting("daily", "A new file how often.", choices=("hourly", "daily"))
    retain: int = setting(7, "Files that are kept; 0 keeps all.", least=0, most=100_000)
    interval: int = setting(10, "Seconds between two entries.", least=1, most=86_400)


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of one certificate."""

    cert: str = setting("", "The certificate, PEM.")
    key: str = setting("", "Its private key, PEM; refused if others can read it.")
    ca: str = setting("", "Whom to trust, PEM; given, clients must show a certificate.")


@dataclass(frozen=True, slots=True)
class Slots:
    """The slot server, on the leader only."""

    addr: str = setting("localhost:25873", "Where clients connect.", check=wrong_listen)
    protocol: str = setting(
        "standard",
        "Lines that end in LF (`standard`) or in CR LF (`telnet`), or HTTP with event streams (`http`).",
        choices=("standard", "telnet", "http"),
    )
    users: dict[str, str] = setting(
        dict,
        "Names and passwords.",
        keys=r"[A-Za-z][A-Za-z0-9_]{3,}",
        keys_say="a user name has at least 4 letters, digits or underscores, the first a letter",
        least_chars=4,
        secret=True,
    )
    tls: Tls = setting(Tls, "Encrypts the connections of clients. With `ca`, every client must show a certificate.")
    telemetry: Telemetry = setting(
        Telemetry, "Ghoti's metrics: read, and not acted on. `control.public` has `/metrics`.", also=("metrics",)
    )
    numbered: dict[str, Slot] = setting(
        dict,
        'The slots, `"000"` to `"999"`.',
        keys=r"[0-9]{3}",
        keys_say="a slot has three digits, 000 to 999",
        inline=True,
        key="NNN",
    )
