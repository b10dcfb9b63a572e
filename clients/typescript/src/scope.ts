import { errorOf } from './errors.js';
import type { Provider, Requests } from './messages.js';
import type {
  AssembleInput, AssembleResult, Block, Change, ChangesInput, Decision, Difference, DirectiveState, DirectivesStepInput, Explanation, GetInput, Leaf, ListInput, Page, RefreshInput, RefreshReport, Replayed, SearchInput,
  SearchResult, Suggestion, VersionsInput, Write, Written,
} from './schema.js';
import { Session, SessionReader } from './session.js';
import { Transaction, type TransactionOptions } from './transaction.js';
import type { Caller, CallName, CallOptions, Input, Output, Transport } from './transport.js';
import { ulid } from './ulid.js';

/** Options of a write. */
export interface WriteOptions extends CallOptions {
  /** A ULID that names the write. A repeated one is applied once, also after a restart. Default: a new one. */
  readonly batch?: string | undefined;
}

export type AssembleOptions<P extends Provider = Provider> = Omit<AssembleInput, 'query' | 'messages' | 'txn'> & CallOptions & { readonly messages?: P | undefined };

type Rest<T, Without extends string = never> = Omit<T, Without> & CallOptions;

/** Takes the options of a call out of an argument. */
export function split<T extends CallOptions>(options: T): [Omit<T, 'signal' | 'timeout'>, CallOptions] {
  const { signal, timeout, ...input } = options;
  return [input, { signal, timeout }];
}

/** A context: pages within a token budget, and the trace that explains it. */
export class Assembly<P extends Provider = never> implements Omit<AssembleResult, 'messages'> {
  /** Cite it in a transaction, in `why` and in `replay`. */
  readonly trace: string;
  readonly lsn: number;
  /** The context, ready to be read. */
  readonly text: string;
  readonly tier: number;
  readonly tokens: number;
  readonly limit: number;
  readonly counter: string;
  readonly review: boolean;
  readonly degraded: string;
  /** How well the pages match the question: none, weak or good; empty if there was nothing to match. */
  readonly match: string;
  /** Share of the question's words that the pages have. */
  readonly covered: number;
  readonly blocks: Block[];
  /** Pages that were considered and left out, counted by reason. */
  readonly left_out: Record<string, number>;
  readonly #provider: P | undefined;
  readonly #messages: unknown;

  constructor(result: AssembleResult, provider: P | undefined) {
    this.trace = result.trace;
    this.lsn = result.lsn;
    this.text = result.text;
    this.tier = result.tier;
    this.tokens = result.tokens;
    this.limit = result.limit;
    this.counter = result.counter;
    this.review = result.review ?? false;
    this.degraded = result.degraded ?? '';
    this.match = result.match ?? '';
    this.covered = result.covered;
    this.blocks = result.blocks;
    this.left_out = result.left_out;
    this.#provider = provider;
    this.#messages = result.messages;
  }

  /** Returns the context as a part of a provider's request. `assemble` must have been asked for it by its option `messages`. */
  messages<Q extends P>(provider: Q): Requests[Q] {
    if (provider !== this.#provider || this.#messages === undefined) {
      throw errorOf('usage', `messages: got ${provider}, expected ${this.#provider ?? 'an assembly that was asked for messages'}`, { hint: `assemble(…, { messages: '${provider}' })` });
    }
    return this.#messages as Requests[Q];
  }

  toString(): string {
    return this.text;
  }
}

/**
 * A scope as an agent holds it. It reads the scope and its ancestors. What it writes passes the commit gate, or is held for review: then
 * the write throws a HeldError.
 */
export class GatedScope {
  readonly caller: Caller;
  protected readonly transport: Transport;

  constructor(transport: Transport, caller: Caller) {
    this.transport = transport;
    this.caller = caller;
  }

  get name(): string {
    return this.caller.scope;
  }

  /** Makes any call of the protocol as this caller. repeat: it may be made again if its answer is lost. */
  async call<N extends CallName>(name: N, input: Input<N>, options?: CallOptions, repeat = true): Promise<Output<N>> {
    return await this.transport.call(this.caller, name, input, options, repeat);
  }

  /** Writes pages, all or none, and returns their references. */
  async put(writes: Write | readonly Write[], options: WriteOptions = {}): Promise<Written> {
    return await this.call('put', { writes: Array.isArray(writes) ? (writes as readonly Write[]) : [writes as Write], batch: options.batch ?? ulid() }, options);
  }

  /** Marks pages as deleted. Their versions stay. */
  async delete(ids: string | readonly string[], options: WriteOptions = {}): Promise<Written> {
    return await this.call('delete', { ids: typeof ids === 'string' ? [ids] : ids, batch: options.batch ?? ulid() }, options);
  }

  /** Reads one page of the scope or an ancestor in full. If its source changed, it is fetched again first. */
  async get(id: string, options: Rest<GetInput, 'id' | 'ref' | 'trace'> = {}): Promise<Page> {
    const [input, how] = split(options);
    return await this.call('get', { ...input, id }, how);
  }

  /** Reads the page of a reference that another call returned. */
  async recall(ref: string, options: Rest<GetInput, 'id' | 'ref' | 'trace'> = {}): Promise<Page> {
    const [input, how] = split(options);
    return await this.call('get', { ...input, ref }, how);
  }

