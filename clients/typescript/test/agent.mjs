// An agent that remembers. It runs twice: the second process knows what the first one was told.
import { open } from 'ctxpage';

const [path, question] = process.argv.slice(2);
const db = await open(path);
const scope = db.scope('acme/support', { actor: 'agent' });
const chat = scope.session('chat-1');
await chat.append({ role: 'user', text: question });
const context = await scope.assemble(question, { budget: 2000, session: chat.id, messages: 'openai' });
const answer = stubModel(context.messages('openai'));
await chat.append({ role: 'assistant', text: answer, trace: context.trace });
console.log(answer);
await db.close();

function stubModel({ messages }) {
  const all = JSON.stringify(messages);
  return all.includes('My name is Ada') && question.includes('?') ? 'Your name is Ada.' : 'I will remember that.';
}
