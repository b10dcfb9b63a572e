"""Writes src/ctxpage/types.py from the schemas of the socket: a TypedDict for each object that a call takes or returns.

    python3 scripts/make_types.py            # writes the file
    python3 scripts/make_types.py --check    # fails if it is out of date
"""

from __future__ import annotations

import hashlib
import json
import keyword
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
SCHEMA = HERE.parent.parent / "serve" / "testdata" / "schema.json"
TARGET = HERE / "src" / "ctxpage" / "types.py"

# Names of types that users write, by the place where a type comes first. Other types are named after their call and field.
NAMED = {
    "put.in.writes": "Write", "put.in.writes.parts": "Part", "put.out": "Written", "get.out": "Page", "get.out.tool_calls": "ToolCall", "get.out.pages": "Piece",
    "list.in.filter": "Filter", "list.out": "PageList", "search.out": "Found", "search.out.hits": "Hit", "assemble.out": "AssembleResult", "assemble.out.blocks": "Block",
    "commit.in.verdict": "Verdict", "begin.out": "Begun", "manifest.out": "Manifest", "manifest.out.leaves": "Leaf", "manifest.out.leaves.pages": "ServedPage",
    "manifest.out.leaves.writes": "ChangedPage", "session/append.in.turns": "Turn", "session/append.out": "Appended", "session/window.out": "Window",
    "session/window.out.turns": "WindowTurn", "session/history.out": "History", "session/pass.out": "Pass", "session/pass.out.verdicts": "TurnVerdict",
    "session/undo.out": "Undone", "session/truncate.out": "Truncated", "session/list.out": "SessionList", "directives/show.out": "DirectiveState", "directives/step.out": "Decision",
    "directives/suggest.out": "Suggestion", "review/list.out": "HeldList", "review/show.out": "Held", "review/reject.out": "Rejected",
    "review/approve_all.out": "ApprovedList", "review/approve_all.out.batches": "Approved", "refresh.out": "RefreshReport", "why.out": "Why", "replay.out": "Replay",
    "diff.out": "Difference", "changes.out": "Change", "status.out": "Status", "scopes.out": "ScopeList", "scopes.out.scopes": "ScopeInfo", "stats.out": "Stats",
    "health.out": "HealthReport", "erase.out": "Erased", "erase.out.report": "EraseReport", "erase/list.out": "EraseList", "retention/set.in.policy": "Policy", "retention/set.out": "StoredPolicy",
    "retention/show.out": "Policies", "retention/run.out": "RetentionReport", "quota/set.in.quota": "Quota", "quota/set.out": "StoredQuota", "quota/show.out": "QuotaList", "backup.out": "Backup",
    "embed.out": "EmbedReport", "import.out": "Imported", "error": "ErrorBody", "review/approve.out": "Written",
}  # fmt: skip


def pascal(path: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in path).split()
    return "".join(w[0].upper() + w[1:] for w in words if w not in ("in", "out"))


class Writer:
    def __init__(self, named: dict[str, str]) -> None:
        self.names: dict[str, str] = {}
        self.out: list[str] = []
        self.named = named  # by shape
        self.first: dict[str, str] = {}  # the path at which NAMED names a shape

    def of(self, schema: Any, path: str) -> str:
        """Returns the type of a schema, and declares the objects in it."""
        if schema is True:
            return "Any"
        kind = schema.get("type")
        if kind == "array":
            return f"list[{self.of(schema.get('items', True), path)}]"
        if "properties" in schema:
            return self.declare(schema, path)
        if kind == "object":
            return f"dict[str, {self.of(schema.get('additionalProperties', True), path) if schema.get('additionalProperties') else 'Any'}]"
        return {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}.get(kind, "Any")

    def declare(self, schema: dict[str, Any], path: str) -> str:
        shape = json.dumps({"p": schema["properties"], "r": sorted(schema.get("required", []))}, sort_keys=True)
        if path in NAMED:
            self.first.setdefault(shape, NAMED[path])
        if shape in self.names:
            if not self.named:
                self.deeper(schema, path)
            return self.names[shape]
        name = self.named.get(shape) or (f"?{len(self.names)}" if not self.named else pascal(path))
        if name in self.names.values():
            raise SystemExit(f"two types would be named {name} ({path}): name one in NAMED")
        self.names[shape] = name
        required = set(schema.get("required", []))
        fields = [(f, self.of(s, f"{path}.{f}"), s.get("description", "") if isinstance(s, dict) else "") for f, s in schema["properties"].items()]
        must = [f for f in fields if f[0] in required]
        may = [f for f in fields if f[0] not in required]
        if any(keyword.iskeyword(f[0]) for f in fields):
            body = ", ".join(f'"{f}": {t}' for f, t, _ in must)
            if may:
                rest = ", ".join(f'"{f}": {t}' for f, t, _ in may)
                self.out.append(
                    f'_{name} = TypedDict("_{name}", {{{body}}})\n_{name}May = TypedDict("_{name}May", {{{rest}}}, total=False)\n\n\n'
                    f"class {name}(_{name}, _{name}May):\n    pass\n"
                )
            else:
                self.out.append(f'{name} = TypedDict("{name}", {{{body}}})\n')
        elif must and may:
            self.out.append(f"class _{name}(TypedDict):\n{''.join(map(self.line, must))}\n\nclass {name}(_{name}, total=False):\n{''.join(map(self.line, may))}")
        else:
            self.out.append(f"class {name}(TypedDict{', total=False' if may else ''}):\n{''.join(map(self.line, fields))}")
        return name

    def deeper(self, schema: dict[str, Any], path: str) -> None:
        """Looks for named places below a shape that is known."""
        for f, s in schema["properties"].items():
            self.of(s, f"{path}.{f}")

    @staticmethod
    def line(field: tuple[str, str, str]) -> str:
        name, kind, about = field
        return f"    {name}: {kind}\n" + (f'    """{about}"""\n' if about else "")


def walk(schema: dict[str, Any], w: Writer) -> Writer:
    for call in schema["calls"]:
        name = call["path"].removeprefix("/v1/")
        for f, s in call["in"].get("properties", {}).items():
            w.of(s, f"{name}.in.{f}")
        if call["out"] is not True and "properties" in call["out"]:
            w.of(call["out"], f"{name}.out")
    w.of(schema["error"]["properties"]["error"], "error")
    return w


def generate(text: str) -> str:
    schema = json.loads(text)
    w = walk(schema, Writer(walk(schema, Writer({})).first))
    codes = "".join(f'    "{c}",\n' for c in schema["codes"])
    return (
        '"""The objects that calls take and return. Written by scripts/make_types.py from the schemas of the server; do not edit.\n\n'
        f"sha256 of the schema: {hashlib.sha256(text.encode()).hexdigest()}\n"
        '"""\n\n'
        "from __future__ import annotations\n\nfrom typing import Any, Literal, TypedDict\n\n"
        f"VERSION = {schema['version']}\n\nCode = Literal[\n{codes}]\n\n\n" + "\n\n".join(w.out)
    )


def main() -> None:
    text = generate(SCHEMA.read_text())
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text() != text:
            raise SystemExit(f"{TARGET} is out of date: run python3 {Path(__file__).name}")
        return
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
