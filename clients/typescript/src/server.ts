import { spawn } from 'node:child_process';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { connect as connectTo } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, delimiter, dirname, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { errorOf } from './errors.js';
import type { Address } from './transport.js';

/** How `open` starts a server, if none answers. */
export interface StartOptions {
  /** The program to run: by default CTXPAGE_BINARY, then the one of the package for this platform, then dbctl on PATH. */
  readonly binary?: string | undefined;
  /** The server ends after this time without a call, such as 60s or 10m. */
  readonly idle?: string | undefined;
  /** More arguments of `dbctl serve`, such as --model. They apply only if this call starts the server. */
  readonly args?: readonly string[] | undefined;
  /** How to reach the server: at a unix socket, which is the default, or at a loopback address, which is the default on Windows. */
  readonly transport?: 'unix' | 'tcp' | undefined;
  /** Seconds to wait for the server, default 30. It may have to recover a large file first. */
  readonly startTimeout?: number | undefined;
}

/** Returns the path of dbctl. */
export function findBinary(given?: string): string {
  const chosen = given ?? process.env['CTXPAGE_BINARY'];
  if (chosen !== undefined && chosen !== '') {
    if (!existsSync(chosen)) throw errorOf('no_binary', `there is no program ${chosen}`, { hint: 'set CTXPAGE_BINARY to the path of dbctl' });
    return chosen;
  }
  const name = process.platform === 'win32' ? 'dbctl.exe' : 'dbctl';
  const platform = `@ctxpage/${process.platform}-${process.arch}`;
  try {
    return createRequire(import.meta.url).resolve(`${platform}/bin/${name}`);
  } catch {
    for (const dir of (process.env['PATH'] ?? '').split(delimiter)) {
      if (dir !== '' && existsSync(join(dir, name))) return join(dir, name);
    }
  }
  throw errorOf('no_binary', `neither the package ${platform} nor ${name} on PATH is there`, { hint: `install ${platform}, or set CTXPAGE_BINARY` });
}

/** Returns the path of a database with its links resolved, also if the file is not there yet. */
export function resolvePath(path: string): string {
  const full = resolve(path);
  try {
    return realpathSync(full);
  } catch {
    try {
      return join(realpathSync(dirname(full)), basename(full));
    } catch (failure) {
      throw errorOf('no_database', `there is no directory for ${full}`, { hint: 'make it first', cause: failure });
    }
  }
}

/** Finds the server of a database, and starts one if none answers. */
export async function locate(path: string, options: StartOptions): Promise<Address> {
  const until = Date.now() + (options.startTimeout ?? 30) * 1000;
  const place = placeOf(path, options);
  for (let pause = 5; ; pause = Math.min(pause * 2, 200)) {
    const known = announced(place);
    if (known !== undefined && (await accepts(known))) return known;
    const started = await start(path, options, place, until);
    if (started.where !== undefined) return addressOf(started.where, place);
    // Another process may have started one at the same moment: then the lock file names its socket soon.
    if (!started.again || Date.now() + pause > until) throw errorOf('not_started', `dbctl serve ${path} did not start: ${started.said}`, { hint: 'run it in a terminal to see why' });
    await sleep(pause);
  }
}

/** Where a server announces itself, how it is told to, and the file of its tokens. */
interface Place {
  readonly lock: string;
  readonly args: readonly string[];
  readonly tokens?: string | undefined;
}

function placeOf(path: string, options: StartOptions): Place {
  if ((options.transport ?? (process.platform === 'win32' ? 'tcp' : 'unix')) === 'unix') return { lock: `${path}.api.lock`, args: [] };
  return { lock: `${path}.http.lock`, args: ['--http', '127.0.0.1:0'], tokens: `${path}.http.tokens` };
}

/** Returns the first token of the highest role in a file of tokens. */
export function tokenOf(file: string): string {
  const ranks = ['agent', 'host', 'operator'];
  let best: [number, string] | undefined;
  try {
    for (const line of readFileSync(file, 'utf8').split('\n')) {
      const [role = '', token] = line.trim().split(/\s+/);
      const rank = ranks.indexOf(role);
      if (token !== undefined && rank > (best?.[0] ?? -1)) best = [rank, token];
    }
  } catch (failure) {
    throw errorOf('usage', `the file of tokens ${file}: ${failure instanceof Error ? failure.message : String(failure)}`, { cause: failure });
  }
  if (best === undefined) throw errorOf('usage', `the file of tokens ${file}: expected a line with a role and a token`);
  return best[1];
}

