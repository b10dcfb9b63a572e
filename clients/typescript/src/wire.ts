import { connect, type Socket } from 'node:net';
import type { Address } from './transport.js';

/** What a server answered. */
export interface Answer {
  readonly status: number;
  readonly text: string;
}

const mostHead = 64 << 10; // bytes of the status line and the headers

/**
 * A connection that carries one call at a time, in HTTP/1.1 with answers of a known length. node:http would cost twice as much of
 * the processor for each call.
 */
export class Connection {
  readonly #socket: Socket;
  #parts: Buffer[] = [];
  #size = 0;
  #begin = 0;
  #end = -1; // of the body; -1: the head is not whole
  #status = 0;
  #keep = true;
  #answered: ((answer: Answer) => void) | undefined;
  #failed: ((failure: Error) => void) | undefined;

  constructor(address: Address, ended: () => void) {
    const url = address.url === undefined ? undefined : new URL(address.url);
    this.#socket = url === undefined ? connect(address.socket ?? '') : connect(Number(url.port), url.hostname.replace(/^\[|\]$/g, ''));
    this.#socket.setNoDelay(true);
    this.#socket.on('data', (part: Buffer) => this.#read(part));
    this.#socket.on('error', (failure) => this.#fail(failure));
    this.#socket.on('close', () => {
      this.#fail(new Error('the server closed the connection'));
      ended();
    });
  }

  /** Reports whether it may carry another call. */
  get usable(): boolean {
    return this.#keep && !this.#socket.destroyed && !this.#socket.readableEnded;
  }

  /** Sends a request and returns its answer. */
  async ask(head: string, body: Buffer | undefined): Promise<Answer> {
    this.#socket.ref();
    return await new Promise((answered, failed) => {
      [this.#answered, this.#failed] = [answered, failed];
      const first = Buffer.from(head, 'latin1');
      this.#socket.write(body === undefined ? first : Buffer.concat([first, body]));
    });
  }

  /** Lets the process end while the connection is idle. */
  rest(): void {
    this.#socket.unref();
  }

  /** Ends it. A call that waits fails with the reason. */
  cut(reason?: Error): void {
    if (reason !== undefined) this.#fail(reason);
    this.#socket.destroy();
  }

  #read(part: Buffer): void {
    if (this.#answered === undefined) return this.cut(); // nobody asked
    this.#parts.push(part);
    this.#size += part.length;
    if (this.#end < 0 && !this.#readHead()) return;
    if (this.#size < this.#end) return;
    const text = Buffer.concat(this.#parts).toString('utf8', this.#begin, this.#end);
    const answered = this.#answered;
    [this.#answered, this.#failed, this.#parts, this.#size, this.#end] = [undefined, undefined, [], 0, -1];
    answered({ status: this.#status, text });
  }

  #readHead(): boolean {
    const all = Buffer.concat(this.#parts);
    this.#parts = [all];
    const at = all.indexOf('\r\n\r\n');
    if (at < 0 && all.length < mostHead) return false;
    const head = all.toString('latin1', 0, Math.max(at, 0));
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
    if (length === undefined) {
      this.cut(new Error(`got ${JSON.stringify(head.slice(0, 80))}, expected an answer of HTTP with its length`));
      return false;
    }
    this.#status = Number(head.slice(9, 12));
    this.#keep = !/\r\nconnection: *close/i.test(head);
    [this.#begin, this.#end] = [at + 4, at + 4 + Number(length)];
    return true;
  }

  #fail(failure: Error): void {
    const failed = this.#failed;
    [this.#answered, this.#failed] = [undefined, undefined];
    failed?.(failure);
  }
}

/** The connections to the server of one database. At most so many are open at once, and a few stay open between calls. */
export class Pool {
  #idle: Connection[] = [];
  #busy = 0;
  readonly #waiting: (() => void)[] = [];
  readonly #most: number;

  constructor(most: number) {
    this.#most = most;
  }

  /** Waits for a turn, and returns what ends it. */
  async turn(abortable: (turn: Promise<void>) => Promise<void>): Promise<() => void> {
    if (this.#busy < this.#most) this.#busy++;
    else {
      let go = (): void => undefined;
      const turn = new Promise<void>((done) => this.#waiting.push((go = done)));
      try {
        await abortable(turn);
      } catch (aborted) {
        const at = this.#waiting.indexOf(go);
        if (at >= 0) this.#waiting.splice(at, 1);
        else this.#next();
        throw aborted;
      }
    }
    return () => this.#next();
  }

  #next(): void {
    const go = this.#waiting.shift();
    if (go === undefined) this.#busy--;
    else go();
  }

  /** Returns a connection; fresh: one that was not used before, since the server may close an idle one just as it is used. */
  take(address: Address, fresh: boolean): Connection {
    while (!fresh) {
      const idle = this.#idle.pop();
      if (idle === undefined) break;
      if (idle.usable) return idle;
      idle.cut();
    }
    const made: Connection = new Connection(address, () => (this.#idle = this.#idle.filter((c) => c !== made)));
    return made;
  }

  /** Takes back a connection that has answered. */
  give(connection: Connection): void {
    if (!connection.usable || this.#idle.length >= 4) return connection.cut();
    connection.rest();
    this.#idle.push(connection);
  }

  /** Ends the connections that are idle. */
  drain(): void {
    for (const idle of this.#idle.splice(0)) idle.cut();
  }
}
