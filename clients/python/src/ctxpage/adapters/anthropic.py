"""Anthropic's memory tool: files below /memories as pages of a scope.

    from ctxpage.adapters.anthropic import CtxpageMemoryTool

    client.beta.messages.run_tools(model=…, messages=…, tools=[CtxpageMemoryTool(db.scope("acme/support"))])

The model sees its files at once. They are of kind scratch: contexts and searches do not show them until a person or the gate lifts them.
"""

from __future__ import annotations

import asyncio
import posixpath
from typing import Any

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool
from anthropic.lib.tools._beta_functions import ToolError

from .._sync import Scope
from ..errors import Conflict

_ROOT = "memories"
_WIDTH, _MAX_LINES = 6, 999_999
_EMPTY = "[empty]"


class Files:
    """Files and folders in a scope. A folder is a page whose id ends with a slash, so that an empty one stays."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def resolve(self, path: str) -> str:
        """The id of a path: memories, or memories/…"""
        if path != "/memories" and not path.startswith("/memories/"):
            raise ToolError(f"Path must start with /memories, got: {path}")
        name = posixpath.normpath(path.lstrip("/"))
        if name != _ROOT and not name.startswith(_ROOT + "/"):
            raise ToolError(f"Path {path} would escape /memories directory")
        return name

    def below(self, name: str) -> list[str]:
        """Ids of all files and folders below a folder."""
        return [p["id"] for p in self.scope.list(name + "/") if p["id"] != name + "/"]

    def is_dir(self, name: str) -> bool:
        return name == _ROOT or self.scope.find(name + "/") is not None or bool(self.below(name))

    def read(self, name: str) -> str | None:
        page = self.scope.find(name)
        if page is None:
            return None
        return "" if page.get("meta", {}).get("empty") else page.get("text", "")

    def page(self, name: str, text: str) -> dict[str, Any]:
        return {"id": name, "text": text, "kind": "scratch"} if text.strip() else {"id": name, "text": text or _EMPTY, "kind": "scratch", "meta": {"empty": "1"} if not text else None}

    def parents(self, name: str) -> list[dict[str, Any]]:
        """Pages of the folders above a name."""
        parts = name.split("/")[:-1]
        return [{"id": "/".join(parts[:n]) + "/", "text": "[folder]", "kind": "scratch"} for n in range(2, len(parts) + 1)]

    def change(self, name: str, edit: Any) -> Any:
        """Replaces a file by what edit makes of it, unless another caller changed it meanwhile: then again."""
        for _ in range(20):
            with self.scope.transaction() as tx:
                page = tx.get(name)
                text, answer = edit("" if page.get("meta", {}).get("empty") else page.get("text", ""))
                tx.put(**self.page(name, text))
                try:
                    tx.commit(1.0, "memory tool")
                except Conflict:
                    continue
                return answer
        raise ToolError(f"The file /{name} is changed by others all the time. Please try again.")

    # The commands.

    def view(self, c: Any) -> str:
        name = self.resolve(c.path)
        text = None if name == _ROOT else self.read(name)
        if text is None:
            if not self.is_dir(name):
                raise ToolError(f"The path {c.path} does not exist. Please provide a valid path.")
            return self.view_dir(c.path, name)
        lines = text.split("\n")
        if len(lines) > _MAX_LINES:
            raise ToolError(f"File {c.path} exceeds maximum line limit of 999,999 lines.")
        start, end = 0, len(lines)
        if c.view_range and len(c.view_range) == 2:
            start = max(1, c.view_range[0]) - 1
            end = len(lines) if c.view_range[1] == -1 else c.view_range[1]
        return f"Here's the content of {c.path} with line numbers:\n" + "\n".join(f"{n + start + 1:{_WIDTH}}\t{line}" for n, line in enumerate(lines[start:end]))

    def view_dir(self, path: str, name: str) -> str:
        sizes: dict[str, int] = {}
        for id in self.below(name):
            rest = id[len(name) + 1 :].rstrip("/").split("/")
            shown = rest[:2]
            if any(part.startswith(".") for part in shown):
                continue
            for n in range(1, len(shown) + 1):
                folder = n < len(rest) or id.endswith("/")
                sizes.setdefault("/".join(shown[:n]) + ("/" if folder else ""), 0 if folder else len((self.read(id) or "").encode()))
        names = sorted(sizes, key=lambda s: s.rstrip("/").split("/"))
        lines = [f"{_size(4096)}\t{path}", *(f"{_size(4096 if s.endswith('/') else sizes[s])}\t{path}/{s}" for s in names)]
        return f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:\n" + "\n".join(lines)

    def create(self, c: Any) -> str:
        name = self.resolve(c.path)
        if self.read(name) is not None or self.is_dir(name):
            raise ToolError(f"File {c.path} already exists")
        self.scope.put_all([*self.parents(name), self.page(name, c.file_text)])  # type: ignore[list-item]
        return f"File created successfully at: {c.path}"

    def _file(self, path: str) -> str:
        name = self.resolve(path)
        if name == _ROOT or self.read(name) is None:
            if self.is_dir(name):
                raise ToolError(f"The path {path} is not a file.")
            raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
        return name

    def str_replace(self, c: Any) -> str:
        def edit(text: str) -> tuple[str, str]:
            count = text.count(c.old_str)
            if count == 0:
                raise ToolError(f"No replacement was performed, old_str `{c.old_str}` did not appear verbatim in {c.path}.")
            if count > 1:
                lines, at = [], text.find(c.old_str)
                while at >= 0:
                    lines.append(str(text[:at].count("\n") + 1))
                    at = text.find(c.old_str, at + 1)
                raise ToolError(
                    f"No replacement was performed. Multiple occurrences of old_str `{c.old_str}` in lines: {', '.join(lines)}. Please ensure it is unique"
                )
            line = text[: text.find(c.old_str)].count("\n")
            new = text.replace(c.old_str, c.new_str)
            all = new.split("\n")
            snippet = [f"{n + 1:{_WIDTH}}\t{all[n]}" for n in range(max(0, line - 2), min(len(all), line + 3))]
            return new, "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n" + "\n".join(snippet)

        return str(self.change(self._file(c.path), edit))

    def insert(self, c: Any) -> str:
        def edit(text: str) -> tuple[str, str]:
            lines = text.split("\n")
            if lines[-1] == "":
                lines.pop()
            if c.insert_line < 0 or c.insert_line > len(lines):
                raise ToolError(f"Invalid `insert_line` parameter: {c.insert_line}. It should be within the range [0, {len(lines)}].")
            lines.insert(c.insert_line, c.insert_text.rstrip("\n"))
            new = "\n".join(lines)
            return new if new.endswith("\n") else new + "\n", f"The file {c.path} has been edited."

        return str(self.change(self._file(c.path), edit))

    def delete(self, c: Any) -> str:
        name = self.resolve(c.path)
        if name == _ROOT:
            raise ToolError("Cannot delete the /memories directory itself")
        gone = [name] if self.read(name) is not None else [*self.below(name), *([name + "/"] if self.scope.find(name + "/") else [])]
        if not gone:
            raise ToolError(f"The path {c.path} does not exist")
        self.scope.delete(*gone)
        return f"Successfully deleted {c.path}"

    def rename(self, c: Any) -> str:
        old, new = self.resolve(c.old_path), self.resolve(c.new_path)
        if old == _ROOT:
            raise ToolError("Cannot rename the /memories directory itself")
        if self.is_dir(new) or self.read(new) is not None:
            raise ToolError(f"The destination {c.new_path} already exists")
        text = self.read(old)
        moved = {old: self.page(new, text)} if text is not None else {}
        if text is None and self.is_dir(old):
            for id in [*self.below(old), old + "/"]:
                to = new + id[len(old) :]
                moved[id] = {"id": to, "text": "[folder]", "kind": "scratch"} if id.endswith("/") else self.page(to, self.read(id) or "")
        if not moved:
            raise ToolError(f"The path {c.old_path} does not exist")
        with self.scope.transaction() as tx:
            for page in (*self.parents(new), *moved.values()):
                tx.put(**page)
            tx.delete(*(id for id in moved if self.scope.find(id) is not None))
            tx.commit(1.0, "memory tool")
        return f"Successfully renamed {c.old_path} to {c.new_path}"

    def clear(self) -> str:
        gone = self.below(_ROOT)
        if gone:
            self.scope.delete(*gone)
        return "All memory cleared"


def _size(n: int) -> str:
    """A size as the memory tool of the SDK writes it."""
    unit = min((n.bit_length() - 1) // 10, 3) if n else 0
    size = n / 1024**unit
    return f"{int(size)}{'BKMG'[unit]}" if size == int(size) else f"{size:.1f}{'BKMG'[unit]}"


class CtxpageMemoryTool(BetaAbstractMemoryTool):
    """The memory tool, for a client of threads."""

    def __init__(self, scope: Scope, **options: Any) -> None:
        super().__init__(**options)
        self.files = Files(scope)

    def view(self, command: Any) -> str:
        return self.files.view(command)

    def create(self, command: Any) -> str:
        return self.files.create(command)

    def str_replace(self, command: Any) -> str:
        return self.files.str_replace(command)

    def insert(self, command: Any) -> str:
        return self.files.insert(command)

    def delete(self, command: Any) -> str:
        return self.files.delete(command)

    def rename(self, command: Any) -> str:
        return self.files.rename(command)

    def clear_all_memory(self) -> str:
        return self.files.clear()


class CtxpageAsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool, for a client of asyncio. The scope is one of ctxpage.open."""

    def __init__(self, scope: Scope, **options: Any) -> None:
        super().__init__(**options)
        self.files = Files(scope)

    async def view(self, command: Any) -> str:
        return await asyncio.to_thread(self.files.view, command)

    async def create(self, command: Any) -> str:
        return await asyncio.to_thread(self.files.create, command)

    async def str_replace(self, command: Any) -> str:
        return await asyncio.to_thread(self.files.str_replace, command)

    async def insert(self, command: Any) -> str:
        return await asyncio.to_thread(self.files.insert, command)

    async def delete(self, command: Any) -> str:
        return await asyncio.to_thread(self.files.delete, command)

    async def rename(self, command: Any) -> str:
        return await asyncio.to_thread(self.files.rename, command)

    async def clear_all_memory(self) -> str:
        return await asyncio.to_thread(self.files.clear)