/** Returns the address that the lock file of a server names, if the process that wrote it lives. */
function announced(place: Place): Address | undefined {
  try {
    const lock: unknown = JSON.parse(readFileSync(place.lock, 'utf8'));
    if (typeof lock !== 'object' || lock === null || !('socket' in lock) || !('pid' in lock) || typeof lock.socket !== 'string' || typeof lock.pid !== 'number') return undefined;
    // The port of a server that ended may be another program's, which must not get the token.
    if (place.tokens !== undefined) process.kill(lock.pid, 0);
    return addressOf(lock.socket, place);
  } catch {
    return undefined; // no server was started yet, or it writes the file at this moment, or it has ended
  }
}

function addressOf(where: string, place: Place): Address {
  return place.tokens === undefined ? { socket: where } : { url: where, token: tokenOf(place.tokens) };
}

/** Reports whether a server accepts connections at a socket. */
async function accepts(address: Address): Promise<boolean> {
  return await new Promise((done) => {
    const url = address.url === undefined ? undefined : new URL(address.url);
    const c = url === undefined ? connectTo(address.socket ?? '') : connectTo(Number(url.port), url.hostname);
    c.once('connect', () => (c.destroy(), done(true)));
    c.once('error', () => (c.destroy(), done(false)));
  });
}

/** How dbctl ends if another process serves the database. */
const exitLocked = 5;

interface Started {
  /** The socket or the URL of the server. */
  readonly where?: string | undefined;
  /** It may succeed soon: another process serves the database, or the new server was killed. */
  readonly again: boolean;
  readonly said: string;
}

/**
 * Starts `dbctl serve` in a session of its own, so that it outlives this process, and reads the name of its socket from its first line.
 * Its standard error is a file, which is removed at once: a pipe that nobody reads any more would end the server.
 */
async function start(path: string, options: StartOptions, place: Place, until: number): Promise<Started> {
  const binary = findBinary(options.binary);
  const dir = mkdtempSync(join(tmpdir(), 'ctxpage-'));
  const log = join(dir, 'stderr');
  const errors = openSync(log, 'w', 0o600);
  try {
    const child = spawn(binary, ['serve', path, ...place.args, '--idle', options.idle ?? '60s', '--json', ...(options.args ?? [])], { detached: true, windowsHide: true, stdio: ['ignore', 'pipe', errors] });
    const out = child.stdout;
    if (out === null) throw errorOf('not_started', `${binary}: its output cannot be read`);
    return await new Promise<Started>((done, fail) => {
      let text = '';
      const timer = setTimeout(() => {
        child.kill();
        fail(errorOf('not_started', `dbctl serve ${path} printed no socket in time: ${said(log, text)}`, { hint: 'give a longer startTimeout' }));
      }, Math.max(until - Date.now(), 1));
      const settle = (): void => {
        clearTimeout(timer);
        out.destroy();
        child.unref();
      };
      child.once('error', (failure) => {
        settle();
        fail(errorOf('no_binary', `cannot run ${binary}: ${failure.message}`, { cause: failure }));
      });
      child.once('close', (code, signal) => {
        settle();
        done({ again: code === exitLocked || signal !== null, said: signal === null ? said(log, text) : `it was ended by ${signal}` });
      });
      out.setEncoding('utf8').on('data', (part: string) => {
        text += part;
        if (!text.includes('\n')) return;
        child.removeAllListeners('close');
        settle();
        const where = whereOf(text.slice(0, text.indexOf('\n')));
        if (where === undefined) fail(errorOf('not_started', `dbctl serve ${path}: got ${JSON.stringify(text.slice(0, 80))}, expected its socket`));
        else done({ where, again: false, said: '' });
      });
    });
  } finally {
    closeSync(errors);
    try {
      rmSync(dir, { recursive: true, force: true });
    } catch {
      // On Windows the server has the file open: it stays in the folder for temporary files.
    }
  }
}

/** Returns the socket or the URL that the first line of a server names. */
function whereOf(line: string): string | undefined {
  try {
    const first: unknown = JSON.parse(line);
    if (typeof first !== 'object' || first === null) return undefined;
    if ('url' in first && typeof first.url === 'string') return first.url;
    return 'socket' in first && typeof first.socket === 'string' ? first.socket : undefined;
  } catch {
    return undefined;
  }
}

/** Returns what a server said before it ended. */
function said(log: string, text: string): string {
  try {
    return (readFileSync(log, 'utf8').trim() || text.trim() || 'it said nothing').slice(0, 2000);
  } catch {
    return text;
  }
}
