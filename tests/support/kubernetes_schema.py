"""The schemas that a real kube-apiserver publishes, recorded, and a validator that is as strict as its `Strict` mode.

    python -m tests.support.kubernetes_schema https://127.0.0.1:6443 TOKEN

records them anew, from a server of any release: those of the kinds that contrib/kubernetes/ uses and all that these
refer to, without descriptions. The file says from which version.
"""

from __future__ import annotations

import json
import re
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted((ROOT / "contrib" / "kubernetes").glob("*.yaml"))
RECORDED = ROOT / "tests" / "data" / "kubernetes_schemas.json"
REFERENCE = "#/components/schemas/"
KEPT = ("type", "format", "properties", "items", "additionalProperties", "required", "enum", "$ref", "allOf", "oneOf")
"""What says which values fit."""
TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict}


def manifests(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


def kind_of(manifest: dict[str, Any]) -> str:
    return f"{manifest['apiVersion']} {manifest['kind']}"


# --- validating -------------------------------------------------------------------------------------------------------


def problems(manifest: dict[str, Any], recorded: dict[str, Any]) -> list[str]:
    """All of them: a field that the server does not know, one that it needs, a value of another type."""
    name = recorded["kinds"].get(kind_of(manifest))
    if name is None:
        return [f"{kind_of(manifest)}: no schema of this kind is recorded"]
    return list(_problems(manifest, {"$ref": REFERENCE + name}, recorded["schemas"], kind_of(manifest)))


def _problems(value: Any, schema: dict[str, Any], known: dict[str, Any], where: str) -> Iterator[str]:
    for each in schema.get("allOf", ()):
        yield from _problems(value, each, known, where)
    if "oneOf" in schema and all(list(_problems(value, each, known, where)) for each in schema["oneOf"]):
        yield f"{where}: {value!r} fits none of {schema['oneOf']}"
    if "$ref" in schema:
        yield from _problems(value, known[schema["$ref"].removeprefix(REFERENCE)], known, where)
    wanted = schema.get("type")
    if wanted is not None and not _is(value, wanted):
        yield f"{where}: {value!r} is no {wanted}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _problems(each, schema.get("items", {}), known, f"{where}[{number}]")
    elif isinstance(value, dict) and wanted == "object":
        yield from _of_object(value, schema, known, where)


def _of_object(value: dict[str, Any], schema: dict[str, Any], known: dict[str, Any], where: str) -> Iterator[str]:
    named, others = schema.get("properties", {}), schema.get("additionalProperties")
    yield from (f"{where}: {name} is missing" for name in schema.get("required", ()) if name not in value)
    for name, each in value.items():
        if name in named:
            yield from _problems(each, named[name], known, f"{where}.{name}")
        elif others is not None:
            yield from _problems(each, others, known, f"{where}.{name}")
        else:
            yield f"{where}: {name} is not known there"


def _is(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    found = TYPES[wanted]
    return isinstance(value, found)  # type: ignore[arg-type]


# --- recording --------------------------------------------------------------------------------------------------------


def record(url: str, token: str) -> dict[str, Any]:
    """From a running server."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE  # its own certificate, on loopback

    def get(path: str) -> Any:
        request = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, context=unchecked, timeout=60) as answer:
            return json.load(answer)

    kinds = sorted({kind_of(one) for file in MANIFESTS for one in manifests(file)})
    found: dict[str, Any] = {}
    roots = {}
    for kind in kinds:
        version, _, name = kind.partition(" ")
        group, _, number = version.rpartition("/")
        schemas = get(f"/openapi/v3/{'apis' if group else 'api'}/{version}")["components"]["schemas"]
        said = [{"group": group, "kind": name, "version": number}]
        (root,) = (each for each, one in schemas.items() if one.get("x-kubernetes-group-version-kind") == said)
        roots[kind] = root
        _reach(root, schemas, found)
    return {
        "recorded": f"from kube-apiserver {get('/version')['gitVersion']} by python -m {__spec__.name}, without "
        "descriptions: the kinds of contrib/kubernetes/ and all that they refer to",
        "kinds": roots,
        "schemas": dict(sorted(found.items())),
    }


def _reach(name: str, schemas: dict[str, Any], found: dict[str, Any]) -> None:
    if name not in found:
        found[name] = _pruned(schemas[name])
        for each in sorted(set(re.findall(rf'"{REFERENCE}([^"]+)"', json.dumps(found[name])))):
            _reach(each, schemas, found)


def _pruned(schema: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            kept[key] = {name: _pruned(each) for name, each in value.items()}
        elif key in ("items", "additionalProperties"):
            kept[key] = _pruned(value)
        elif key in ("allOf", "oneOf"):
            kept[key] = [_pruned(each) for each in value]
        elif key in KEPT:
            kept[key] = value
    return kept


def main() -> int:
    made = record(*sys.argv[1:])
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in made.pop("schemas").items())
    head = json.dumps(made, indent=1).removesuffix("\n}")
    RECORDED.write_text(f'{head},\n "schemas": {{\n{rows}\n }}\n}}\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
