// A conversation with memory. Install the package, then run it twice: the second run knows the first.
//
//   npm install ctxpage && node chat.mjs agent.ctx "what may I refund?"
import { HeldError, open } from 'ctxpage';

const [path, question] = process.argv.slice(2);
const db = await open(path); // starts `dbctl serve` if no server runs
const scope = db.scope('acme/support', { actor: 'chat.mjs' });
await scope.put({ id: 'policy', text: 'Refunds up to $400 need no approval.' });

const chat = scope.session('chat-2');
const { refs } = await chat.append({ role: 'user', text: question });
const context = await scope.assemble(question, { budget: 2000, session: chat.id, messages: 'openai' });
const answer = 'You may refund up to $400.'; // a model would be asked here, with context.messages('openai')
await chat.append({ role: 'assistant', text: answer, trace: context.trace });

// What the model concluded becomes memory with the verdict of a judge that is not the model.
const tx = scope.begin(context);
tx.put({ id: 'answer-2', text: answer });
const kept = await tx.commit({ confidence: 0.9, by: 'reviewer' });

// An agent's own write has no verdict: the gate holds it for a person.
try {
  await scope.gated('model').put({ id: 'guess-2', text: 'Or more.' });
} catch (failure) {
  if (!(failure instanceof HeldError)) throw failure;
  console.log('held:', failure.name, failure.batch);
}
console.log('committed:', kept.refs[0]);
console.log('recalled:', (await scope.recall(refs[0])).text);
console.log('why:', (await scope.why(context, 'policy')).steps.at(-1));
await db.close();
