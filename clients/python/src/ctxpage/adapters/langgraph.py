"""LangGraph: a checkpointer and a store.

    from ctxpage.adapters.langgraph import CtxpageSaver, CtxpageStore

    with ctxpage.open("agent.ctx") as db:
        graph = builder.compile(checkpointer=CtxpageSaver(db.scope("acme/checkpoints")), store=CtxpageStore(db.scope("acme/store")))

Checkpoints are data, of kind tool: no context shows them unless asked for. Give them a scope of their own.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from .._sync import Scope
from ._langgraph_store import CtxpageAsyncStore, CtxpageStore
from ._pages import Pages, segment

__all__ = ["CtxpageAsyncStore", "CtxpageSaver", "CtxpageStore"]


class CtxpageSaver(BaseCheckpointSaver[str]):
    """Checkpoints in a scope: one page for each checkpoint, channel version and pending write."""

    def __init__(self, scope: Scope, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._checkpoints = Pages(scope, "checkpoint/")
        self._blobs = Pages(scope, "channel/")
        self._writes = Pages(scope, "write/")

    def _pack(self, value: Any) -> list[str]:
        kind, data = self.serde.dumps_typed(value)
        return [kind, base64.b64encode(data).decode("ascii")]

    def _unpack(self, packed: list[str]) -> Any:
        return self.serde.loads_typed((packed[0], base64.b64decode(packed[1])))

    @staticmethod
    def _under(thread: str, ns: str | None = None) -> str:
        return segment(thread) + "/" + ("" if ns is None else segment(ns) + "/")

    def _tuple(self, doc: dict[str, Any], config: RunnableConfig | None = None) -> CheckpointTuple:
        thread, ns, id = doc["thread"], doc["ns"], doc["id"]
        checkpoint: Checkpoint = self._unpack(doc["checkpoint"])
        values: dict[str, Any] = {}
        for channel, version in checkpoint["channel_versions"].items():
            blob = self._blobs.get(self._blob(thread, ns, channel, version))
            if blob is not None and blob[0] != "empty":
                values[channel] = self._unpack(blob)
        checkpoint["channel_values"] = values
        writes = [w for _, w in self._writes.values(self._under(thread, ns) + segment(id) + "/")]
        writes.sort(key=lambda w: (w["path"], w["task"], w["index"]))
        parent = doc.get("parent")
        return CheckpointTuple(
            config=config or _config(thread, ns, id),
            checkpoint=checkpoint,
            metadata=self._unpack(doc["metadata"]),
            parent_config=_config(thread, ns, parent) if parent else None,
            pending_writes=[(w["task"], w["channel"], self._unpack(w["value"])) for w in writes],
        )

    def _blob(self, thread: str, ns: str, channel: str, version: Any) -> str:
        return f"{self._under(thread, ns)}{segment(channel)}/{segment(str(version))}"

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, ns = str(config["configurable"]["thread_id"]), config["configurable"].get("checkpoint_ns", "")
        under = self._under(thread, ns)
        id = get_checkpoint_id(config)
        if not id:
            ids = self._checkpoints.ids(under)
            if not ids:
                return None
            doc = self._checkpoints.get(ids[-1])
            return None if doc is None else self._tuple(doc)
        doc = self._checkpoints.get(under + segment(id))
        return None if doc is None else self._tuple(doc, config)

    def list(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None, before: RunnableConfig | None = None, limit: int | None = None
    ) -> Iterator[CheckpointTuple]:
        under, wanted = "", None
        if config:
            under = self._under(str(config["configurable"]["thread_id"]), config["configurable"].get("checkpoint_ns"))
            wanted = get_checkpoint_id(config)
        last = get_checkpoint_id(before) if before else None
        ids = self._checkpoints.ids(under)
        # The newest first.
        for id in sorted(ids, key=lambda i: i.rpartition("/")[2], reverse=True):
            if limit is not None and limit <= 0:
                return
            doc = self._checkpoints.get(id)
            if doc is None or (wanted and doc["id"] != wanted) or (last and doc["id"] >= last):
                continue
            if filter:
                metadata = self._unpack(doc["metadata"])
                if any(metadata.get(k) != v for k, v in filter.items()):
                    continue
            if limit is not None:
                limit -= 1
            yield self._tuple(doc)

    def put(self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions) -> RunnableConfig:
        thread, ns = str(config["configurable"]["thread_id"]), config["configurable"].get("checkpoint_ns", "")
        rest: Any = checkpoint.copy()
        values: dict[str, Any] = rest.pop("channel_values", {})
        writes = [
            self._blobs.write(self._blob(thread, ns, channel, version), self._pack(values[channel]) if channel in values else ["empty", ""])
            for channel, version in new_versions.items()
        ]
        doc = {
            "thread": thread, "ns": ns, "id": checkpoint["id"], "parent": config["configurable"].get("checkpoint_id"),
            "checkpoint": self._pack(rest), "metadata": self._pack(get_checkpoint_metadata(config, metadata)),
        }  # fmt: skip
        writes.append(self._checkpoints.write(self._under(thread, ns) + segment(checkpoint["id"]), doc))
        self._checkpoints.put(*writes)
        return _config(thread, ns, checkpoint["id"])

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        thread, ns, id = str(config["configurable"]["thread_id"]), config["configurable"].get("checkpoint_ns", ""), config["configurable"]["checkpoint_id"]
        under = f"{self._under(thread, ns)}{segment(id)}/{segment(task_id)}/"
        there = set(self._writes.ids(under))
        new: dict[str, Any] = {}
        for n, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, n)
            name = f"{under}{index}"
            if index >= 0 and (name in there or name in new):
                continue
            new[name] = {"task": task_id, "index": index, "path": task_path, "channel": channel, "value": self._pack(value)}
        self._writes.put(*(self._writes.write(name, doc) for name, doc in new.items()))

    def delete_thread(self, thread_id: str) -> None:
        for pages in (self._checkpoints, self._blobs, self._writes):
            pages.delete(pages.ids(self._under(str(thread_id))))

    def get_next_version(self, current: Any, channel: None) -> str:
        """Versions are numbers in order, as text."""
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}"

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None, before: RunnableConfig | None = None, limit: int | None = None
    ) -> AsyncIterator[CheckpointTuple]:
        found = await asyncio.to_thread(lambda: [*self.list(config, filter=filter, before=before, limit=limit)])
        for one in found:
            yield one

    async def aput(self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions) -> RunnableConfig:
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)


def _config(thread: str, ns: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id}}
