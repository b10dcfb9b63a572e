import type { Appended, Page, Pass, Pinned, SessionAppendInput, SessionLimitInput, SessionPassInput, Truncated, TruncateInput, TurnInput, Undone, WindowState } from './schema.js';
import type { GatedScope } from './scope.js';
import type { CallOptions } from './transport.js';
import { ulid } from './ulid.js';

/** A conversation as an agent sees it. */
export class SessionReader {
  constructor(protected readonly scope: GatedScope, readonly id: string) {}

  /** Describes the window of the conversation, without texts. */
  async window(options?: CallOptions): Promise<WindowState> {
    return await this.scope.call('session/window', { session: this.id }, options);
  }

  /** Reads one turn in full, even if the window shows a stub or nothing of it. */
  async recall(id: string, options?: CallOptions): Promise<Page> {
    return await this.scope.call('session/recall', { session: this.id, id }, options);
  }

  /** Lists the turns in full, in order: all of them, those from a number on, or the last ones. */
  async *history(options: CallOptions & { readonly from?: number | undefined; readonly last?: number | undefined } = {}): AsyncGenerator<Page, void, undefined> {
    const { last } = options;
    if (last === 0) return;
    for (let from = options.from; ; ) {
      const ask = last === undefined ? { from, limit: 1000 } : { from, last };
      const { turns, next } = await this.scope.call('session/history', { session: this.id, ...ask }, { signal: options.signal, timeout: options.timeout });
      yield* turns;
      if (next === undefined || next === 0) return;
      from = next;
    }
  }
}

/** A conversation as its host holds it. */
export class Session extends SessionReader {
  /** Appends turns, in one transaction, and returns their references. */
  async append(turns: TurnInput | readonly TurnInput[], options: CallOptions & Pick<SessionAppendInput, 'batch' | 'dry_run'> = {}): Promise<Appended> {
    const { signal, timeout, dry_run, batch } = options;
    const list = Array.isArray(turns) ? (turns as readonly TurnInput[]) : [turns as TurnInput];
    return await this.scope.call('session/append', { session: this.id, turns: list, dry_run, batch: dry_run === true ? batch : (batch ?? ulid()) }, { signal, timeout });
  }

  /**
   * Deletes the turns with a number above after, 0: all, in one transaction. With `last` it throws a ConflictError unless that turn is
   * still the newest, so several callers that take the newest turn take each turn once.
   */
  async truncate(after: number, options: CallOptions & Pick<TruncateInput, 'batch' | 'last'> = {}): Promise<Truncated> {
    const { signal, timeout, last, batch } = options;
    return await this.scope.call('session/truncate', { session: this.id, after, last, batch: batch ?? ulid() }, { signal, timeout });
  }

  /** Sets the size of the window in tokens; 0 removes the limit. */
  async limit(total: number, options: CallOptions & Omit<SessionLimitInput, 'session' | 'total'> = {}): Promise<WindowState> {
    const { signal, timeout, ...input } = options;
    return await this.scope.call('session/limit', { ...input, session: this.id, total }, { signal, timeout });
  }

  /** Decides which turns stay whole, become stubs or leave the window. */
  async pass(options: CallOptions & Omit<SessionPassInput, 'session'> = {}): Promise<Pass> {
    const { signal, timeout, ...input } = options;
    return await this.scope.call('session/pass', { ...input, session: this.id }, { signal, timeout });
  }

  /** Undoes a pass: by default the newest that was not undone. */
  async undo(pass?: number, options?: CallOptions): Promise<Undone> {
    return await this.scope.call('session/undo', { session: this.id, pass }, options, false);
  }

  /** Pins a turn, so that passes leave it whole, or unpins it. */
  async pin(id: string, pinned = true, options?: CallOptions): Promise<Pinned> {
    return await this.scope.call('session/pin', { session: this.id, id, pinned }, options);
  }
}
