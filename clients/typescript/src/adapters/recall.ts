// What the adapters share that recall a context before the model answers, and keep the turn afterwards.
import { createHash } from 'node:crypto';
import type { AssembleInput, Block } from '../schema.js';
import type { GatedScope } from '../scope.js';

/** Options of a recalled context. */
export interface RecallOptions {
  /** Tokens that the context may take, default 2000. */
  readonly budget?: number | undefined;
  /** More options of `assemble`, such as filter, kinds or floor. */
  readonly assemble?: Omit<AssembleInput, 'query' | 'budget' | 'messages' | 'session' | 'txn'> | undefined;
}

/** A recalled context with pages in it. */
export interface Recalled {
  readonly trace: string;
  readonly text: string;
  readonly blocks: readonly Block[];
}

/** Returns the context for a question, or undefined if no page is in it. */
export async function recall(scope: GatedScope, query: string, options: RecallOptions, signal?: AbortSignal): Promise<Recalled | undefined> {
  if (query.trim() === '') return undefined;
  const context = await scope.assemble(query, { ...options.assemble, budget: options.budget ?? 2000, signal });
  return context.blocks.length === 0 ? undefined : context;
}

/** Returns the words of a message's content: a text, or a list of parts of which some are texts. */
export function wordsOf(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content
    .map((part: unknown) => (typeof part === 'object' && part !== null && 'type' in part && part.type === 'text' && 'text' in part && typeof part.text === 'string' ? part.text : ''))
    .filter((text) => text !== '')
    .join('\n');
}

/** Returns a short name for a key of any length. */
export function digest(...keys: readonly string[]): string {
  return createHash('sha256').update(JSON.stringify(keys)).digest('hex').slice(0, 32);
}
