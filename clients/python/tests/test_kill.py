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

import pytest
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
    done = threading.Semaphore(0)
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
                    done.release()
                    chat.user(f"turn {n} {i}")
                    turns[n].append(f"turn {n} {i}")
                    done.release()
                    i += 1
            except BaseException as e:
                failed.append(e)
                done.release(1_000_000)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        dead = 0
        while kills < TIMES and not failed:
            for _ in range(rng.randrange(1, 25)):  # somewhere in the middle of its work
                done.acquire()
            pid = owner(path)
            if pid and pid != dead and alive(pid):
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
            more = asyncio.Semaphore(0)
            stop = False

            async def write(n: int) -> None:
                i = 0
                while not stop:
                    await memory.put(f"{n}/{i}", f"text {i}")
                    done.append(f"{n}/{i}")
                    more.release()
                    i += 1

            tasks = [asyncio.ensure_future(write(n)) for n in range(4)]
            dead = kills = 0
            while kills < 20:
                for _ in range(rng.randrange(2, 25)):
                    await more.acquire()
                pid = owner(path)
                if pid and pid != dead and alive(pid):
                    os.kill(pid, signal.SIGKILL)
                    kills, dead = kills + 1, pid
            stop = True
            await asyncio.gather(*tasks)
            stored = {p["id"]: p["version"] async for p in memory.list()}
            assert [i for i in done if stored.get(i) != 1] == [] and len(done) > 20

    asyncio.run(main())


def test_killed_transactions(path: str) -> None:
    """Transactions that read what they write, of two threads, while the server is killed: each is committed once, or is lost as a whole."""
    from ctxpage.adapters._pages import Pages, transact

    rng = random.Random(5)
    failed: list[BaseException] = []
    with ctxpage.open(path) as db:
        scope = db.scope("acme")
        pages = Pages(scope, "count/")
        done = threading.Semaphore(0)

        def count(n: int) -> None:
            def add(tx: ctxpage.Transaction) -> None:
                number = (pages.read(tx, "n") or 0) + 1
                pages.add(tx, "n", number)
                pages.add(tx, f"by/{number:05}", [n, i])

            try:
                for i in range(60):
                    transact(scope, "test", add)
                    done.release()
            except BaseException as e:
                failed.append(e)
                done.release(1000)

        threads = [threading.Thread(target=count, args=(n,)) for n in range(2)]
        for t in threads:
            t.start()
        for _ in range(15):
            for _ in range(rng.randrange(3, 8)):  # somewhere in the middle of the next one
                done.acquire()
            pid = owner(path)
            if pid:
                os.kill(pid, signal.SIGKILL)
        for t in threads:
            t.join()
        assert not failed, failed[0]
        assert pages.get("n") == 120
        assert sorted(v for _, v in pages.values("by/")) == [[n, i] for n in range(2) for i in range(60)], "lost, or twice"


def test_lost_transaction(path: str) -> None:
    """A transaction that has read ends with its server, and says so. Its end, or its rollback, raises nothing else."""
    with ctxpage.open(path) as db:
        memory = db.scope("acme")
        memory.put("a", "one")
        with memory.transaction() as tx:
            tx.get("a")
            tx.put("b", "two")
            os.kill(owner(path), signal.SIGKILL)
            with pytest.raises(ctxpage.TxnDone) as lost:
                tx.commit(0.9, "checker")
            assert lost.value.code == "transaction_lost" and memory.find("b") is None
            with pytest.raises(ctxpage.TxnDone):
                tx.get("a")
        with memory.transaction() as tx:
            tx.get("a")
            os.kill(owner(path), signal.SIGKILL)
        with memory.transaction() as tx:
            tx.get("a")
            tx.delete("a")
            with pytest.raises(ctxpage.NotFound, match="a"):
                tx.get("a")


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
    gc.collect()
    descriptors, children, threads = len(os.listdir("/proc/self/fd")), _children(), set(threading.enumerate())
    for _ in range(1000):
        with ctxpage.open(path) as db:
            db.scope("acme").find("a")
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert _children() <= children and set(threading.enumerate()) <= threads  # servers of the tests before may have ended


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
