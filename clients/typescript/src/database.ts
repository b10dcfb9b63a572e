import { errorOf } from './errors.js';
import { Operator } from './operator.js';
import { version, type Status } from './schema.js';
import { GatedScope, Scope } from './scope.js';
import { locate, resolvePath, tokenOf, type StartOptions } from './server.js';
import { Transport, type Address, type CallOptions } from './transport.js';

export interface ScopeOptions {
  /** Name of the caller, for the audit and for reviews. Default: the scope. */
  readonly actor?: string | undefined;
}

export interface OpenOptions extends StartOptions {
  /** Ends the search for a server. */
  readonly signal?: AbortSignal | undefined;
  /** Connections to the server at once, default 32. Further calls wait. */
  readonly connections?: number | undefined;
}

export interface ConnectOptions {
  readonly signal?: AbortSignal | undefined;
  readonly connections?: number | undefined;
  /** Over a loopback address: the bearer token. */
  readonly token?: string | undefined;
  /** Over a loopback address: a file whose first line for the highest role has the token, as `dbctl serve --token-file` reads it. */
  readonly tokenFile?: string | undefined;
}

/** A connection to the server of a database. It may be used by many callers at once, and survives the end of the server. */
export class Database implements AsyncDisposable {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Returns a scope for its host, who vouches for what it writes. */
  scope(name: string, options: ScopeOptions = {}): Scope {
    return new Scope(this.#transport, { scope: name, actor: options.actor, role: 'host' });
  }

  /** Returns a scope for an agent, whose writes pass the commit gate. */
  gated(name: string, options: ScopeOptions = {}): GatedScope {
    return new GatedScope(this.#transport, { scope: name, actor: options.actor, role: 'agent' });
  }

  /** Returns what an operator holds: review, and the audit of all scopes. The actor is recorded as the reviewer. */
  operator(scope: string, options: ScopeOptions = {}): Operator {
    return new Operator(this.#transport, { scope, actor: options.actor, role: 'operator' });
  }

  /** Describes the server and its database. */
  async status(options?: CallOptions): Promise<Status> {
    return await this.#transport.call(undefined, 'status', {}, options);
  }

  /** Waits for the calls under way and closes the connections. The server stays for others, and ends by itself when nobody calls. */
  async close(): Promise<void> {
    await this.#transport.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/**
 * Opens a database. It connects to the server of the file, or starts `dbctl serve` in a session of its own, which outlives this process
 * and ends when nobody calls. The file is made if it is missing.
 */
export async function open(path: string, options: OpenOptions = {}): Promise<Database> {
  const resolved = resolvePath(path);
  return await checked(new Transport(async () => await locate(resolved, options), options.connections), options.signal);
}

/** Connects to a server that is there: by the path of its unix socket, or by its loopback URL with a token. */
export async function connect(target: string, options: ConnectOptions = {}): Promise<Database> {
  const address: Address = /^https?:\/\//.test(target) ? { url: target, token: options.token ?? (options.tokenFile === undefined ? undefined : tokenOf(options.tokenFile)) } : { socket: target };
  return await checked(new Transport(async () => await Promise.resolve(address), options.connections), options.signal);
}

/** Compares the version of the calls. */
async function checked(transport: Transport, signal: AbortSignal | undefined): Promise<Database> {
  try {
    const status = await transport.call(undefined, 'status', {}, { signal });
    if (status.version === version) return new Database(transport);
    throw errorOf('skew', `the server (${status.program}, pid ${status.pid}) speaks version ${status.version} of the calls, this package version ${version}`, { hint: 'end that process, or update this package' });
  } catch (failure) {
    await transport.close();
    throw failure;
  }
}
