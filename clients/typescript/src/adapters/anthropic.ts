import { posix } from 'node:path';
import { ConflictError, NotFoundError } from '../errors.js';
import type { Page, Write } from '../schema.js';
import type { Scope } from '../scope.js';
import type { Transaction } from '../transaction.js';

export interface ViewCommand {
  command: 'view';
  path: string;
  view_range?: number[];
}
export interface CreateCommand {
  command: 'create';
  path: string;
  file_text: string;
}
export interface StrReplaceCommand {
  command: 'str_replace';
  path: string;
  old_str: string;
  new_str: string;
}
export interface InsertCommand {
  command: 'insert';
  path: string;
  insert_line: number;
  insert_text: string;
}
export interface DeleteCommand {
  command: 'delete';
  path: string;
}
export interface RenameCommand {
  command: 'rename';
  old_path: string;
  new_path: string;
}

const root = 'memories';
const maxLines = 999_999;
const numberWidth = 6;
const attempts = 10;

/**
 * The handlers of Anthropic's memory tool (`memory_20250818`) over a scope:
 *
 *     client.beta.messages.toolRunner({ tools: [betaMemoryTool(new MemoryTool(scope))], … })
 *
 * The file /memories/a/b.md is the page memories/a/b.md, of kind scratch: the tool sees it at once, and no context shows it until a person
 * raises it. Every version stays. An edit is written against the version that was read, so two agents do not overwrite each other.
 * Texts and errors are those of the SDK's own class.
 */
export class MemoryTool {
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  async view(command: ViewCommand): Promise<string> {
    const id = idOf(command.path);
    if (id !== root) {
      const page = await this.#scope.get(id).catch(none);
      if (page !== undefined) return viewFile(command, contentOf(page));
    }
    const tree = await this.#tree();
    if (!tree.isDirectory(id)) throw new Error(`The path ${command.path} does not exist. Please provide a valid path.`);
    const lines = tree.below(id, 2).map(({ size, path }) => `${sizeText(size)}\t${command.path}/${path}`);
    return [`Here're the files and directories up to 2 levels deep in ${command.path}, excluding hidden items and node_modules:`, `${sizeText(tree.size(id))}\t${command.path}`, ...lines].join('\n');
  }

