import { defineAgent } from 'eve';
import { mockModel } from 'eve/evals';

// In place of a real model: it keeps what it is told to, and knows only what is in its prompt.
export default defineAgent({
  model: mockModel(({ messages, lastUserMessage, toolResults, tools }) => {
    const prompt = messages.map((m) => m.text).join('\n');
    if (/keep/.test(lastUserMessage ?? '') && toolResults.length === 0) {
      const name = tools.find((t) => t.name.endsWith('remember'))?.name ?? 'no tool';
      return { toolCalls: [{ name, input: { text: 'Refunds up to $900.' } }] };
    }
    if (toolResults.length > 0) return `tool: ${JSON.stringify(toolResults.at(-1)?.output)}`;
    const known = [/Ada/, /\$400/, /\$900/].filter((word) => word.test(prompt)).map((word) => word.source);
    return `I know ${known.join(', ') || 'nothing'}.`;
  }),
});
