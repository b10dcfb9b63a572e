import { defineEval } from 'eve/evals';
import { equals, includes } from 'eve/evals/expect';

export default defineEval({
  description: 'A second session knows the first, and the policy above it; what the model proposes is held, and no later context has it.',
  async test(t) {
    const first = await t.send('My name is Ada. What may I refund?');
    t.check(first.message, includes('$400'));
    const draft = await t.send('Please keep that.');
    t.check(draft.message, includes('held'));
    const second = await t.send('What is my name, and what may I refund?'); // a session of its own
    t.check(second.message, equals('I know Ada, \\$400.'));
    t.succeeded();
  },
});
