import { request, type IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { answered, CtxpageError, errorOf } from './errors.js';
import type { Calls, ErrorBody } from './schema.js';
import { Pool, type Answer } from './wire.js';

export type CallName = keyof Calls;
export type Input<N extends CallName> = Calls[N]['in'];
export type Output<N extends CallName> = Calls[N]['out'];
export type Role = 'agent' | 'host' | 'operator';

/** Who makes a call. */
export interface Caller {
  readonly scope: string;
  readonly actor?: string | undefined;
  readonly role: Role;
}

/** Options that every call takes. */
export interface CallOptions {
  /** Ends the call. A write that was under way may have happened: repeat it with the same batch. */
  readonly signal?: AbortSignal | undefined;
  /** Seconds that the server may take: 60 by default, at most 3600. */
  readonly timeout?: number | undefined;
}

/** Where a server answers: a unix socket, or a loopback address with a token. */
export interface Address {
  readonly socket?: string | undefined;
  readonly url?: string | undefined;
  readonly token?: string | undefined;
}

/** Finds the server anew. It is called when nothing answers at the last address, and may start a server. */
export type Locate = (lost: Address | undefined, signal: AbortSignal | undefined) => Promise<Address>;

const defaultTimeout = 60;
const tries = 8;
const mostBytes = 16 << 20; // of a request: what the server takes

/** Codes that say that nothing was done, and that the same call may succeed soon. */
const passing: ReadonlySet<string> = new Set(['closing', 'full', 'not_answering', 'outcome_unknown']);

/** Errors of the system that say that no server got the call. */
const unreached: ReadonlySet<string> = new Set(['ECONNREFUSED', 'ENOENT', 'ENOTSOCK', 'EHOSTUNREACH', 'EAGAIN']);

/** The connection failed. reached: the server may have got the call. */
class ConnectionFailure extends Error {
  constructor(readonly reached: boolean, cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
  }
}

/**
 * Calls the server of one database. A call whose connection is lost is made again if that changes nothing, at a server that is found
 * or started anew. It is safe to make many calls at once.
 */
export class Transport {
  #address: Address | undefined;
  #locating: Promise<Address> | undefined;
  #closed = false;
  readonly #calls = new Set<Promise<unknown>>();
  readonly #streams = new Set<() => void>();
  readonly #pool: Pool;
  readonly #locate: Locate;

  constructor(locate: Locate, connections = 32) {
    this.#locate = locate;
    this.#pool = new Pool(connections);
  }

  /** Waits for the calls under way, ends the streams, and closes the connections. Later calls fail. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const end of this.#streams) end();
    await Promise.allSettled(this.#calls);
    this.#pool.drain();
  }

  /** Makes one call and returns its answer. repeat: the call may be made again although the first one may have happened. */
  async call<N extends CallName>(caller: Caller | undefined, name: N, input: Input<N>, options: CallOptions = {}, repeat = true): Promise<Output<N>> {
    this.#open();
    const answer = this.#attempts(caller, name, input, options, repeat);
    this.#calls.add(answer);
    try {
      return await answer;
    } finally {
      this.#calls.delete(answer);
    }
  }

  #open(): void {
    if (this.#closed) throw errorOf('usage', 'this client is closed: open another');
  }

  async #attempts<N extends CallName>(caller: Caller | undefined, name: N, input: Input<N>, options: CallOptions, repeat: boolean): Promise<Output<N>> {
    const batch = batchOf(input);
    for (let attempt = 1; ; attempt++) {
      options.signal?.throwIfAborted();
      const last = attempt === tries;
      try {
        const answer = await this.#once(caller, name, input, options, repeat);
        const body: unknown = parse(answer.text);
        if (answer.status === 200) return body as Output<N>;
        const error = isError(body) ? answered(body.error, batch) : errorOf('no_answer', `${name}: got the status ${answer.status} and ${answer.text.slice(0, 80)}, expected an answer of ctxpage`);
        if (last || !passing.has(error.code) || (error.code === 'outcome_unknown' && !repeat)) throw error;
      } catch (failure) {
        if (!(failure instanceof ConnectionFailure)) throw failure;
        if (failure.reached && !repeat) {
          throw errorOf('outcome_unknown', `${name}: the connection ended before the answer: ${failure.message}`, { hint: 'read what became of it before you call again', batch, cause: failure });
        }
        if (last) throw errorOf('no_answer', `${name}: no server answers: ${failure.message}`, { batch, cause: failure });
      }
      await pause(attempt, options.signal);
    }
  }

  /** Makes one call with an answer of many lines. It ends with the server's last line, or when the loop that reads it is left. */
  async *stream<N extends CallName>(caller: Caller, name: N, input: Input<N>, options: CallOptions = {}): AsyncGenerator<Output<N>, void, undefined> {
    this.#open();
    const { response, end } = await this.#begin(caller, name, input, { ...options, timeout: options.timeout ?? 0 });
    const cut = (): void => void response.destroy();
    this.#streams.add(cut);
    try {
      let rest = '';
      for await (const part of response.setEncoding('utf8') as AsyncIterable<string>) {
        const lines = (rest + part).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) yield lineOf(line) as Output<N>;
      }
      if (rest !== '') yield lineOf(rest) as Output<N>;
    } catch (failure) {
      options.signal?.throwIfAborted();
      if (this.#closed) return;
      if (failure instanceof CtxpageError) throw failure;
      throw errorOf('no_answer', `${name}: the stream ended early: ${String(failure)}`, { hint: 'continue from the last next', cause: failure });
    } finally {
      this.#streams.delete(cut);
      end();
    }
  }

  /** Begins a stream. A server that ended before it sent anything is looked for again. */
  async #begin(caller: Caller, name: CallName, input: unknown, options: CallOptions): Promise<{ response: IncomingMessage; end: () => void }> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#send(caller, name, input, options);
      } catch (failure) {
        if (!(failure instanceof ConnectionFailure)) throw failure;
        if (attempt === tries) throw errorOf('no_answer', `${name}: no server answers: ${failure.message}`, { cause: failure });
        await pause(attempt, options.signal);
        options.signal?.throwIfAborted();
      }
    }
  }

  /** Makes a call once. One that must not be repeated gets a connection of its own. */
  async #once(caller: Caller | undefined, name: CallName, input: unknown, options: CallOptions, repeat: boolean): Promise<Answer> {
    const address = await this.#at(options.signal);
    const body = name === 'status' ? undefined : bodyOf(name, input);
    const head = headOf(name, address, headersOf(caller, address, options, body));
    const done = await this.#pool.turn(async (turn) => await abortable(turn, options.signal));
    let timer: NodeJS.Timeout | undefined;
    let aborted: (() => void) | undefined;
    try {
      options.signal?.throwIfAborted();
      const connection = this.#pool.take(address, !repeat);
      const seconds = options.timeout ?? defaultTimeout;
      // The server's own limit answers first; this one is for a server that hangs.
      if (seconds > 0) timer = setTimeout(() => connection.cut(errorOf('deadline', `${name}: no answer within ${seconds + 5} s`, { batch: batchOf(input) })), (seconds + 5) * 1000);
      if (options.signal !== undefined) {
        options.signal.addEventListener('abort', (aborted = () => connection.cut(new Error('aborted'))), { once: true });
      }
      const answer = await connection.ask(head, body);
      this.#pool.give(connection);
      return answer;
    } catch (failure) {
      throw this.#failure(failure, address, options);
    } finally {
      clearTimeout(timer);
      if (aborted !== undefined) options.signal?.removeEventListener('abort', aborted);
      done();
    }
  }

  /** Returns what a call throws whose connection failed so. */
  #failure(failure: unknown, address: Address, options: CallOptions): unknown {
    if (options.signal?.aborted === true) return abortReason(options.signal);
    if (failure instanceof CtxpageError) return failure;
    this.#lost(address);
    const code = failure instanceof Error && 'code' in failure ? String(failure.code) : '';
    return new ConnectionFailure(!unreached.has(code), failure);
  }

  /** Sends the request of a stream and returns its response, once its head is there. end releases the signal. */
  async #send(caller: Caller, name: CallName, input: unknown, options: CallOptions): Promise<{ response: IncomingMessage; end: () => void }> {
    const address = await this.#at(options.signal);
    const body = bodyOf(name, input);
    const where = address.socket === undefined ? new URL(address.url ?? '') : undefined;
    return await new Promise((resolve, reject) => {
      const req = request({
        ...(where === undefined ? { socketPath: address.socket } : { host: where.hostname.replace(/^\[|\]$/g, ''), port: where.port }),
        agent: false,
        path: `/v1/${name}`,
        method: 'POST',
        headers: headersOf(caller, address, options, body),
      });
      const aborted = (): void => void req.destroy(new Error('aborted'));
      let timer: NodeJS.Timeout | undefined;
      const end = (): void => {
        clearTimeout(timer);
        options.signal?.removeEventListener('abort', aborted);
      };
      const { timeout = 0 } = options;
      if (timeout > 0) timer = setTimeout(() => req.destroy(errorOf('deadline', `${name}: no answer within ${timeout + 5} s`)), (timeout + 5) * 1000);
      options.signal?.addEventListener('abort', aborted, { once: true });
      req.once('response', (response) => resolve({ response, end }));
      req.on('error', (failure) => {
        end();
        reject(this.#failure(failure, address, options));
      });
      req.end(body);
    });
  }

  /** Forgets an address at which nothing answers. */
  #lost(address: Address): void {
    if (this.#address === address) this.#address = undefined;
    lostAddresses.set(this, address);
  }

  async #at(signal: AbortSignal | undefined): Promise<Address> {
    if (this.#address !== undefined) return this.#address;
    // Callers share one search. None of them can abort it for the others.
    this.#locating ??= this.#locate(lostAddresses.get(this), undefined)
      .then((found) => (this.#address = found))
      .finally(() => (this.#locating = undefined));
    return await abortable(this.#locating, signal);
  }
}

/** Returns the bytes of an argument. */
function bodyOf(name: CallName, input: unknown): Buffer {
  const body = Buffer.from(JSON.stringify(input), 'utf8');
  if (body.length > mostBytes) throw errorOf('too_large', `${name}: got ${body.length} bytes, expected at most ${mostBytes}`, { hint: 'send it in parts' });
  return body;
}

/** Returns the head of a request. */
function headOf(name: CallName, address: Address, headers: Record<string, string | number>): string {
  const host = address.url === undefined ? 'localhost' : new URL(address.url).host;
  let head = `${name === 'status' ? 'GET' : 'POST'} /v1/${name} HTTP/1.1\r\nhost: ${host}\r\n`;
  for (const header in headers) head += `${header}: ${headers[header]}\r\n`;
  return head + '\r\n';
}

const lostAddresses = new WeakMap<Transport, Address>();

function headersOf(caller: Caller | undefined, address: Address, options: CallOptions, body: Buffer | undefined): Record<string, string | number> {
  return {
    ...(body === undefined ? {} : { 'content-type': 'application/json', 'content-length': body.length }),
    ...(address.token === undefined ? {} : { authorization: `Bearer ${headerText('token', address.token)}` }),
    ...(options.timeout === undefined || options.timeout === 0 ? {} : { 'ctxpage-timeout': Math.ceil(options.timeout) }),
    ...(caller === undefined ? {} : { 'ctxpage-scope': headerText('scope', caller.scope), 'ctxpage-role': caller.role }),
    ...(caller?.actor === undefined ? {} : { 'ctxpage-actor': headerText('actor', caller.actor) }),
  };
}

/** Returns a text as the value of a header, in UTF-8. HTTP would change or refuse what this refuses. */
function headerText(what: string, text: string): string {
  if (text === '' || text !== text.trim() || /[\u0000-\u001f\u007f]/.test(text)) {
    throw errorOf('usage', `${what}: got ${JSON.stringify(text.slice(0, 80))}, expected a name without control characters and without blanks at its ends`);
  }
  return Buffer.from(text, 'utf8').toString('latin1');
}

function batchOf(input: unknown): string | undefined {
  const batch: unknown = typeof input === 'object' && input !== null && 'batch' in input ? input.batch : undefined;
  return typeof batch === 'string' ? batch : undefined;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (failure) {
    throw errorOf('no_answer', `got ${JSON.stringify(text.slice(0, 80))}, expected JSON`, { cause: failure });
  }
}

/** Returns the line of a stream. Its last one may be an error. */
function lineOf(text: string): unknown {
  const body = parse(text);
  if (isError(body)) throw answered(body.error);
  return body;
}

/** Waits before another attempt, longer each time. An aborted signal ends it. */
async function pause(attempt: number, signal: AbortSignal | undefined): Promise<void> {
  await sleep(Math.min(10 * 2 ** attempt, 500), undefined, { signal }).catch(() => undefined);
}

function isError(body: unknown): body is { error: ErrorBody } {
  return typeof body === 'object' && body !== null && 'error' in body && typeof body.error === 'object' && body.error !== null && 'code' in body.error;
}

/** Returns what an aborted call throws: the signal's reason, as fetch does. */
function abortReason(signal: AbortSignal): Error {
  const reason: unknown = signal.reason;
  return reason instanceof Error ? reason : new DOMException(String(reason), 'AbortError');
}

async function abortable<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return await work;
  signal.throwIfAborted();
  return await new Promise<T>((resolve, reject) => {
    const aborted = (): void => reject(abortReason(signal));
    signal.addEventListener('abort', aborted, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', aborted)).catch(() => undefined);
  });
}
