"""Owners that are killed, many processes, and what is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

from conftest import alive, owner

import ctxpage

TIMES = int(os.environ.get("CTXPAGE_KILLS", "200"))


def test_killed(path: str) -> None:
    """The server is killed with -9 while four threads write: every acknowledged write is there, once."""
    rng = random.Random(11)
    acknowledged: list[list[str]] = [[] for _ in range(4)]
    turns: list[list[str]] = [[] for _ in range(4)]
    failed: list[BaseException] = []
    stop = threading.Event()
    kills = 0
    with ctxpage.open(path) as db:
        memory = db.scope("acme")

        def write(n: int) -> None:
            chat = memory.session(f"chat-{n}")
            i = 0
            try:
                while not stop.is_set():
                    memory.put(f"{n}/{i:06}", f"text {n} {i}")
                    acknowledged[n].append(f"{n}/{i:06}")
                    chat.user(f"turn {n} {i}")
                    turns[n].append(f"turn {n} {i}")
                    i += 1
            except BaseException as e:
                failed.append(e)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        dead = 0
        while kills < TIMES and not failed:
            pid = owner(path)
            if not pid or pid == dead or not alive(pid):
                stop.wait(0.002)
                continue
            stop.wait(rng.random() * 0.3)  # somewhere in the middle of its work
            os.kill(pid, signal.SIGKILL)
            kills, dead = kills + 1, pid
        stop.set()
        for t in threads:
            t.join()
        assert not failed, failed[0]
        assert kills == TIMES and sum(map(len, acknowledged)) > kills
        stored = {p["id"]: p for p in memory.list() if "/" in p["id"]}
        for n in range(4):
            assert [i for i in acknowledged[n] if i not in stored] == [], "lost"
            said = [p.get("text") for p in memory.session(f"chat-{n}").history()]
            assert said == turns[n], "turns are lost, twice, or out of order"
        assert {p["version"] for p in stored.values()} == {1}, "twice"
        print(f"{kills} kills, {sum(map(len, acknowledged))} pages and {sum(map(len, turns))} turns acknowledged")


def test_killed_asyncio(path: str) -> None:
    async def main() -> None:
        rng = random.Random(3)
        async with await ctxpage.aopen(path) as db:
            memory = db.scope("acme")
            done: list[str] = []
            stop = False

            async def write(n: int) -> None:
                i = 0
                while not stop:
                    await memory.put(f"{n}/{i}", f"text {i}")
                    done.append(f"{n}/{i}")
                    i += 1

            tasks = [asyncio.ensure_future(write(n)) for n in range(4)]
            dead = kills = 0
            while kills < 20:
                pid = owner(path)
                if not pid or pid == dead or not alive(pid):
                    await asyncio.sleep(0.002)
                    continue
                await asyncio.sleep(rng.random() * 0.3)
                os.kill(pid, signal.SIGKILL)
                kills, dead = kills + 1, pid
            stop = True
            await asyncio.gather(*tasks)
            stored = {p["id"]: p["version"] async for p in memory.list()}
            assert [i for i in done if stored.get(i) != 1] == [] and len(done) > 20

    asyncio.run(main())


def test_sixteen_processes(path: str) -> None:
    """Sixteen processes open a database that nobody serves, at once, and write to it."""
    program = f"""
import ctxpage, sys
n = sys.argv[1]
with ctxpage.open({path!r}) as db:
    memory = db.scope("acme")
    for i in range(20):
        memory.put(f"{{n}}-{{i}}", f"text {{n}} {{i}}")
        memory.session("shared").user(f"turn {{n}} {{i}}")
    print(db.status()["pid"])
"""
    children = [subprocess.Popen([sys.executable, "-c", program, str(n)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for n in range(16)]
    out = [c.communicate() for c in children]
    assert [c.returncode for c in children] == [0] * 16, [e for _, e in out if e][:1]
    assert len({o for o, _ in out}) == 1, "one server"
    with ctxpage.open(path) as db:
        assert len(list(db.scope("acme").list(filter={"kinds": ["fact"]}))) == 320
        said = [p.get("text") for p in db.scope("acme").session("shared").history()]
        assert len(said) == len(set(said)) == 320


def _children() -> set[int]:
    """Servers that this process started and that are there, zombies included."""
    out = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        out |= set(map(int, (task / "children").read_text().split()))
    return out


def test_thousand_opens(path: str) -> None:
    """Opening leaks no descriptor, no process and no thread."""
    ctxpage.open(path).close()
    before = (len(os.listdir("/proc/self/fd")), threading.active_count(), _children())
    for _ in range(1000):
        with ctxpage.open(path) as db:
            db.scope("acme").find("a")
    gc.collect()
    assert (len(os.listdir("/proc/self/fd")), threading.active_count(), _children()) == before


def test_servers_end(tmp_path: Path) -> None:
    """A server that has nothing to do ends, and leaves no zombie."""
    pids = set()
    for i in range(3):
        path = str(tmp_path / f"{i}.ctx")
        with ctxpage.open(path, idle="200ms") as db:
            pids.add(db.status()["pid"])
    waiting = threading.Event()
    for _ in range(600):
        if not pids & _children():
            break
        waiting.wait(0.05)
    assert not pids & _children() and not any(map(alive, pids))
