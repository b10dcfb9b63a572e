// Anthropic's own class, over files, beside ours: 10,000 random commands must answer the same, but for the sizes of directories.
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync, rmdirSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { BetaLocalFilesystemMemoryTool, betaMemoryTool } from '@anthropic-ai/sdk/tools/memory/node';
import { NotFoundError } from 'ctxpage';
import { MemoryTool } from 'ctxpage/anthropic';
import { database, random } from './common.mjs';

const commands = 10_000;
const names = ['a.md', 'b.txt', 'notes', 'deep', 'x y', 'ü.md', '.hidden', 'node_modules'];
const texts = ['', 'one', 'one\ntwo\nthree', 'two\n\ntwo\n', 'cr\r\nlf\r\n', 'x'.repeat(1500), '$& $1', '\u{1F9E0} brain\n'];

function pathOf(rand, deep = 3) {
  const parts = Array.from({ length: Math.floor(rand() * (deep + 1)) }, () => names[Math.floor(rand() * names.length)]);
  const odd = rand();
  const path = ['/memories', ...parts].join('/');
  return odd < 0.02 ? '/etc/passwd' : odd < 0.04 ? `${path}/../../..` : odd < 0.07 ? `${path}/` : odd < 0.1 ? `${path}/./x/..` : path;
}

function commandOf(rand) {
  const pick = (list) => list[Math.floor(rand() * list.length)];
  const line = () => Math.floor(rand() * 6) - 1;
  switch (pick(['view', 'view', 'create', 'create', 'create', 'str_replace', 'str_replace', 'insert', 'insert', 'delete', 'rename'])) {
    case 'view': return { command: 'view', path: pathOf(rand), ...(rand() < 0.3 ? { view_range: [line(), line()] } : {}) };
    case 'create': return { command: 'create', path: pathOf(rand), file_text: pick(texts) };
    case 'str_replace': return { command: 'str_replace', path: pathOf(rand), old_str: pick(['one', 'two', 'x', 'brain', '$&', 'nowhere', '']), new_str: pick(['1', '$&', '', 'two']) };
    case 'insert': return { command: 'insert', path: pathOf(rand), insert_line: line(), insert_text: pick(['new', 'new\n', '', '\n\n']) };
    case 'delete': return { command: 'delete', path: pathOf(rand) };
    default: return { command: 'rename', old_path: pathOf(rand), new_path: pathOf(rand) };
  }
}

const fileSystem = 'of the file system'; // in words of its own: ours is an error, too, in other words

const answer = async (tool, command) => {
  try {
    return await tool.run(command);
  } catch (failure) {
    assert.ok(failure instanceof Error && !(failure instanceof NotFoundError), String(failure?.stack));
    return `Error: ${failure.code ? fileSystem : failure.message}`;
  }
};

const withoutDirectorySizes = (text) => text.replace(/^[\d.]+[BKMG](?=\t.*\/$)/gm, 'DIR').replace(/(excluding hidden items and node_modules:\n)[\d.]+[BKMG]/, '$1DIR');

/** Removes the empty directories that a rename left which failed. */
function tidy(dir, before) {
  for (const path of directories(dir).reverse()) if (!before.has(path) && readdirSync(path).length === 0) rmdirSync(path);
}

function directories(dir) {
  return readdirSync(dir).map((name) => join(dir, name)).filter((path) => statSync(path).isDirectory()).flatMap((path) => [path, ...directories(path)]);
}

test(`${commands} random commands beside BetaLocalFilesystemMemoryTool`, async (t) => {
  const db = await database(t);
  const dir = mkdtempSync(join(tmpdir(), 'ctxpage-test-'));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const theirs = betaMemoryTool(await BetaLocalFilesystemMemoryTool.init(dir));
  const ours = betaMemoryTool(new MemoryTool(db.scope('memory')));
  const rand = random(11);
  let same = 0, succeeded = 0;
  for (let i = 0; i < commands; i++) {
    const command = commandOf(rand);
    const before = new Set(command.command === 'rename' ? directories(dir) : []);
    const [want, got] = [await answer(theirs, command), await answer(ours, command)];
    if (command.command === 'rename' && want.startsWith('Error:')) tidy(dir, before);
    if (want.endsWith(fileSystem)) assert.match(got, /^Error: /, JSON.stringify(command));
    else assert.equal(withoutDirectorySizes(got), withoutDirectorySizes(want), JSON.stringify(command));
    same++;
    if (!want.startsWith('Error:')) succeeded++;
  }
  console.log(`measured ${same} commands the same, ${succeeded} of them no errors;`);
});

test('a text of several lines, paths that only begin like the root, and two writers', async (t) => {
  const db = await database(t);
  const tool = new MemoryTool(db.scope('memory'));
  await tool.create({ command: 'create', path: '/memories/a.md', file_text: 'one\ntwo\nthree\none' });
  assert.match(await tool.str_replace({ command: 'str_replace', path: '/memories/a.md', old_str: 'one\ntwo', new_str: '1\n2' }), /^ {5}1\t1$/m);
  await assert.rejects(tool.str_replace({ command: 'str_replace', path: '/memories/a.md', old_str: 'x\ny', new_str: '' }), /did not appear verbatim/);
  await assert.rejects(tool.view({ command: 'view', path: '/memoriesX' }), /must start with \/memories/);
  await Promise.all(Array.from({ length: 8 }, (_, i) => tool.insert({ command: 'insert', path: '/memories/a.md', insert_line: 0, insert_text: `line ${i}` })));
  const text = await tool.view({ command: 'view', path: '/memories/a.md' });
  for (let i = 0; i < 8; i++) assert.match(text, new RegExp(`line ${i}`));
  // No context shows the files until a person raises them.
  assert.equal((await db.scope('memory').assemble('line', { budget: 1000 })).blocks.length, 0);
});
