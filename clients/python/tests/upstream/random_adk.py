"""ADK's session and memory services: random operations beside InMemorySessionService and InMemoryMemoryService."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import google.adk.memory.in_memory_memory_service as upstream_memory
from beside import check, same
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.memory import InMemoryMemoryService
from google.adk.sessions import InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai.types import Blob, Content, FunctionCall, FunctionResponse, Part

import ctxpage
from ctxpage.adapters.adk import CtxpageMemoryService, CtxpageSessionService

upstream_memory._MAX_SEARCH_RESULTS = 1000  # which ten of many are best is a matter of the engine


class Broken(CtxpageSessionService):
    """Forgets the states of the user and the app."""

    async def append_event(self, session: Session, event: Event) -> Event:
        if not event.partial:
            event.actions.state_delta = {k: v for k, v in event.actions.state_delta.items() if not k.startswith("user:")}
        return await super().append_event(session, event)


WORDS = ["".join(random.Random(n).choice("bdfgklmnprst") + random.Random(-n).choice("aeiou") for _ in range(1)) + f"{n:03}" for n in range(120)]


def event(rng: random.Random, n: int, at: float) -> Event:
    text = " ".join(rng.sample(WORDS, 3)) + rng.choice(["", " größe 💥", " </page> ‮evil"])
    part = rng.choice(
        [
            Part(text=text), Part(text=text), Part(function_call=FunctionCall(id=f"c{n}", name="look", args={"n": n, "t": text})),
            Part(function_response=FunctionResponse(id=f"c{n}", name="look", response={"found": [text, None]})), Part(inline_data=Blob(data=bytes([0, 255, n % 256]), mime_type="image/png")),
        ]
    )  # fmt: skip
    keys = ["mood", "user:name", "app:limit", "temp:draft", "user:größe"]
    delta = {rng.choice(keys): rng.choice([n, None, "text", [1, {"a": n}]]) for _ in range(rng.randrange(3))}
    who = rng.choice(["user", "desk"])
    content = rng.choice([Content(role="user" if who == "user" else "model", parts=[part]), Content(role="model", parts=[part]), None])
    more: dict[str, Any] = {"long_running_tool_ids": {f"c{n}"}} if rng.random() < 0.1 else {}
    return Event(id=f"e{n}", invocation_id=f"i{n}", author=who, timestamp=at, content=content, partial=rng.random() < 0.05 or None, actions=EventActions(state_delta=delta), **more)


def plain(session: Session | None) -> Any:
    if session is None:
        return None
    doc = session.model_dump(mode="json")
    for e in doc["events"]:
        e["long_running_tool_ids"] = sorted(e["long_running_tool_ids"] or [])
    return doc


async def run(scope: ctxpage.Scope, rng: random.Random, operations: int, broken: bool) -> str:
    ours, theirs = (Broken if broken else CtxpageSessionService)(scope), InMemorySessionService()
    memory, their_memory = CtxpageMemoryService(scope, max_results=1000), InMemoryMemoryService()
    calls: Counter[str] = Counter()
    clock, generation = 1_700_000_000.0, 0
    held: dict[tuple[str, str, str], tuple[Session, Session]] = {}
    added: list[tuple[str, str, str]] = []
    last: Event | None = None

    async def both(name: str, *stores: Any, **how: Any) -> tuple[Any, Any]:
        out: list[Any] = []
        for store in stores:
            try:
                out.append(await getattr(store, name)(**how))
            except (AlreadyExistsError, SessionNotFoundError) as e:
                out.append(e)
        if isinstance(out[0], Exception) or isinstance(out[1], Exception):
            same(f"{name} {how}", type(out[0]), type(out[1]))
        calls[name] += 1
        return out[0], out[1]

    for n in range(operations):
        if n % 400 == 0:
            generation, held, added = generation + 1, {}, []
        clock += rng.randrange(1, 9)
        upstream_memory_time = clock
        app, user, id = f"desk {generation}", rng.choice(["ann", "bob/eve", "größe"]), rng.choice(["s1", "s/2", " s3 ", "é 4"])
        key = (app, user, id)
        who: dict[str, Any] = {"app_name": app, "user_id": user}
        match rng.choice(["create", "get", "get", "list", "delete", "state", "append", "append", "append", "append", "remember", "add", "search", "search", "forget"]):
            case "create":
                a, b = await both("create_session", ours, theirs, **who, session_id=id, state={"mood": n, "user:name": user, "app:limit": n, "temp:x": 1} if rng.random() < 0.5 else None)
                if isinstance(a, Session):
                    a.last_update_time = b.last_update_time = upstream_memory_time
                    same(f"create {key}", plain(a), plain(b))
                    held[key] = a, b
            case "get":
                config = GetSessionConfig(num_recent_events=rng.choice([None, 0, 2, 30]), after_timestamp=rng.choice([None, clock - 60])) if rng.random() < 0.5 else None
                a, b = await both("get_session", ours, theirs, **who, session_id=id, config=config)
                if a and b and not b.events:
                    a.last_update_time = b.last_update_time  # of a session that was only made, each has its own time
                same(f"get {key} {config}", plain(a), plain(b))
                if a and not config:
                    held[key] = a, b
            case "list":
                a, b = await both("list_sessions", ours, theirs, app_name=app, user_id=rng.choice([None, user]))
                strip = lambda r: sorted((s.user_id, s.id, sorted(s.state.items(), key=str), s.events) for s in r.sessions)  # noqa: E731
                same(f"list {who}", strip(a), strip(b))
            case "delete" if rng.random() < 0.4:
                await both("delete_session", ours, theirs, **who, session_id=id)
            case "state":
                a, b = await both("get_user_state", ours, theirs, **who)
                same(f"state {who}", a, b)
            case "append" if key in held:
                e = last if last and rng.random() < 0.05 else event(rng, n, clock)
                mine, other = held[key]
                a, b = await both_append(ours, theirs, mine, other, e)
                calls["append_event"] += 1
                same(f"append {key} {e}", a, b)
                same(f"the caller's session {key}", plain(mine), plain(other))
                last = e
            case "remember" if key in held and held[key][1].events:
                for service, session in ((memory, held[key][0]), (their_memory, held[key][1])):
                    await service.add_session_to_memory(session)
                calls["add_session_to_memory"] += 1
                added += [(app, user, e.id) for e in held[key][1].events]
            case "add":
                events = [event(rng, n * 10 + i, clock) for i in range(3)]
                for e in events:
                    e.partial = None
                how: dict[str, Any] = {**who, "session_id": rng.choice([None, f"own {n % 3}"])}
                await both("add_events_to_memory", memory, their_memory, **how, events=[*events, *([last] if last and how["session_id"] else [])])
                added += [(app, user, e.id) for e in events]
            case "search":
                query = rng.choice([rng.choice(WORDS), " ".join(rng.sample(WORDS, 2)), "", "größe"])
                a, b = await both("search_memory", memory, their_memory, **who, query=query)
                # Ours also finds words that are alike: it must find what upstream's finds, and nothing that is not in upstream's memory.
                mine_found, other_found = ({m.model_dump_json() for m in r.memories} for r in (a, b))
                same(f"search {who} {query!r} misses", other_found - mine_found, set())
                there = {e.id for events in their_memory._session_events.get((app, user), {}).values() for e in events}
                same(f"search {who} {query!r} finds too much", {m.id for m in a.memories} - there, set())
                calls["found"] += len(other_found)
            case "forget" if added:
                app, user, gone = rng.choice(added)
                await both("delete_memory", memory, their_memory, app_name=app, user_id=user, memory_id=gone)
    return ", ".join(f"{count} {name}" for name, count in sorted(calls.items()))


async def both_append(ours: Any, theirs: Any, mine: Session, other: Session, e: Event) -> tuple[Any, Any]:
    out: list[Any] = []
    for service, session in ((ours, mine), (theirs, other)):
        mine_event = e.model_copy(deep=True)
        try:
            out.append((await service.append_event(session, mine_event)).model_dump(mode="json", exclude={"long_running_tool_ids"}))
        except SessionNotFoundError as failure:
            out.append(type(failure))
    return out[0], out[1]


asyncio.run(check("google-adk", run))
