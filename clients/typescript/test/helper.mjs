// What the tests share.
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Makes a directory for one test. When the test ends, it ends the servers of the directory's databases and removes it. */
export function workplace(t) {
  const dir = mkdtempSync(join(tmpdir(), 'ctxpage-test-'));
  t.after(async () => {
    for (const pid of serversOf(dir)) await ended(pid, 'SIGTERM');
    rmSync(dir, { recursive: true, force: true });
  });
  return dir;
}

/** Returns the processes that serve databases below a directory. */
export function serversOf(dir) {
  const pids = [];
  for (const name of readdirSync('/proc').filter((n) => /^\d+$/.test(n))) {
    try {
      const words = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0');
      if (words[1] === 'serve' && words[2]?.startsWith(dir) && !/^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${name}/stat`, 'utf8'))) pids.push(Number(name));
    } catch { /* it ended meanwhile */ }
  }
  return pids;
}

/** Sends a signal to a process that this test started, and waits until it is gone. */
export async function ended(pid, signal) {
  try {
    process.kill(pid, signal);
    for (;;) {
      process.kill(pid, 0);
      if (/^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))) return;
      await new Promise((done) => setTimeout(done, 2));
    }
  } catch { /* gone */ }
}

/** The descriptors of this process that stay open: sockets, pipes and files. */
export function descriptors() {
  return readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return /socket|pipe|\.ctx/.test(readlinkSync(`/proc/self/fd/${fd}`));
    } catch {
      return false; // the descriptor of this listing
    }
  }).length;
}

/** Runs a program of this folder, and returns what it printed. */
export async function run(file, ...args) {
  const child = spawn(process.execPath, [new URL(file, import.meta.url).pathname, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  let out = '';
  child.stdout.setEncoding('utf8').on('data', (part) => (out += part));
  const code = await new Promise((done) => child.once('close', done));
  if (code !== 0) throw new Error(`${file} ended with ${code}: ${out}`);
  return out;
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

export async function collect(all) {
  const out = [];
  for await (const one of all) out.push(one);
  return out;
}
