import type { Held, Rejected, ReviewApproveInput, Written } from './schema.js';
import { GatedScope, split } from './scope.js';
import type { CallOptions } from './transport.js';

/** What an operator asks of a database. It also reads as an agent of its scope does, and sees the traces of all scopes. */
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

  /** Ends a server that exists only to serve. */
  async stop(options?: CallOptions): Promise<void> {
    await this.call('stop', {}, options, false);
  }
}
