// What the tests of the adapters share.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { open } from 'ctxpage';

/** Opens a database, and returns it with what ends its server and removes its files. */
export async function opened() {
  const dir = mkdtempSync(join(tmpdir(), 'ctxpage-test-'));
  const db = await open(join(dir, 'agent.ctx'), { idle: '30s' });
  const close = async () => {
    const { pid } = await db.status();
    await db.operator('test').stop();
    await db.close();
    while (lives(pid)) await new Promise((done) => setTimeout(done, 5)); // it still writes its files
    rmSync(dir, { recursive: true, force: true });
  };
  return { db, close };
}

function lives(pid) {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** Opens a database for one test. */
export async function database(t) {
  const { db, close } = await opened();
  t.after(close);
  return db;
}

/** A stream of numbers in [0, 1) that a seed decides (mulberry32). */
export function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
