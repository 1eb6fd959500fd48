"""From the words of `primacy node start` to settings: the same ones that a file would give.

The words are those of Hecaton: a port, and either `--leader`, `--join` or `--nodes`. What it leaves open is filled in
as it does: ids are made of host and port, ranks of the moment of the start. What a file must have and the words do not
say (a secret, a state folder for each node) is found for nodes on one machine; off it, it must be said.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import secrets
from typing import Any, NamedTuple

from primacy.agent.state import state_root
from primacy.cli.call import CONFIG_VARIABLE
from primacy.cli.local import NODES, folder_name
from primacy.cli.new import SECRET_BYTES
from primacy.errors import CannotHere, SettingsError, UsageError
from primacy.node.folder import Folder
from primacy.settings import load, of_mapping
from primacy.settings.accepted import ID_CHARS_MAX, ID_PATTERN, STRATEGIES, wrong_address, wrong_store, wrong_strategy
from primacy.settings.checks import Checks, profile_problem
from primacy.settings.loading import STORE_VARIABLE
from primacy.settings.schema import Settings

PORT = 5001
"""As in Hecaton."""
HOST = "localhost"
SECRET = "secret"
"""Beside them: what nodes of one machine share if nobody says otherwise."""
LOOPBACK = re.compile(r"localhost|127\.[0-9.]+|\[::1\]|::1")
RANK = "started"
"""Hecaton: whoever was started last ranks highest."""
RANK_OF_LIST = "id"
"""A fixed list does not say when its nodes were started."""


class NodeOptions(NamedTuple):
    """What the command was told; None, empty or False where it was not."""

    id: str | None = None
    host: str | None = None
    port: int | None = None
    leader: bool = False
    join: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    strategy: str | None = None
    rank: str | None = None
    profile: str | None = None
    store: str | None = None
    cluster: str | None = None
    election: str | None = None
    secret_file: str | None = None
    state_dir: str | None = None

    @property
    def is_silent(self) -> bool:
        """Nothing that a file would say: then the one of the working folder counts, as with every command."""
        words = (self.leader, self.join, self.nodes, self.strategy, self.store, self.host, self.port, self.cluster)
        return not any(words)


def settings_of(said: NodeOptions, file: str | None) -> Settings:
    """Raises `UsageError` with the reason for what makes no sense together."""
    said = _with_variable(said) if file is None else said  # a file is read with the variable over it
    _refuse(said, file)
    return _over_file(said, file) if file is not None else _without_file(said)


def _with_variable(said: NodeOptions) -> NodeOptions:
    """PRIMACY_STORE stands for `--store` where a lease is meant, or nothing is said: no node that is listed, joins or
    begins a cluster is put on a lease by a variable."""
    url = os.environ.get(STORE_VARIABLE, "")
    other = (said.leader, said.join, said.nodes, said.rank, said.host, said.port)
    is_lease = said.strategy.lower() == "lease" if said.strategy else not any(other)
    if said.store or not url or not is_lease:
        return said
    if wrong := wrong_store(url):
        raise UsageError(f"{STORE_VARIABLE}: {wrong}")
    return said._replace(store=url)


def check_relations(settings: Settings) -> None:
    """The relations between settings, once more: an option may have changed one side of them."""
    wrong = profile_problem(settings.election.strategy, settings.election.profile, "--profile")
    problems = [wrong] if wrong else list(Checks(settings, {}).problems())
    if problems:
        raise SettingsError(problems)


# --- what makes no sense together -------------------------------------------------------------------------------------


def _named(file: str) -> str:
    """How the file was named: nobody looks for a variable by an option's name."""
    return f"{CONFIG_VARIABLE}={file}" if os.environ.get(CONFIG_VARIABLE) == file else f"--config {file}"


