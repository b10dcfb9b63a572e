import { CtxpageError, errorOf, HeldError, OutcomeUnknownError } from './errors.js';
import type { BeginInput, Page, Verdict, Write, Written } from './schema.js';
import { Assembly, split, type AssembleOptions, type GatedScope } from './scope.js';
import type { Provider } from './messages.js';
import type { CallOptions } from './transport.js';
import { ulid } from './ulid.js';

export type TransactionOptions = Pick<BeginInput, 'batch' | 'on_stale'>;

/**
 * Writes of one inference, which nobody else sees until `commit`. They wait in this object until the transaction reads: only then does
 * the server open it, and joins what is read. If the server ends meanwhile, a transaction that has read nothing goes on; another one
 * throws a TransactionError of the code `transaction_lost`, and nothing of it was written.
 *
 *     await using tx = scope.begin(context);
 *     tx.put({ id: 'answer', text });
 *     await tx.commit({ confidence: 0.9, by: 'checker' });
 *
 * A transaction that is left without a commit is rolled back.
 */
export class Transaction implements AsyncDisposable {
  /** The ULID under which it is committed at most once. */
  readonly batch: string;
  #state: 'waiting' | 'open' | 'done' = 'waiting';
  #trace: string | undefined;
  #sending: Promise<void> = Promise.resolve();
  #puts: Write[] = [];
  #deletes: string[] = [];
  readonly #scope: GatedScope;
  readonly #context: string | undefined;
  readonly #onStale: string | undefined;

  constructor(scope: GatedScope, context: string | undefined, options: TransactionOptions) {
    this.#scope = scope;
    this.#context = context;
    this.#onStale = options.on_stale;
    this.batch = options.batch ?? ulid();
  }

  /** Reports whether it was committed, held or rolled back. */
  get done(): boolean {
    return this.#state === 'done';
  }

  /** Adds a page. The server checks it at the next read, or at the commit. */
  put(write: Write): this {
    this.#check();
    this.#deletes = this.#deletes.filter((id) => id !== write.id);
    this.#puts = [...this.#puts.filter((w) => w.id !== write.id), write];
    return this;
  }

  /** Adds the deletion of a page. */
  delete(id: string): this {
    this.#check();
    this.#puts = this.#puts.filter((w) => w.id !== id);
    this.#deletes = [...this.#deletes.filter((d) => d !== id), id];
    return this;
  }

  /** Reads a page as this transaction sees it. The page joins what it has read. */
  async get(id: string, options: CallOptions & { readonly serve_stale?: boolean | undefined } = {}): Promise<Page> {
    const [input, how] = split(options);
    const trace = await this.#open(how);
    return await this.#within(this.#scope.call('get', { ...input, id, trace }, how));
  }