  /** Lists the scope's own pages by id, without texts. It asks for more as it is read. */
  async *list(options: Rest<ListInput, 'cursor'> = {}): AsyncGenerator<Page, void, undefined> {
    const [input, how] = split(options);
    yield* this.#paged('list', input, how);
  }

  /** Lists the versions of a page, newest first, without texts. */
  async *versions(id: string, options: Rest<VersionsInput, 'id' | 'cursor'> = {}): AsyncGenerator<Page, void, undefined> {
    const [input, how] = split(options);
    yield* this.#paged('versions', { ...input, id }, how);
  }

  async *#paged<N extends 'list' | 'versions'>(name: N, input: Input<N>, how: CallOptions): AsyncGenerator<Page, void, undefined> {
    let left = input.limit ?? Infinity;
    for (let cursor: string | undefined; left > 0; ) {
      const { items, next } = await this.call(name, { ...input, limit: Math.min(left, 1000), cursor }, how);
      yield* items;
      left -= items.length;
      if (next === undefined || next === '') return;
      cursor = next;
    }
  }

  /** Finds pages that match words, best first. */
  async search(query: string, options: Rest<SearchInput, 'query'> = {}): Promise<SearchResult> {
    const [input, how] = split(options);
    return await this.call('search', { ...input, query }, how);
  }

  /** Returns the context for a question within a token budget. With `messages` it also returns part of a provider's request. */
  async assemble<P extends Provider = never>(query: string, options: AssembleOptions<P> = {}): Promise<Assembly<P>> {
    const [input, how] = split(options);
    return new Assembly<P>(await this.call('assemble', { ...input, query }, how), options.messages);
  }

  /** Begins a transaction, of a context if one is given: a change of one of its pages makes the transaction stale. */
  begin(context?: { readonly trace: string } | string, options: TransactionOptions = {}): Transaction {
    return new Transaction(this, typeof context === 'string' ? context : context?.trace, options);
  }

  /** Returns a conversation. The agent may read it. */
  session(id: string): SessionReader {
    return new SessionReader(this, id);
  }

  /** Lists the names of the conversations of the scope. */
  async *sessions(options: CallOptions = {}): AsyncGenerator<string, void, undefined> {
    for (let after: string | undefined; ; ) {
      const { sessions, next } = await this.call('session/list', { after, limit: 1000 }, options);
      yield* sessions;
      if (next === undefined || next === '') return;
      after = next;
    }
  }

  /** Returns what the user has decided, joined with the ancestors' directives. */
  async directives(options?: CallOptions): Promise<DirectiveState> {
    return await this.call('directives/show', {}, options);
  }

  /** Explains why a page was in a past context or not; without a page, the whole context. */
  async why(context: { readonly trace: string } | string, page: { readonly id?: string | undefined; readonly ref?: string | undefined } | string = {}, options?: CallOptions): Promise<Explanation> {
    return await this.call('why', { trace: traceOf(context), ...(typeof page === 'string' ? { id: page } : page) }, options);
  }

  /** Renders a past context again, byte for byte. */
  async replay(context: { readonly trace: string } | string, options?: CallOptions): Promise<Replayed> {
    return await this.call('replay', { trace: traceOf(context) }, options);
  }

  /** Compares two past contexts: their settings, and the pages that one alone has or shows in another form. */
  async diff(a: { readonly trace: string } | string, b: { readonly trace: string } | string, options?: CallOptions): Promise<Difference> {
    return await this.call('diff', { a: traceOf(a), b: traceOf(b) }, options);
  }

  /** Returns the audit leaves of a trace: what a context showed, and how its transactions ended. */
  async manifest(context: { readonly trace: string } | string, options?: CallOptions): Promise<Leaf[]> {
    return (await this.call('manifest', { trace: traceOf(context) }, options)).leaves;
  }

  /** Follows the audit of the scope, until the loop is left. A line without a leaf is a sign of life. Continue from `next`. */
  changes(options: Rest<ChangesInput> = {}): AsyncGenerator<Change, void, undefined> {
    const [input, how] = split(options);
    return this.transport.stream(this.caller, 'changes', input, how);
  }
}

/** A scope as its host holds it: what the host writes, it vouches for. */
export class Scope extends GatedScope {
  /** Returns this scope for an agent, whose writes pass the gate. */
  gated(actor: string | undefined = this.caller.actor): GatedScope {
    return new GatedScope(this.transport, { ...this.caller, actor, role: 'agent' });
  }

  override session(id: string): Session {
    return new Session(this, id);
  }

  /** Judges one input of the user and keeps the outcome. Pass only the user's own words, never a model's. It is made once. */
  async step(input: string, options: Rest<DirectivesStepInput, 'input'> = {}): Promise<Decision> {
    const [rest, how] = split(options);
    return await this.call('directives/step', { ...rest, input }, how, rest.dry_run === true);
  }

  /** Validates the directive that a preprocessor read in a message of the user; without one, suggests a premise. Changes nothing. */
  async suggest(message: string, draft?: string, options?: CallOptions): Promise<Suggestion> {
    return await this.call('directives/suggest', { message, draft }, options);
  }

  /** Probes the sources of the scope and fetches what changed. */
  async refresh(options: Rest<RefreshInput> = {}): Promise<RefreshReport> {
    const [input, how] = split(options);
    return await this.call('refresh', input, how);
  }
}

export function traceOf(context: { readonly trace: string } | string): string {
  return typeof context === 'string' ? context : context.trace;
}