def _refuse(said: NodeOptions, file: str | None) -> None:
    ways = [f"--{way}" for way in ("leader", "join", "nodes") if getattr(said, way)]
    if len(ways) > 1:
        raise UsageError(
            f"{ways[0]} and {ways[1]} exclude each other: a node begins a cluster, joins one, or is listed"
        )
    if file is not None and ways:
        raise UsageError(f"{ways[0]} and {_named(file)} exclude each other: the file says who belongs to the cluster")
    if file is not None:
        for word, value in (("host", said.host), ("port", said.port), ("cluster", said.cluster)):
            if value is not None:
                raise UsageError(
                    f"--{word} {value} and {_named(file)} exclude each other: the file says where its nodes are; --id "
                    "says which of them this is"
                )
    strategy = _strategy(said)
    if strategy not in ("lease", "bully", "ring") and ways and ways[0] != "--nodes":
        why = "a majority needs" if strategy == "raft" else "a strategy of your own has"
        raise UsageError(
            f"{ways[0]} does not go with {strategy}: {why} a fixed list, the same on all nodes. Say it on each: "
            "--nodes localhost:5001,localhost:5002,localhost:5003"
        )
    if strategy == "lease" and ways:
        raise UsageError(f"{ways[0]} does not go with lease: its nodes meet in the store, and need no list")
    if said.store and strategy != "lease":
        raise UsageError(f"--store goes with --algorithm lease, not with {strategy}")
    if said.rank and strategy not in ("bully", "ring"):
        raise UsageError(f"--rank {said.rank}: {strategy} has no ranks; bully and ring have")
    if file is not None:
        return
    if strategy == "lease" and not said.store:
        raise UsageError(
            f"--algorithm lease needs a store: say --store URL, such as sqlite:///leases.db, or set {STORE_VARIABLE}"
        )
    if not said.nodes and strategy not in ("lease", "bully", "ring"):
        raise UsageError(f"{strategy} needs its list: --nodes localhost:5001,localhost:5002,localhost:5003")
    if not ways and strategy != "lease":
        raise UsageError(
            "is this the first node of a cluster, or does it join one? Say --leader, --join HOST:PORT, or --nodes with "
            "a fixed list; or --config FILE"
        )


def _strategy(said: NodeOptions) -> str:
    """Hecaton writes BULLY, RAFT, RING."""
    if said.strategy is None:
        return "lease" if said.store else "bully"
    name = said.strategy.lower() if said.strategy.lower() in STRATEGIES else said.strategy
    if wrong := wrong_strategy(name):
        raise UsageError(f"--algorithm {said.strategy}: {wrong}")
    return name


# --- a file -----------------------------------------------------------------------------------------------------------


def _over_file(said: NodeOptions, file: str | None) -> Settings:
    """The file, with what was said put over it; the id says which node of it this is."""
    settings = load(file, said.id)
    changed: dict[str, Any] = {}
    if said.strategy:
        changed["strategy"] = _strategy(said)
    for word, name in (("rank", "rank"), ("profile", "profile"), ("election", "name")):
        if (value := getattr(said, word)) is not None:
            changed[name] = value
    if said.store:
        changed["store"] = dataclasses.replace(settings.election.store, url=store_address(said.store))
    cluster = settings.cluster
    if said.secret_file:
        cluster = dataclasses.replace(cluster, secret_file=os.path.abspath(said.secret_file))
    changed_settings = dataclasses.replace(
        settings,
        cluster=cluster,
        election=dataclasses.replace(settings.election, **changed),
        state_dir=os.path.abspath(said.state_dir) if said.state_dir else settings.state_dir,
    )
    return with_own_folder(changed_settings)


def with_own_folder(settings: Settings) -> Settings:
    """Nodes that join each other have a file each, and several may share a machine: each gets a folder by its id.

    Else the second would wait for the end of the first, as one and the same node. A folder that is named is kept.
    """
    if settings.state_dir or settings.cluster.manager.type != "join_server" or not settings.node:
        return settings
    root = state_root(settings, os.environ, os.geteuid())
    return dataclasses.replace(settings, state_dir=state_of(root, settings.node))


# --- no file ----------------------------------------------------------------------------------------------------------


def _without_file(said: NodeOptions) -> Settings:
    strategy = _strategy(said)
    host, port = said.host or HOST, said.port or PORT
    own = _address(f"{host}:{port}", "--host")
    listed = dict(_listed(each) for each in said.nodes)
    if len(listed) < len(said.nodes):
        raise UsageError("--nodes: a node is named twice; every one needs an address and an id of its own")
    name = _id(said, own, listed)
    election: dict[str, Any] = {"strategy": strategy, "profile": said.profile, "name": said.election}
    cluster: dict[str, Any] = {"name": said.cluster, "node": name}
    if strategy == "lease":
        election["store"] = {"url": store_address(said.store or "")}
    elif listed:
        cluster |= {"first_start": "auto", "manager": {"nodes": {each: {"addr": at} for each, at in listed.items()}}}
    else:
        joined = [_address(each, "--join") for each in said.join]
        if set(joined) == {own}:
            raise UsageError(f"--join {own} is this node itself; say --leader, or the address of another node")
        cluster["manager"] = {"type": "join_server", "addr": own, "join": joined}
    if strategy in ("bully", "ring"):
        election["rank"] = said.rank or (RANK_OF_LIST if listed else RANK)
    root = state_root(
        Settings(state_dir=os.path.abspath(said.state_dir) if said.state_dir else ""), os.environ, os.geteuid()
    )
    if strategy != "lease":
        cluster["secret_file"] = _secret(said, root, [own, *listed.values(), *said.join])
    settings = of_mapping({"cluster": _given(cluster), "election": _given(election)}, name)
    return dataclasses.replace(settings, state_dir=state_of(root, name))