  /** Assembles a context that sees the writes of this transaction. What it serves joins what the transaction has read. */
  async assemble<P extends Provider = never>(query: string, options: AssembleOptions<P> = {}): Promise<Assembly<P>> {
    const [input, how] = split(options);
    const txn = await this.#open(how);
    return new Assembly<P>(await this.#within(this.#scope.call('assemble', { ...input, query, txn }, how)), options.messages);
  }

  /**
   * Commits the writes through the gate. A host gives the verdict of a judge that is not the writer. Without a verdict the server's
   * evaluator judges; without an evaluator the writes are held, and this throws a HeldError.
   */
  async commit(verdict?: Verdict, options?: CallOptions): Promise<Written> {
    this.#check();
    const trace = this.#trace;
    if (trace === undefined) {
      const input = { trace: this.#context, writes: this.#puts, deletes: this.#deletes, verdict, batch: this.batch, on_stale: this.#onStale };
      return await this.#ending(this.#scope.call('commit', input, options));
    }
    await this.#open({ signal: options?.signal, timeout: options?.timeout });
    let lost: OutcomeUnknownError | undefined;
    for (;;) {
      try {
        return await this.#ending(this.#scope.call('commit', { trace, verdict }, options, false));
      } catch (failure) {
        if (lost === undefined && failure instanceof OutcomeUnknownError && options?.signal?.aborted !== true) {
          lost = failure; // the server has it open still, or has ended it, or has ended itself
        } else if (failure instanceof CtxpageError && (failure.code === 'invalid' || failure.code === 'not_found')) {
          return await this.#outcome(trace, failure, options);
        } else {
          throw failure;
        }
      }
    }
  }

  /** Drops the writes. It records that the answer to the context was discarded. It may be called after commit: then it does nothing. */
  async rollback(options?: CallOptions): Promise<void> {
    if (this.done) return;
    this.#state = 'done';
    const trace = this.#trace ?? this.#context;
    if (trace === undefined) return;
    try {
      await this.#scope.call('rollback', { trace }, options);
    } catch (failure) {
      // A server that ended, or an expired lease, has rolled it back.
      if (!(failure instanceof CtxpageError) || failure.code !== 'not_found') throw failure;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.rollback();
  }

  #check(): void {
    if (this.done) throw errorOf('txn_done', `the transaction ${this.batch} has ended`, { hint: 'begin another', batch: this.batch });
  }

  /** Opens the transaction at the server, and sends the writes that wait: one caller at a time. */
  async #open(options: CallOptions): Promise<string> {
    const turn = this.#sending.then(async () => await this.#send(options));
    this.#sending = turn.then(() => undefined, () => undefined);
    return await turn;
  }

  async #send(options: CallOptions): Promise<string> {
    this.#check();
    if (this.#trace === undefined) {
      this.#trace = (await this.#scope.call('begin', { trace: this.#context, batch: this.batch, on_stale: this.#onStale }, options)).trace;
      this.#state = 'open';
    }
    const trace = this.#trace;
    if (this.#puts.length > 0) await this.#within(this.#scope.call('put', { writes: this.#puts, trace }, options));
    this.#puts = [];
    if (this.#deletes.length > 0) await this.#within(this.#scope.call('delete', { ids: this.#deletes, trace }, options));
    this.#deletes = [];
    return trace;
  }

  /** Waits for a call within the open transaction. */
  async #within<T>(call: Promise<T>): Promise<T> {
    try {
      return await call;
    } catch (failure) {
      if (failure instanceof CtxpageError && failure.code === 'not_found' && failure.message.includes('no open transaction')) throw this.#gone(failure);
      throw failure;
    }
  }

  /** Waits for a commit, and notes whether the transaction has ended. */
  async #ending(call: Promise<Written>): Promise<Written> {
    try {
      const written = await call;
      this.#state = 'done';
      return written;
    } catch (failure) {
      if (failure instanceof CtxpageError && ['held', 'conflict', 'stale_context', 'txn_done', 'txn_failed', 'txn_expired'].includes(failure.code)) this.#state = 'done';
      throw failure;
    }
  }

  /** Reads in the audit how a transaction ended that the server does not have open. */
  async #outcome(trace: string, failure: CtxpageError, options: CallOptions | undefined): Promise<Written> {
    const leaves = await this.#scope.manifest(trace, options).catch((missing: unknown) => {
      if (missing instanceof CtxpageError && missing.code === 'not_found') return [];
      throw missing;
    });
    const end = leaves.find((l) => l.batch === this.batch && (l.type === 'commit' || l.type === 'held'));
    if (end === undefined) {
      if (failure.code === 'invalid' && !failure.message.includes('no open transaction')) throw failure;
      throw this.#gone(failure);
    }
    this.#state = 'done';
    if (end.type === 'held') throw new HeldError('held', `the gate held the batch ${this.batch}: ${end.reason ?? ''}`, { batch: this.batch, trace, reason: end.reason });
    return { status: 'committed', refs: (end.writes ?? []).map((w) => w.ref), batch: this.batch, trace: end.trace, lsn: end.lsn };
  }

  #gone(cause: CtxpageError): CtxpageError {
    this.#state = 'done';
    return errorOf('transaction_lost', `the server no longer has the transaction ${this.batch}, and nothing of it was written: it ended, or the lease was over`, {
      hint: 'assemble again and begin another', batch: this.batch, cause,
    });
  }
}
