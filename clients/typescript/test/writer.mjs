// Writes pages and turns, and prints the id of each page once both were acknowledged.
import { open } from 'ctxpage';

const [path, name, count] = process.argv.slice(2);
const db = await open(path);
const scope = db.scope('acme', { actor: name });
for (let i = 0; i < Number(count); i++) {
  const id = `${name}-${i}`;
  await scope.put({ id, text: `page of ${id}` });
  await scope.session('shared').append({ role: 'user', text: `turn of ${id}` });
  console.log(id);
}
await db.close();
