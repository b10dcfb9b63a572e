// A user's program, compiled by the strictest settings. It is not run.
import { open, HeldError, ConflictError, type Assembly, type Page, type Written } from 'ctxpage';

export async function program(): Promise<string> {
  await using db = await open('agent.ctx', { idle: '5m' });
  const scope = db.scope('acme/support', { actor: 'bot' });
  const written: Written = await scope.put({ id: 'policy', text: 'Refunds up to $400.', tags: ['refunds'], meta: { owner: 'ann' } }, { signal: AbortSignal.timeout(5000) });
  const context: Assembly<'openai'> = await scope.assemble('refund?', { budget: 2000, messages: 'openai' });
  const roles: ('system' | 'user' | 'assistant' | 'tool')[] = context.messages('openai').messages.map((m) => m.role);
  // @ts-expect-error it was not asked for the messages of this provider
  context.messages('gemini');
  // @ts-expect-error an agent's scope cannot append turns
  scope.gated().session('chat').append({ role: 'user', text: 'x' });
  // @ts-expect-error a page has no such field
  await scope.put({ id: 'policy', txt: 'x' });
  try {
    await using tx = scope.begin(context);
    tx.put({ id: 'answer', text: 'Up to $400.' });
    await tx.commit({ confidence: 0.9, by: 'checker' });
  } catch (failure) {
    if (failure instanceof HeldError) return failure.batch ?? '';
    if (!(failure instanceof ConflictError)) throw failure;
  }
  const pages: Page[] = [];
  for await (const page of scope.list({ prefix: 'pol', filter: { tags_any: ['refunds'] } })) pages.push(page);
  for await (const line of scope.changes({ types: ['commit'] })) if (line.leaf?.type === 'commit') break;
  return written.refs.concat(roles, pages.map((p) => p.id)).join();
}
