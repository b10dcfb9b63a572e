import type { Database } from '../database.js';
import { HeldError, NotFoundError } from '../errors.js';
import type { TurnInput } from '../schema.js';
import type { Scope } from '../scope.js';
import { digest, recall, wordsOf, type RecallOptions } from './recall.js';

interface Message {
  readonly role: string;
  readonly content: unknown;
}

interface Locked {
  readonly memory: { readonly scope: { readonly key: string } };
}

interface Operation extends Locked {
  readonly abortSignal: AbortSignal;
  readonly operationId: string;
  readonly messages: readonly Message[];
  readonly session: { readonly id: string };
  readonly turn: { readonly input: readonly Message[] };
}

/** A tool of the memory, before eve's `defineTool`. */
export interface EveTool {
  readonly description: string;
  readonly inputSchema: { readonly [key: string]: string | boolean | readonly string[] | { readonly [key: string]: { readonly type: string } } };
  execute(input: never): Promise<unknown>;
}

export interface EveMemoryOptions<T> extends RecallOptions {
  /** The scope above those of eve's users, default eve. Pages that are put there are seen by all of them. */
  readonly root?: string | undefined;
  /** eve's `defineTool`. With it the model gets the tools remember and search; what it remembers passes the commit gate. */
  readonly defineTool?: ((tool: EveTool) => T) | undefined;
}

/** What `eveMemory` returns: a MemoryProvider of eve. */
export interface EveMemory<T> {
  readonly recall: { readonly 'turn.started': (context: Operation) => Promise<{ messages: { id: string; content: string }[] } | null> };
  readonly capture: { readonly 'turn.completed': (context: Operation) => Promise<void> };
  readonly tools: (context: Locked) => Promise<Record<string, T> | null>;
}

const kept = 7 * 24 * 3600; // seconds that a recall can be repeated

/**
 * A memory provider of Vercel's eve:
 *
 *     export default defineMemory({ provider: eveMemory(db), scope: byPrincipal });
 *
 * eve's scope becomes a scope below `root`, so the model cannot choose it. A turn recalls the context for what the user said, within
 * the budget, and is appended to the conversation of eve's session once it is complete. A repeated operation recalls the same bytes
 * and appends nothing.
 */
export function eveMemory<T = never>(db: Database, options: EveMemoryOptions<T> = {}): EveMemory<T> {
  const scopeOf = ({ memory }: Locked): Scope => db.scope(`${options.root ?? 'eve'}/${encodeURIComponent(memory.scope.key)}`, { actor: 'eve' });
  return {
    recall: {
      'turn.started': async (context) => {
        const scope = scopeOf(context);
        const id = `eve/recall/${digest(context.operationId)}`;
        const before = await scope.get(id, { signal: context.abortSignal }).catch(none);
        if (before !== undefined) return JSON.parse(before.parts?.[0]?.text ?? 'null') as { messages: { id: string; content: string }[] } | null;
        const found = await recall(scope, inputOf(context), options, context.abortSignal);
        const result = found === undefined ? null : { messages: [{ id: 'ctxpage', content: found.text }] };
        await scope.put({ id, kind: 'scratch', ttl_s: kept, parts: [{ type: 'recall', text: JSON.stringify(result) }] }, { signal: context.abortSignal });
        return result;
      },
    },
    capture: {
      'turn.completed': async (context) => {
        const name = digest(context.operationId);
        const turns = turnsOf(context).map((turn, i) => ({ ...turn, id: `eve-${name}-${i}` }));
        if (turns.length > 0) await scopeOf(context).session(context.session.id).append(turns, { signal: context.abortSignal });
      },
    },
    tools: async (context) => {
      const define = options.defineTool;
      if (define === undefined) return await Promise.resolve(null);
      return Object.fromEntries(Object.entries(toolsOf(scopeOf(context), options)).map(([name, tool]) => [name, define(tool)]));
    },
  };
}

function inputOf(context: Operation): string {
  return context.turn.input.map((m) => wordsOf(m.content)).join('\n');
}

/** Returns the turns of a completed turn of eve: what came in, and what the assistant said after the last message of the user. */
function turnsOf(context: Operation): TurnInput[] {
  const last = context.messages.findLastIndex((m) => m.role === 'user');
  const said = context.messages.slice(last + 1).filter((m) => m.role === 'assistant');
  return [...context.turn.input.map((m) => ({ role: 'user', text: wordsOf(m.content) })), ...said.map((m) => ({ role: 'assistant', text: wordsOf(m.content) }))].filter((turn) => turn.text.trim() !== '');
}

function toolsOf(scope: Scope, options: RecallOptions): Record<string, EveTool> {
  const text = { type: 'string' };
  return {
    remember: {
      description: 'Keep one stable fact for future conversations. It may be held until a person has approved it.',
      inputSchema: { type: 'object', properties: { text }, required: ['text'], additionalProperties: false },
      execute: async ({ text: fact }: { text: string }) => {
        try {
          const { status, refs } = await scope.gated('eve-model').put({ id: `fact-${digest(fact)}`, text: fact });
          return { status, refs };
        } catch (failure) {
          if (failure instanceof HeldError) return { status: 'held', reason: failure.reason ?? failure.message };
          throw failure;
        }
      },
    },
    search: {
      description: 'Search the memory by words.',
      inputSchema: { type: 'object', properties: { query: text }, required: ['query'], additionalProperties: false },
      execute: async ({ query }: { query: string }) => {
        const { hits } = await scope.gated('eve-model').search(query, { limit: 5, filter: options.assemble?.filter });
        return { hits: hits.map(({ ref, text: words }) => ({ ref, text: words })) };
      },
    },
  };
}

function none(failure: unknown): undefined {
  if (failure instanceof NotFoundError) return undefined;
  throw failure;
}
