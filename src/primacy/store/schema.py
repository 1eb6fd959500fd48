"""What `primacy lease schema` prints: the table, and the rights that a user of it needs, for an administrator to run.

With the table made beforehand, the user of the leases needs no right to make tables. What is printed may be run again,
also for a table of version 0.1: it adds what is missing and changes no row. The right to delete is for who prunes.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from primacy.election.store import WAIT_MAX_MS
from primacy.errors import UsageError
from primacy.store import sql_text, sqlite_text
from primacy.store.port import check_table

KINDS = ("sqlite", "postgresql", "mysql", "mariadb", "etcd", "redis", "kubernetes")

REDIS_RIGHTS = (
    "+eval +evalsha +info +hget +hset +hdel +hlen +hscan +select +publish +subscribe '+config|get' '+pubsub|numsub'"
)


KUBERNETES_RIGHTS = """\
# for kubectl apply -f -; instead of NAMESPACE: where the leases are, and the service account USER
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: primacy-leases, namespace: NAMESPACE}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, watch, create, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: primacy-leases, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: primacy-leases}
subjects:
- {kind: ServiceAccount, name: USER, namespace: NAMESPACE}
---
# which cluster this is: one object, read only
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: primacy-cluster, namespace: kube-system}
rules:
- {apiGroups: [""], resources: [namespaces], resourceNames: [kube-system], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: primacy-cluster-NAMESPACE-USER, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: primacy-cluster}
subjects:
- {kind: ServiceAccount, name: USER, namespace: NAMESPACE}
"""


def kind_of(url: str) -> str:
    """The database that an address means."""
    scheme = url.partition(":")[0].partition("+")[0].lower()
    kind = {"postgres": "postgresql", "etcds": "etcd", "rediss": "redis"}.get(scheme, scheme)
    if kind not in KINDS:
        raise UsageError(f"there is no schema for {scheme[:20]!r}; there is one for {', '.join(KINDS)}")
    return kind


def schema(kind: str, table: str, user: str = "") -> str:
    """The statements, ready to be run; without a user, with a word in its place and a line that says so."""
    t, who = check_table(table), user or "USER"
    text = _statements(kind, t, who)
    if user or kind == "sqlite":
        return text
    begin = "#" if kind in ("etcd", "redis", "kubernetes") else "--"
    return f"{begin} instead of USER: who uses the leases; --user NAME puts it in\n{text}"


def _statements(kind: str, t: str, who: str) -> str:
    quoted = '"' + who.replace('"', '""') + '"'
    match kind:
        case "sqlite":
            return f"{_table(sqlite_text.sqlite(t))}-- rights: to write the file, and its folder\n"
        case "postgresql":
            table = _table(sql_text.postgresql(t), sql_text.POSTGRESQL_MIGRATE.format(t))
            return f"{table}GRANT SELECT, INSERT, UPDATE ON {t} TO {quoted};\n"
        case "mysql" | "mariadb":
            account = "'" + who.replace("'", "''") + "'@'%'"
            return f"{_table(sql_text.mysql(t, ''))}GRANT SELECT, INSERT, UPDATE ON {t} TO {account};\n"
        case "etcd":
            return f"etcdctl role grant-permission {who} --prefix=true readwrite {t}/\n"
        case "redis":
            return f"redis-cli ACL SETUSER {who} '~{t}' '&{t}' {REDIS_RIGHTS}\n"
        case "kubernetes":
            return KUBERNETES_RIGHTS.replace("USER", who)
    raise UsageError(f"there is no schema for {kind!r}; there is one for {', '.join(KINDS)}")


def _table(texts: sql_text.Texts, migrate: str = "") -> str:
    """The table, and its genesis row."""
    genesis = texts.genesis.replace(":wait_max", str(WAIT_MAX_MS))
    return "".join(f"{text};\n" for text in (texts.create, migrate, genesis) if text)


def user_of(url: str) -> str:
    """The user in an address, if one stands there."""
    try:
        return unquote(urlsplit(url).username or "")
    except ValueError:
        return ""