def state_of(root: str, name: str) -> str:
    """Where a node of its own keeps its things: several may share a machine."""
    return os.path.join(root, NODES, folder_name(name))


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def id_of(address: str) -> str:
    """HOST-PORT, as Hecaton names its nodes."""
    host, _, port = address.rpartition(":")
    return re.sub(r"[^A-Za-z0-9._]", "-", host).strip("-.") + f"-{port}"


def _id(said: NodeOptions, own: str, listed: dict[str, str]) -> str:
    if listed:
        name = said.id or next((each for each, at in listed.items() if at == own), "")
        if name not in listed:
            what = f"--id {said.id}" if said.id else own
            raise UsageError(
                f"{what} is not in --nodes, which has {', '.join(f'{each} at {at}' for each, at in listed.items())}; "
                "say --port, or --id, of this node"
            )
        return name
    name = said.id or id_of(own)
    if not re.fullmatch(ID_PATTERN, name):
        raise UsageError(
            f"--id {name[:80]}: an id is 1 to {ID_CHARS_MAX} letters, digits, dots, dashes or underscores, the first a "
            "letter or digit; without --id it is made of host and port"
        )
    return name


def _listed(entry: str) -> tuple[str, str]:
    """HOST:PORT, or ID=HOST:PORT."""
    name, equals, address = entry.rpartition("=")
    address = _address(address, "--nodes")
    name = name.strip() if equals else id_of(address)
    if not re.fullmatch(ID_PATTERN, name):
        raise UsageError(f"--nodes {entry[:80]}: {name[:40]!r} is no id of a node; write ID=HOST:PORT")
    return name, address


def _address(text: str, option: str) -> str:
    if wrong := wrong_address(text.strip()):
        raise UsageError(f"{option} {text[:80]}: {wrong}")
    return text.strip()


def store_address(url: str) -> str:
    """What `--store` says. A relative file of SQLite counts from the working folder."""
    if wrong := wrong_store(url):
        raise UsageError(f"--store: {wrong}")
    head, found, path = url.partition(":///")
    return f"{head}:///{os.path.abspath(path)}" if found and head.startswith("sqlite") else url


# --- the secret -------------------------------------------------------------------------------------------------------


def _secret(said: NodeOptions, root: str, addresses: list[str]) -> str:
    """The file that was named; else, if all nodes are on this machine, one in the state folder that they share."""
    if said.secret_file:
        return os.path.abspath(said.secret_file)
    far = [each for each in addresses if not LOOPBACK.fullmatch(each.rpartition(":")[0])]
    if far:
        raise UsageError(
            f"{far[0]} is not on this machine alone, and nodes that others can reach need a secret: primacy keygen "
            "makes one; copy it to each machine and say --secret-file FILE"
        )
    home = Folder(root)
    try:
        shared = Folder(home.path(NODES))
    finally:
        home.close()
    try:
        _make_secret(shared)
        return shared.path(SECRET)
    finally:
        shared.close()


def _make_secret(folder: Folder) -> None:
    """Once, whole from its first moment: the nodes of a cluster may be started together."""
    if os.path.lexists(folder.path(SECRET)):
        return
    made = f"{SECRET}.{secrets.token_hex(8)}"  # two containers may have one folder, and one number
    try:
        handle = folder.create(made)
        try:
            os.write(handle, (secrets.token_hex(SECRET_BYTES) + "\n").encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        with contextlib.suppress(FileExistsError):
            os.link(made, SECRET, src_dir_fd=folder.handle, dst_dir_fd=folder.handle, follow_symlinks=False)
        os.unlink(made, dir_fd=folder.handle)
    except OSError as error:
        raise CannotHere(f"{folder.path(SECRET)} cannot be written: {error.strerror}") from None
