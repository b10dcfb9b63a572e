import type { Scope } from '../scope.js';
import { digest, recall, wordsOf, type RecallOptions } from './recall.js';

/** A message of Mastra, as far as this adapter reads it. */
interface Message {
  readonly id: string;
  readonly role: string;
  readonly content: { readonly parts: readonly object[]; readonly content?: string | undefined };
}

export interface MastraMemoryOptions extends RecallOptions {
  /** Also append the user's message and the answer to this conversation. */
  readonly session?: string | undefined;
}

/** What `mastraMemory` returns: a processor of Mastra, for both the input and the output of an agent. */
export interface MastraMemory {
  readonly id: 'ctxpage';
  readonly name: 'ctxpage';
  processInput<M extends Message, S>(args: { messages: M[]; systemMessages: S[]; state: Record<string, unknown> }): Promise<{ messages: M[]; systemMessages: S[] }>;
  processOutputResult<M extends Message>(args: { messages: M[]; state: Record<string, unknown>; result: { text: string } }): Promise<M[]>;
}

/**
 * A processor of Mastra that gives an agent a memory:
 *
 *     const memory = mastraMemory(scope, { session: 'chat-1' });
 *     new Agent({ …, inputProcessors: [memory], outputProcessors: [memory] });
 *
 * It recalls the context for the user's last message, within the budget, as a system message whose pages are fenced as data. With a session,
 * the user's message and the answer are appended. Mastra's own storage may stay beside it: this is what the agent knows,
 * not the log of its threads.
 */
export function mastraMemory(scope: Scope, options: MastraMemoryOptions = {}): MastraMemory {
  return {
    id: 'ctxpage',
    name: 'ctxpage',

    processInput: async ({ messages, systemMessages, state }) => {
      const asked = messages.findLast((m) => m.role === 'user');
      const question = asked === undefined ? '' : textOf(asked);
      state['ctxpage.asked'] = asked === undefined ? undefined : { id: asked.id, question };
      const found = await recall(scope, question, options);
      if (found === undefined) return { messages, systemMessages };
      state['ctxpage.trace'] = found.trace;
      type S = (typeof systemMessages)[number];
      return { messages, systemMessages: [...systemMessages, { role: 'system', content: found.text } as S] };
    },

    processOutputResult: async ({ messages, state, result }) => {
      const asked = (state['ctxpage.asked'] ?? last(messages)) as { id: string; question: string } | undefined;
      if (options.session === undefined || asked === undefined || result.text.trim() === '') return messages;
      const trace = state['ctxpage.trace'];
      const name = digest(asked.id);
      await scope.session(options.session).append([
        { id: `mastra-${name}-user`, role: 'user', text: asked.question },
        { id: `mastra-${name}-answer`, role: 'assistant', text: result.text, ...(typeof trace === 'string' ? { trace } : {}) },
      ]);
      return messages;
    },
  };
}

function textOf(message: Message): string {
  const words = wordsOf(message.content.parts);
  return words === '' ? (message.content.content ?? '') : words;
}

function last(messages: readonly Message[]): { id: string; question: string } | undefined {
  const asked = messages.findLast((m) => m.role === 'user');
  return asked === undefined ? undefined : { id: asked.id, question: textOf(asked) };
}