  async create(command: CreateCommand): Promise<string> {
    const id = idOf(command.path);
    await this.#edit(async (tx) => {
      const tree = await this.#tree();
      if (tree.exists(id) || (await tx.get(id).catch(none)) !== undefined) throw new Error(`File ${command.path} already exists`);
      makeParents(tx, tree, id, command.path);
      tx.put(fileOf(id, command.file_text));
    });
    return `File created successfully at: ${command.path}`;
  }

  async str_replace(command: StrReplaceCommand): Promise<string> {
    const { path, old_str: old, new_str: now } = command;
    let snippet = '';
    await this.#editFile(path, (content) => {
      const at = matches(content, old);
      if (at.length === 0) throw new Error(`No replacement was performed, old_str \`${old}\` did not appear verbatim in ${path}.`);
      if (at.length > 1) throw new Error(`No replacement was performed. Multiple occurrences of old_str \`${old}\` in lines: ${at.join(', ')}. Please ensure it is unique`);
      const changed = content.replace(old, () => now);
      const lines = changed.split('\n');
      const first = Math.max(0, (at[0] ?? 1) - 3);
      snippet = numbered(lines.slice(first, Math.min(lines.length, (at[0] ?? 1) + 2)), first + 1);
      return changed;
    });
    return `The memory file has been edited. Here is the snippet showing the change (with line numbers):\n${snippet}`;
  }

  async insert(command: InsertCommand): Promise<string> {
    await this.#editFile(command.path, (content) => {
      const lines = content.split('\n');
      if (command.insert_line < 0 || command.insert_line > lines.length) {
        throw new Error(`Invalid \`insert_line\` parameter: ${command.insert_line}. It should be within the range of lines of the file: [0, ${lines.length}]`);
      }
      lines.splice(command.insert_line, 0, command.insert_text.replace(/\n$/, ''));
      return lines.join('\n');
    });
    return `The file ${command.path} has been edited.`;
  }

  async delete(command: DeleteCommand): Promise<string> {
    const id = idOf(command.path);
    if (id === root) throw new Error('Cannot delete the /memories directory itself');
    await this.#edit(async (tx) => {
      const tree = await this.#tree();
      const ids = tree.members(id);
      if (ids.length === 0) throw new Error(`The path ${command.path} does not exist`);
      for (const member of ids) tx.delete(member);
    });
    return `Successfully deleted ${command.path}`;
  }

  async rename(command: RenameCommand): Promise<string> {
    const { old_path: from, new_path: to } = command;
    const [old, now] = [idOf(from), idOf(to)];
    if (old === root) throw new Error('Cannot rename the /memories directory itself');
    await this.#edit(async (tx) => {
      const tree = await this.#tree();
      if (tree.exists(now)) throw new Error(`The destination ${to} already exists`);
      const ids = tree.members(old);
      if (ids.length === 0) throw new Error(`The path ${from} does not exist`);
      if (now.startsWith(`${old}/`)) throw new Error(`Cannot rename ${from} to ${to}, which is inside it`);
      makeParents(tx, tree, now, to);
      for (const id of ids) {
        const moved = now + id.slice(old.length);
        tx.put(id.endsWith('/') ? directoryOf(moved) : fileOf(moved, contentOf(await tx.get(id)))).delete(id);
      }
    });
    return `Successfully renamed ${from} to ${to}`;
  }

  /** Changes the content of a file, in a transaction that has read it. */
  async #editFile(path: string, change: (content: string) => string): Promise<void> {
    const id = idOf(path);
    await this.#edit(async (tx) => {
      const page = id === root ? undefined : await tx.get(id).catch(none);
      if (page === undefined) {
        if ((await this.#tree()).isDirectory(id)) throw new Error(`The path ${path} is not a file.`);
        throw new Error(`The path ${path} does not exist. Please provide a valid path.`);
      }
      tx.put(fileOf(id, change(contentOf(page))));
    });
  }

  /** Makes a change in one transaction, and makes it again if another writer came first. */
  async #edit(change: (tx: Transaction) => Promise<void>): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const tx = this.#scope.begin(undefined, { on_stale: 'fail' });
      try {
        await change(tx);
        await tx.commit({ confidence: 1, by: 'memory tool' });
        return;
      } catch (failure) {
        if (!tx.done) await tx.rollback();
        if (!(failure instanceof ConflictError) || attempt === attempts) throw failure;
      }
    }
  }

  async #tree(): Promise<Tree> {
    const tree = new Tree();
    for await (const page of this.#scope.list({ prefix: `${root}/` })) tree.add(page);
    return tree;
  }
}

/** The files and directories, by their ids. The id of a directory's page ends in a slash; a directory of a file needs no page. */
class Tree {
  readonly #files = new Map<string, number>();
  readonly #directories = new Set<string>([root]);

