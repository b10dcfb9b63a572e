import type { TurnInput } from '../schema.js';
import type { Scope } from '../scope.js';
import { recall, wordsOf, type RecallOptions } from './recall.js';

/** Options of a call to a language model of the AI SDK, as far as this adapter reads and writes them. */
interface Params {
  prompt: { role: string; content: unknown }[];
  abortSignal?: AbortSignal | undefined;
}

interface TextPart {
  readonly type: string;
  readonly text?: string;
}

export interface AIMemoryOptions extends RecallOptions {
  /** Also append the user's message and the model's answer to this conversation. */
  readonly session?: string | undefined;
}

/** What `aiMemory` returns: a middleware for `wrapLanguageModel`. */
export interface AIMemory {
  readonly specificationVersion: 'v4';
  transformParams<P extends object>(options: { params: P }): Promise<P>;
  wrapGenerate<R extends object>(options: { doGenerate: () => PromiseLike<R>; params: object }): Promise<R>;
  wrapStream<R extends { stream: ReadableStream }>(options: { doStream: () => PromiseLike<R>; params: object }): Promise<R>;
}

/**
 * A middleware of the AI SDK that gives a language model a memory:
 *
 *     const model = wrapLanguageModel({ model: openai('gpt-5'), middleware: aiMemory(scope, { session: 'chat-1' }) });
 *
 * Before a call it recalls the context for the user's last message, within the budget, and puts it before that message as a message of the
 * user, because recalled pages are data and no instructions. The call in which the model answers a result of a tool gets a
 * context, too. With a session, the user's message is appended before the model is called, and the answer once it has finished.
 */
export function aiMemory(scope: Scope, options: AIMemoryOptions = {}): AIMemory {
  const traces = new WeakMap<object, string>();
  const asked = new WeakSet<object>(); // messages that were appended: the SDK makes a failed call again
  const append = async (turn: TurnInput): Promise<void> => {
    if (options.session !== undefined && (turn.text ?? '').trim() !== '') await scope.session(options.session).append(turn);
  };
  const answered = async (params: object, text: string): Promise<void> => await append({ role: 'assistant', text, trace: traces.get(params) });
  return {
    specificationVersion: 'v4',

    transformParams: async <P extends object>({ params }: { params: P }): Promise<P> => {
      const { prompt, abortSignal } = params as unknown as Params;
      const at = prompt.findLastIndex((m) => m.role === 'user');
      const message = prompt[at];
      if (message === undefined) return params;
      const question = wordsOf(message.content);
      const found = await recall(scope, question, options, abortSignal);
      if (at === prompt.length - 1 && !asked.has(message)) {
        await append({ role: 'user', text: question });
        asked.add(message);
      }
      if (found === undefined) return params;
      const context = { role: 'user', content: [{ type: 'text', text: found.text }] };
      const out = { ...params, prompt: [...prompt.slice(0, at), context, ...prompt.slice(at)] };
      traces.set(out, found.trace);
      return out;
    },

    wrapGenerate: async ({ doGenerate, params }) => {
      const result = await doGenerate();
      const { content = [] } = result as { content?: readonly TextPart[] };
      await answered(params, wordsOf(content));
      return result;
    },

    wrapStream: async ({ doStream, params }) => {
      const result = await doStream();
      let answer = '';
      const watch = new TransformStream<unknown, unknown>({
        transform(part, controller) {
          if (typeof part === 'object' && part !== null && 'type' in part && part.type === 'text-delta' && 'delta' in part && typeof part.delta === 'string') answer += part.delta;
          controller.enqueue(part);
        },
        flush: async () => await answered(params, answer),
      });
      return { ...result, stream: result.stream.pipeThrough(watch) };
    },
  };
}
