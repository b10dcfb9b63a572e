import { DeadlineError, OutcomeUnknownError } from './errors.js';
import type {
  ApproveAllInput, ApprovedList, BackupReport, EmbedInput, EmbedReport, Erased, EraseDone, EraseInput, ExportInput, HealthInput, HealthReport, Held, ImportInput, ImportReport, Quota, QuotaUse, Receipt, Rejected,
  Retention, RetentionPolicy, RetentionReport, RetentionRunInput, ReviewApproveInput, ScopeInfo, ScopesInput, Stats, StatsInput, StoredPolicy, Written,
} from './schema.js';
import { GatedScope, split } from './scope.js';
import type { CallOptions } from './transport.js';

/**
 * What an operator asks of a database. A call works on the operator's scope and those below it, unless it says `whole` or
 * `every_scope`. It also reads as an agent of its scope does, and sees the traces of all scopes. Long jobs need a longer `timeout`.
 */
export class Operator extends GatedScope {
  /** Lists the batches that the gate held, oldest first, without texts. */
  async *held(options: CallOptions & { readonly all?: boolean | undefined; readonly every_scope?: boolean | undefined } = {}): AsyncGenerator<Held, void, undefined> {
    const [input, how] = split(options);
    for (let cursor: string | undefined; ; ) {
      const { batches, next } = await this.call('review/list', { ...input, cursor }, how);
      yield* batches;
      if (next === undefined || next === '') return;
      cursor = next;
    }
  }

  /** Returns one held batch, with the changes since that affect it. */
  async review(batch: string, options?: CallOptions): Promise<Held> {
    return await this.call('review/show', { batch }, options);
  }

  /** Commits a held batch. The operator's actor is recorded as the reviewer, and must not be its writer. */
  async approve(batch: string, options: CallOptions & Omit<ReviewApproveInput, 'batch'> = {}): Promise<Written> {
    const [input, how] = split(options);
    return await this.call('review/approve', { ...input, batch }, how);
  }

  /** Records that a held batch will not be committed. */
  async reject(batch: string, note?: string, options?: CallOptions): Promise<Rejected> {
    return await this.call('review/reject', { batch, note }, options);
  }

  /** Commits each held batch that the fields select. Each is decided about by itself. */
  async approveAll(options: CallOptions & ApproveAllInput = {}): Promise<ApprovedList> {
    const [input, how] = split(options);
    return await this.call('review/approve_all', input, how);
  }

  /** Lists the scopes that were written to, by name. */
  async *scopes(options: CallOptions & Omit<ScopesInput, 'cursor' | 'limit'> = {}): AsyncGenerator<ScopeInfo, void, undefined> {
    const [input, how] = split(options);
    for (let cursor: string | undefined; ; ) {
      const { scopes, next } = await this.call('scopes', { ...input, cursor, limit: 1000 }, how);
      yield* scopes;
      if (next === undefined || next === '') return;
      cursor = next;
    }
  }

  /** Returns sizes and counters of the database. */
  async stats(options: CallOptions & StatsInput = {}): Promise<Stats> {
    const [input, how] = split(options);
    return await this.call('stats', input, how);
  }

  /** Reports which pages of the scope are of no use, or mislead. */
  async health(options: CallOptions & HealthInput = {}): Promise<HealthReport> {
    const [input, how] = split(options);
    return await this.call('health', input, how);
  }

  /** Exports the scope and those below it, a person, or the whole database: one object for each line that `import` takes. */
  export(options: CallOptions & ExportInput = {}): AsyncGenerator<unknown, void, undefined> {
    const [input, how] = split(options);
    return this.transport.stream(this.caller, 'export', input, how);
  }

  /** Brings an export into the database: the file at `path` of the server's machine, or `lines`. It is made once. */
  async import(input: ImportInput, options?: CallOptions): Promise<ImportReport> {
    return await this.call('import', input, options, input.dry_run === true);
  }

  /** Copies the database to an absolute path of the server's machine. */
  async backup(path: string, options?: CallOptions): Promise<BackupReport> {
    return await this.call('backup', { path }, options, false);
  }

  /** Removes content from every file of the database, and returns a receipt. It is made once: if the answer is lost, see `erasures`. */
  async erase(input: EraseInput, options?: CallOptions): Promise<Erased> {
    return await this.call('erase', input, options, input.dry_run === true);
  }

  /** Lists the finished erases, oldest first. */
  async erasures(options?: CallOptions): Promise<EraseDone[]> {
    return (await this.call('erase/list', {}, options)).erases;
  }

  /** Returns the receipt of a finished erase, for the present head. */
  async receipt(trace: string, options?: CallOptions): Promise<Receipt> {
    return await this.call('erase/receipt', { trace }, options);
  }

  /** Returns what holds in the scope, and the policies that say it. */
  async retention(options?: CallOptions): Promise<Retention> {
    return await this.call('retention/show', {}, options);
  }

  /** Sets the policy of the scope, or of the whole database, in place of the one it has. Removes nothing. */
  async setRetention(policy: RetentionPolicy, options: CallOptions & { readonly whole?: boolean | undefined; readonly dry_run?: boolean | undefined } = {}): Promise<StoredPolicy> {
    const [input, how] = split(options);
    return await this.call('retention/set', { ...input, policy }, how);
  }

  /** Removes what is older than the policies allow. */
  async runRetention(options: CallOptions & RetentionRunInput = {}): Promise<RetentionReport> {
    const [input, how] = split(options);
    return await this.call('retention/run', input, how);
  }

  /** Returns the quotas that apply to the scope, and what is used of them. */
  async quotas(options: CallOptions & { readonly every_scope?: boolean | undefined } = {}): Promise<QuotaUse[]> {
    const [input, how] = split(options);
    return (await this.call('quota/show', input, how)).quotas;
  }

  /** Sets the quota of the scope, in place of the one it has. Removes nothing. */
  async setQuota(quota: Quota, options: CallOptions & { readonly dry_run?: boolean | undefined } = {}): Promise<QuotaUse> {
    const [input, how] = split(options);
    return await this.call('quota/set', { ...input, quota }, how);
  }

  /** Makes the vectors that pages lack. Needs a server with `--model`. */
  async embed(options: CallOptions & EmbedInput = {}): Promise<EmbedReport> {
    const [input, how] = split(options);
    return await this.call('embed', input, how);
  }

  /** Ends a server that exists only to serve. If the connection ends without an answer, the server has ended. */
  async stop(options?: CallOptions): Promise<void> {
    try {
      await this.call('stop', {}, options, false);
    } catch (failure) {
      if (!(failure instanceof OutcomeUnknownError) || failure instanceof DeadlineError) throw failure;
    }
  }
}