  add(page: Page): void {
    const id = page.id;
    if (id.endsWith('/')) this.#directories.add(id.slice(0, -1));
    else this.#files.set(id, Number(page.meta?.['bytes'] ?? 0));
    for (let dir = posix.dirname(id); dir.startsWith(root) && !this.#directories.has(dir); dir = posix.dirname(dir)) this.#directories.add(dir);
  }

  isFile(id: string): boolean {
    return this.#files.has(id);
  }

  isDirectory(id: string): boolean {
    return this.#directories.has(id);
  }

  exists(id: string): boolean {
    return this.isFile(id) || this.isDirectory(id);
  }

  /** Returns the ids of the pages of a file, or of a directory and everything in it. */
  members(id: string): string[] {
    if (this.isFile(id)) return [id];
    if (!this.isDirectory(id)) return [];
    return [...this.#files.keys(), ...[...this.#directories].map((d) => `${d}/`)].filter((m) => m.startsWith(`${id}/`));
  }

  /** Returns the bytes of all files of a directory. */
  size(id: string): number {
    let sum = 0;
    for (const [file, bytes] of this.#files) if (file.startsWith(`${id}/`)) sum += bytes;
    return sum;
  }

  /** Lists what a directory has, in the order of the names, each directory before what is in it. */
  below(id: string, depth: number, prefix = ''): { size: number; path: string }[] {
    const names = new Set<string>();
    for (const one of [...this.#files.keys(), ...this.#directories]) if (posix.dirname(one) === id) names.add(posix.basename(one));
    return [...names].sort().filter((name) => !name.startsWith('.') && name !== 'node_modules').flatMap((name) => {
      const one = `${id}/${name}`;
      if (this.isFile(one)) return [{ size: this.#files.get(one) ?? 0, path: prefix + name }];
      return [{ size: this.size(one), path: `${prefix}${name}/` }, ...(depth > 1 ? this.below(one, depth - 1, `${prefix}${name}/`) : [])];
    });
  }
}

/** Returns the id of a path below /memories. */
function idOf(path: string): string {
  if (path !== `/${root}` && !path.startsWith(`/${root}/`)) throw new Error(`Path must start with /memories, got: ${path}`);
  const id = posix.normalize(path).slice(1).replace(/\/+$/, '');
  if (id !== root && !id.startsWith(`${root}/`)) throw new Error(`Path ${path} would escape /memories directory`);
  return id;
}

/** Makes the directories that a new file or directory is in. */
function makeParents(tx: Transaction, tree: Tree, id: string, path: string): void {
  for (let dir = posix.dirname(id); dir !== root; dir = posix.dirname(dir)) {
    if (tree.isFile(dir)) throw new Error(`The path ${path} is below the file /${dir}`);
    if (!tree.isDirectory(dir)) tx.put(directoryOf(`${dir}/`));
  }
}

function directoryOf(id: string): Write {
  return { id, kind: 'scratch', parts: [{ type: 'directory' }] };
}

/** Returns the page of a file. A page needs a text or a part, so that of an empty file has a part without text. */
function fileOf(id: string, content: string): Write {
  const bytes = String(Buffer.byteLength(content, 'utf8'));
  return { id, kind: 'scratch', meta: { bytes }, ...(content === '' ? { parts: [{ type: 'file' }] } : { text: content }) };
}

function contentOf(page: Page): string {
  return page.text ?? '';
}

function none(failure: unknown): undefined {
  if (failure instanceof NotFoundError) return undefined;
  throw failure;
}

/** Returns the numbers of the lines in which a text begins. A text of one line counts once in a line. */
function matches(content: string, text: string): number[] {
  if (!text.includes('\n')) return content.split('\n').flatMap((line, i) => (line.includes(text) ? [i + 1] : []));
  const at: number[] = [];
  for (let i = content.indexOf(text); i >= 0; i = content.indexOf(text, i + 1)) at.push(content.slice(0, i).split('\n').length);
  return at;
}

function viewFile(command: ViewCommand, content: string): string {
  const lines = content.split('\n');
  if (lines.length > maxLines) throw new Error(`File ${command.path} has too many lines (${lines.length}). Maximum is ${maxLines.toLocaleString('en-US')} lines.`);
  const [from, to] = command.view_range ?? [];
  if (from === undefined || to === undefined) return `Here's the content of ${command.path} with line numbers:\n${numbered(lines, 1)}`;
  const first = Math.max(1, from) - 1;
  return `Here's the content of ${command.path} with line numbers:\n${numbered(lines.slice(first, to === -1 ? lines.length : to), first + 1)}`;
}

function numbered(lines: readonly string[], first: number): string {
  return lines.map((line, i) => `${String(first + i).padStart(numberWidth)}\t${line}`).join('\n');
}

function sizeText(bytes: number): string {
  if (bytes === 0) return '0B';
  const unit = Math.floor(Math.log(bytes) / Math.log(1024));
  const size = bytes / 1024 ** unit;
  return (Number.isInteger(size) ? String(size) : size.toFixed(1)) + (['B', 'K', 'M', 'G'][unit] ?? '');
}
