import { ConflictError, InvalidError } from '../errors.js';
import type { Page, TurnInput } from '../schema.js';
import type { Scope } from '../scope.js';
import type { Session } from '../session.js';

/** What an item of a conversation has at least. The items of @openai/agents are such. */
export interface Item {
  readonly type?: string | undefined;
}

const partType = 'item';
const bytesKey = 'ctxpage.bytes';
const mostAtOnce = 1000;

/**
 * A session of the OpenAI Agents SDK that is a conversation of a scope:
 *
 *     await run(agent, 'hello', { session: new AgentSession<AgentInputItem>(scope, 'chat-1') });
 *
 * Each item is one turn: its words are what contexts show, and the item itself is kept beside them byte for byte. `addItems` is one
 * transaction, and of several callers of `popItem` each gets an item of its own.
 */
export class AgentSession<T extends object = Item> {
  readonly #session: Session;

  constructor(scope: Scope, id: string) {
    this.#session = scope.session(id);
  }

  async getSessionId(): Promise<string> {
    return await Promise.resolve(this.#session.id);
  }

  /** Returns all items, or the newest of them, oldest first. */
  async getItems(limit?: number): Promise<T[]> {
    if (limit !== undefined && limit <= 0) return [];
    const last = limit !== undefined && limit <= mostAtOnce ? Math.floor(limit) : undefined;
    const items: T[] = [];
    for await (const turn of this.#session.history({ last })) items.push(itemOf<T>(turn));
    return limit === undefined ? items : items.slice(-limit);
  }

  /** Appends items, all or none. */
  async addItems(items: T[]): Promise<void> {
    if (items.length === 0) return;
    try {
      await this.#session.append(items.map((item) => turnOf(item, true)));
    } catch (failure) {
      // A result whose call is not there, or was answered: the items are kept as turns without calls.
      if (!(failure instanceof InvalidError) || !items.some(ofCall)) throw failure;
      await this.#session.append(items.map((item) => turnOf(item, false)));
    }
  }

  /** Removes the newest item and returns it. */
  async popItem(): Promise<T | undefined> {
    for (;;) {
      const [turn] = await collect(this.#session.history({ last: 1 }));
      if (turn === undefined) return undefined;
      try {
        await this.#session.truncate((turn.seq ?? 1) - 1, { last: turn.id });
        return itemOf<T>(turn);
      } catch (failure) {
        if (!(failure instanceof ConflictError)) throw failure; // another caller took it, or appended
      }
    }
  }

  /** Removes all items. */
  async clearSession(): Promise<void> {
    await this.#session.truncate(0);
  }
}

async function collect(turns: AsyncIterable<Page>): Promise<Page[]> {
  const all: Page[] = [];
  for await (const turn of turns) all.push(turn);
  return all;
}

function ofCall(item: object): boolean {
  return 'callId' in item;
}

/**
 * Returns the turn of an item. Its words are in a part that contexts show, the item in one that is carried as it is. calls: a call and
 * its result are turns of a tool.
 */
function turnOf(item: object, calls: boolean): TurnInput {
  const { type = 'message', role, name, arguments: args, callId } = item as Record<string, unknown>;
  const words = type === 'function_call' ? `${String(name)}(${String(args)})` : wordsOf(item);
  const text = Buffer.from(words.trim() === '' ? `[${String(type)}]` : words, 'utf8').toString('utf8'); // half surrogate pairs are replaced
  const answers = calls && typeof callId === 'string' && /_(result|output)$/.test(String(type));
  return {
    role: role === 'user' || role === 'system' ? 'user' : answers ? 'tool' : 'assistant',
    ...(answers ? { tool_call_id: callId } : {}),
    ...(calls && type === 'function_call' && typeof callId === 'string' && typeof name === 'string' ? { tool_calls: [{ id: callId, name, arguments: String(args ?? '{}') }] } : {}),
    parts: [{ type: 'text', text }, { type: partType, text: JSON.stringify(item, packBytes) }],
  };
}

/** Returns the words of an item: its content or output, as a text or as a list of texts. */
function wordsOf(item: unknown): string {
  if (typeof item === 'string') return item;
  if (Array.isArray(item)) return item.map(wordsOf).filter((t) => t !== '').join('\n');
  if (typeof item !== 'object' || item === null) return '';
  const { text, content, output } = item as Record<string, unknown>;
  return wordsOf(text ?? content ?? output);
}

function itemOf<T>(turn: Page): T {
  const stored = turn.parts?.find((p) => p.type === partType)?.text;
  // A turn that another program appended has no item: it is a message of its role.
  if (stored === undefined) return { type: 'message', role: turn.role ?? 'user', content: turn.text ?? '' } as T;
  return JSON.parse(stored, unpackBytes) as T;
}

function packBytes(_key: string, value: unknown): unknown {
  return value instanceof Uint8Array ? { [bytesKey]: Buffer.from(value).toString('base64') } : value;
}

function unpackBytes(_key: string, value: unknown): unknown {
  const packed: unknown = typeof value === 'object' && value !== null && bytesKey in value ? value[bytesKey] : undefined;
  return typeof packed === 'string' ? new Uint8Array(Buffer.from(packed, 'base64')) : value;
}
