package dbctl

import "github.com/alecthomas/kong"

// describe adds to each verb what its help says below the line of the listing.
func describe(n *kong.Node, path string) {
	for _, child := range n.Children {
		if child.Type == kong.CommandNode {
			name := path + child.Name
			child.Detail = or(child.Detail, or(details[name], details[name+" run"]))
			describe(child, name+" ")
		}
	}
}

// details is the help of each verb. Each has an example.
var details = map[string]string{
	"init": `Creates FILE, FILE-wal/, FILE-manifest/ and FILE.lock, readable only by you. The path must not exist, and its directory must. If an earlier init was interrupted, this one completes it.

Example: dbctl init agent.ctx`,
	"put": `Writes one artefact on the authority of whoever runs dbctl. A text of more than 512 tokens becomes several pages.

Example: echo 'Refunds up to $400 need no approval.' | dbctl put agent.ctx acme/support refund-policy --verified --by ann

You can run it while an agent has the file open: the process that owns the file then writes.`,
	"get": `Prints the text, byte for byte if standard output is not a terminal. --json prints all stored fields. The source is checked first, and a changed text is refetched. The read writes a manifest, so the file is opened for writing unless you give --read-only.

Example: dbctl get agent.ctx acme/support refund-policy`,
	"ls": `Lists the artefacts of a scope by id, without texts, or the scopes of the database. Read-only; writes no manifest. An artefact that is first written between two pages of a listing may or may not appear. One that was there from the start appears once, also with --newest when it is updated meanwhile.

Example: dbctl ls agent.ctx acme/support --prefix refund --newest --written-since 7d`,
	"rm": `Writes a tombstone for each artefact, all in one transaction. Deleted artefacts are no longer served; older versions stay readable by reference until gc. Select artefacts by id or with --prefix.

Example: dbctl rm agent.ctx acme/support --prefix drafts/ --dry-run`,
	"history": `Lists the versions of an artefact, newest first, without texts. dbctl get --version prints a version unless gc dropped it. Read-only; writes no manifest.

Example: dbctl history agent.ctx acme/support refund-policy`,
	"search": `Finds pages by their words, and with --model by their meaning, best first. Pages whose source changed are refetched. Matches that are not shown, such as imports that nobody has promoted (--floor scratch shows them), expired pages, drafts, and pages whose source cannot be checked here, are counted on standard error with the reason and what to do. The search writes a manifest, so the file is opened for writing unless you give --read-only. A filter (--tag, --subject, --meta and others) is applied before the best are chosen.

Example: dbctl search agent.ctx acme/support refund limit --tag policy --meta 'year>=2025'`,
	"import": `With a directory: imports every text file below it as an artefact of kind chunk with a file: source. It records DIR as a directory that this database may read, so later reads notice changes and refetch the file, and dbctl refresh finds new files. Texts are UTF-8, UTF-16 with a byte order mark, or Windows-1252 (Latin-1); of a notebook, the cells and their text outputs are the text; of a page of HTML, what it says. It honours .gitignore and does not follow links. Binary, empty and too large files are skipped and listed with the reason; an ignored directory is listed once. Hidden files are imported unless they are ignored, so try --dry-run first. If you import two directories into one scope, give each a --prefix; otherwise files of the same name replace each other.

With files of another system: imports chats, transcripts of agents and memories. Everything is scratch, whatever the file says about it: contexts and searches do not show it, except turns in their own session. If you vouch for the file, --trust validated --by NAME --why TEXT raises its facts and what its user said; dbctl promote raises items later. Conversations become sessions, which dbctl session ls lists. An item that was imported before is left alone, and turns are not mixed into a session that has turns from elsewhere: they are left out, and the exit code is 1. With --follow, the file may be cut, replaced or renamed meanwhile; SIGTERM and Ctrl-C end it with exit code 0.

With an export: brings a database, or a part of it, back as it was. A file that does not exist is created with the identity of the exported database. If FILE has different content under the same name, that content stays and is listed, and the exit code is 1. Content that was erased after the export was made is left out if FILE itself knows of the erase, or if you give its receipt with --erased.

A second run writes only changes. Ctrl-C stops between two transactions; run the command again to continue. A file of a directory that changes during the import is refetched by the next read.

FILE must exist, unless you import an export: dbctl init FILE makes it.

Example: dbctl import agent.ctx acme/docs ./docs

  dbctl import agent.ctx acme/dev ~/.claude/projects/app/*.jsonl
  dbctl import agent.ctx acme/ann --from mem0 mem0.json
  dbctl import agent.ctx acme/ann notes.jsonl --from jsonl --map id=.key,text=.body
  dbctl import new.ctx agent.jsonl`,
	"promote": `Raises the provenance of artefacts, so that contexts and searches show them: of imported memories, or of turns of an imported conversation. Each gets a new version with the same text; the manifest records by whom and why. Artefacts that have the provenance, or a higher one, are left alone. Run it with --dry-run first. For what agents wrote, see dbctl review.

Example: dbctl promote agent.ctx acme/ann --meta import.source=mem0 --by ann --why 'read all of them' --dry-run`,
	"export": `Writes the database as lines of JSON: all versions with their texts, provenance, times and digests, held batches, sessions with their windows, directives with their history, recorded directories and file roots. dbctl import brings the file into a new or another database. The audit and vectors are not exported; dbctl backup copies everything.

An export contains everything in clear text; a whole export also contains the secret of the database. Protect it as you protect the database.

--format pam writes live facts, chunks and summaries as memories for other systems. Versions, conversations, directives, held batches and lineage have no place there and are left out.

Example: dbctl export agent.ctx --out agent.jsonl

  dbctl export agent.ctx --subject ann --scope acme --format md --out ann.md`,
	"refresh": `Checks the source of every artefact, many in parallel, and fetches what changed. In directories recorded by dbctl import it also finds new files, by the import's rules. If a file has vanished, its artefact stays in the database but is left out of every context, with that reason, until the file returns. --delete deletes such artefacts.

Reads check what they serve on their own, and check files before they search. Use refresh for new files, for network sources, and for very many files.

Exit code 1 if a source or a directory could not be read.

Example: dbctl refresh agent.ctx acme/docs --dry-run`,
	"embed": `Makes a vector for every page that has none by this model, so that search and assemble with the same --model find pages by their meaning. A question makes up to 256 missing vectors by itself; this command makes all of them. Vectors are stored as they are made, so an interrupted run continues where it stopped. Vectors of other models stay.

System pages, drafts and notes get no vectors in advance. Pages that the model refuses are listed; exit code 1 if there are any.

Nothing is downloaded. A folder must have the files model.safetensors and tokenizer.json of a static model (as model2vec makes them). An endpoint must answer POST /v1/embeddings.

Example: dbctl embed agent.ctx --model http://localhost:11434/v1#nomic-embed-text --scope acme/docs`,
	"assemble": `Prints the context on standard output and a summary line on standard error. Commit the answer with dbctl commit --trace. The assembly writes a manifest, which why, replay and diff read, so the file is opened for writing. With --read-only there is no manifest, and the trace leads nowhere. A filter (--tag, --subject, --meta and others) is applied before the best pages are chosen; system pages, directives and the turns of --session enter whatever it says.

Example: dbctl assemble agent.ctx acme/support 'what may I refund?' --budget 4000 >context.txt`,
	"commit": `Reads the answer from standard input and commits it if it passes the gate. It is held for review if there is no verdict, if the actor judged itself, or if the confidence is below the gate (0.7). A held batch is durable and invisible; its id is printed and the exit code is 4. If somebody wrote an artefact with that id after the context was assembled, the commit is a conflict and nothing is written.

Example: dbctl commit agent.ctx acme/support --trace 01J… --confidence 0.88 --by checker <answer.txt`,
	"rollback": `Records in the manifest that the context led to no answer. It does not undo anything: committed answers stay.

Example: dbctl rollback agent.ctx acme/support --trace 01J…`,
	"review": `A held batch is durable and invisible until it is decided. Writers cannot approve their own batches, under any spelling of their name. Names with non-ASCII characters are shown with their code points, and names that look alike are pointed out.

Example: dbctl review ls agent.ctx`,
	"review ls": "Example: dbctl review ls agent.ctx --scope acme/support",
	"review show": `The read writes a manifest, so the file is opened for writing unless you give --read-only.

Example: dbctl review show agent.ctx 01J…`,
	"review approve": `Checks for conflicts and staleness again. Approving a batch twice returns the first outcome.

--all decides about each batch by itself, oldest first. Batches that would replace, supersede or delete pages are left, unless --replacing is given. What cannot be approved, because of a conflict for example, is listed with the reason, stays held, and makes the exit code 1.

Example: dbctl review approve agent.ctx --all --scope acme/support --actor claude --older 1d --by ann --dry-run`,
	"review reject": `The content stays with the batch and in the log, but it is never served.

Example: dbctl review reject agent.ctx 01J… --by ann --note 'cites the old policy'`,
	"review purge": `Drops the content of held batches that were approved or rejected. The audit keeps who wrote and who decided what.

Example: dbctl review purge agent.ctx --older 30d --by ann --dry-run`,
	"manifest": `The audit has one leaf for each read of content and for each end of a transaction. These verbs read archive and log as files without a lock, so they work while an agent is writing. They show what was written when they started. For unix:PATH they ask the process that serves the database.

Example: dbctl manifest head agent.ctx >head.txt`,
	"manifest ls": `The questions of a database that another process has open are asked of that process. --wide or --columns show more columns: LSN and PARENT.

Example: dbctl manifest ls agent.ctx --type assemble --session chat-1 --since 1h`,
	"manifest tail": `Prints one line per leaf, oldest first; with --json, one object per line. It follows a writing agent with a delay of a quarter of a second.

Example: dbctl manifest tail -f agent.ctx`,
	"manifest show": `Page numbers are shown as references, taken from the leaves that wrote the pages.

Example: dbctl manifest show agent.ctx 01J…`,
	"manifest head": `Keep the line where nobody who can edit the database can change it. dbctl manifest verify --head then detects any later edit or rollback of the log. While an agent is writing, the head covers what can be read now; that part is synced first, so that a power cut cannot lose it.

Example: dbctl manifest head agent.ctx >>heads.txt`,
	"manifest prove": `With --json the proof can be passed on: dbctl manifest verify --proof PATH --head HEAD checks it without the database. A leaf contains pages' names, digests and decisions, but no texts.

Example: dbctl manifest prove agent.ctx 12 --head head.txt --json >proof.json`,
	"manifest verify": `Rehashes every leaf, rebuilds the tree, and compares it with the stored hashes, the tree's checkpoints and the head. Exit code 3 if anything differs. Without a head, an audit that was rolled back or rewritten as a whole cannot be detected. While an agent is writing, it covers what could be read when it started.

Example: dbctl manifest verify agent.ctx --head head.txt`,
	"why": `Answers from the manifest and the stored versions, without assembling again. Read-only.

Example: dbctl why agent.ctx 01J… refund-policy

    dbctl why agent.ctx --turn acme/support:block-chat-1-4 refund-policy`,
	"replay": `Renders a past context from its manifest and the page versions it names, without asking any source, and compares the digest. Standard output gets exactly the recorded bytes. Exit code 1 if they differ or can no longer be rendered; standard error says why. The read writes a manifest, so the file is opened for writing unless you give --read-only.

Example: dbctl replay agent.ctx 01J… >context.txt`,
	"diff": `Compares two contexts by their manifests: pages that only one has, pages that differ in version, form or score, and settings that differ. Read-only without --text.

Example: dbctl diff agent.ctx 01J… 01J… --text`,
	"stat": `Prints sizes and counters. Read-only. Rows that are only in the log are counted as unflushed; after an unclean shutdown there may be some until the next write.

Example: dbctl stat agent.ctx --json`,
	"health": `Reads every text of the scope and the newest contexts in the audit. Read-only; it prints ids and no contents, so it writes no manifest. It works beside a process that has the database open; --wait says how long a busy one may take to answer.

Two artefacts contradict each other if they have the same subject and the same metadata "key", and different texts. Each finding prints a command that deletes the artefacts it names; raise --examples to name more.

Example: dbctl health agent.ctx acme/support`,
	"check": `Reads every row, every text, the catalogue, the audit and the pages of the file, and compares them with each other. Read-only. Exit code 3 if anything is damaged. The check runs in a child process, because certain damage crashes the page walk; the crash is then reported as damage with its signal. After an unclean shutdown, rows that are only in the log are not compared until the next write.

While another process has the database open, the check is refused (exit code 5); --online lets that process do it.

Example: dbctl check agent.ctx`,
	"gc": `Drops versions that were replaced or deleted longer ago than --keep-for, are not among the newest --keep-versions, and are not referred to by a held batch, a session, or the lineage or source of a live artefact. Their texts, vectors and index words are removed; names, times and digests stay. Reading a dropped version, or replaying a context that contained it, reports when it was dropped and by which run. Manifests are not changed, and why still works.

What remains is bounded too: history lists the newest --keep-records dropped versions of each artefact, and the names of the newest --keep-names deleted artefacts are kept. Without --scope, a run also drops drafts shown by old contexts, decided reviews, and session data of deleted turns, once they are older than --keep-for, and the names of scopes in which nothing is left.

gc does not erase: copies remain in backups, and in the log until it is cut, and the salted digests can still prove them. The file does not shrink; later writes reuse its free space, and dbctl compact gives it back to the disk.

A run consists of commits of a few hundred versions each. If you press Ctrl-C, completed commits stay and the next run continues. Expired artefacts stay unless you give --expired.

Example: dbctl gc agent.ctx --keep-versions 3 --keep-for 90d --dry-run`,
	"compact": `Copies the rows to a new file, which then takes the place of the old one. What gc and deletions freed goes back to the disk; without this, later writes use it. Compacting takes about as long as copying the file, and as much space.

It works beside an agent that has the database open: the agent does it, and reads and writes go on. A crash at any step leaves one whole file. Ctrl-C before the new file is in place leaves the old one.

Example: dbctl compact agent.ctx --dry-run`,
	"erase run": `Erases all versions of what you name, and everything else that holds its words: turns and what was decided about them, drafts, held batches, questions, summaries, vectors and the index. Then the log is cut and the file is written anew, so that no file of the database contains any of it. Run it with --dry-run first: the report lists what goes, what was derived from it, which contexts showed it, and what was committed from those contexts.

The audit stays and still verifies against every earlier head. It keeps names, times and counts, and digests that nobody can guess from, because their salts are erased. With --names it loses the names, too: leaves that have them keep their hashes and lose their bodies. Backups and copies made earlier are out of reach; docs/erase.md lists what else stays visible.

Erasing takes about as long as copying the file, and as much space. If it is interrupted, the next open for writing finishes it, and takes nothing that was written since; dbctl erase receipt then makes its receipt. The receipt proves to others that the erase is in the audit; check it with dbctl erase verify.

Tenants may use one name for different people: name the tenant's scope, too.

Example: dbctl erase agent.ctx --subject ann --scope acme --by privacy-desk --reason "request 4711" --dry-run`,
	"erase ls": `Lists the erases that are finished: their trace, and who did them, when and why. The names of what was erased are not kept.

Example: dbctl erase ls agent.ctx`,
	"erase receipt": `Makes the receipt of a finished erase again, under the present head. Use it if the first one was lost, or was never written because the erase was interrupted and a later open finished it.

Example: dbctl erase receipt agent.ctx 01J8… -o receipt.json`,
	"erase verify": `Checks that the leaf in the receipt says what the receipt says, and that it is in the audit with the receipt's head. To know that this head is that of the database, compare it with one you got elsewhere: dbctl manifest verify FILE --head HEAD.

Example: dbctl erase verify receipt.json`,
	"backup": `Copies file, log and audit so that the copy can be opened as it is, and prints the head of the copy. Keep the head elsewhere: dbctl restore --head verifies the backup against it. Beside an agent that has the file open, the agent makes the copy. The audit records the name and the time of the backup, so that the report of a later erase can name it; if the file cannot be written, it does not.

Example: dbctl backup agent.ctx backups/agent-2027-01-31.ctx`,
	"restore": `Checks the whole backup and verifies its audit before writing anything. The audit of the restored database records the restore. A head taken after the backup does not verify against the restored database.

A backup still has everything that was erased after it was made. Give the receipts of those erases with --erased: each erase is repeated in the copy before the copy becomes FILE. Receipts of erases that the backup already contains are skipped.

Example: dbctl restore backups/agent-2027-01-31.ctx agent.ctx --force --by ann`,
	"salvage": `Copies to a new database every artefact that can be read completely, drafts waiting for review, directives and file roots, and lists what is lost. A row is copied only if its checksum matches, a text only if its digest matches. If commits are lost and nothing shows what they wrote, artefacts are copied in the newest state that can be proved, and those that may have changed since are listed. Versions start at 1 in the copy; older versions and the audit stay in the old files, where the manifest verbs can read them. Exit code 3 if anything is lost. If you have a backup, restore it instead.

Example: dbctl salvage agent.ctx saved.ctx --by ann`,
	"demo": `Runs the main verbs on a copy of the folder and shows each command with its result: the folder is imported, a context assembled, a file edited so that a page becomes dirty, and an answer is first held and then committed; then what happened is explained, replayed and verified. No model is called: the answer is made from the best page.

Example: dbctl demo ~/notes`,
	"session": `A session is a conversation of a scope. Turns that a pass removes from the window stay in the file: recall prints them, undo brings them back.

Example: dbctl session pass agent.ctx acme/support chat-1 'refund limit' --dry-run`,
	"session ls": "Example: dbctl session ls agent.ctx acme/support",
	"session show": `TRACE names the context that a turn was written from: dbctl why, diff and replay take it, or its beginning.

Example: dbctl session show agent.ctx acme/support chat-1 --text`,
	"session append": `Trusted path: the commit gate does not apply. Turns of the assistant and of tools are visible in this session only. All turns of one call are one transaction. With --jsonl, messages of the system and messages without words are left out and named on standard error; a message of other blocks, such as an image, gets a word for them.

Example: dbctl session append agent.ctx acme/support chat-1 'what may I refund?'

  dbctl session append agent.ctx acme/support chat-1 --jsonl < messages.jsonl`,
	"session export": `Prints every turn in full, whatever the window shows of it. Expired turns are left out. It is a read and writes a manifest.
Providers refuse a call without its result. So openai and anthropic move late results to their calls, and leave out calls
without a result, results without a call, and parts that the provider does not accept, such as thoughts of another one; their
number is on stderr. md has everything. Anthropic wants a message of the user first: the export of a conversation that the
assistant began has none.

Example: dbctl session export agent.ctx acme/support chat-1 --format md`,
	"session pass": `A pass is one transaction; undo reverts it. Repeating a pass with the same history, intent and parameters writes nothing.

Example: dbctl session pass agent.ctx acme/support chat-1 'refund limit' --keep-last 8`,
	"session recall":  "Example: dbctl session recall agent.ctx acme/support chat-1 block-chat-1-3",
	"session explain": "Example: dbctl session explain agent.ctx acme/support chat-1 block-chat-1-3",
	"session pin":     "Example: dbctl session pin agent.ctx acme/support chat-1 block-chat-1-3",
	"session undo":    "Example: dbctl session undo agent.ctx acme/support chat-1",
	"session passes":  "Example: dbctl session passes agent.ctx acme/support chat-1",
	"session notes": `Reads a JSON object from standard input: goal, state, status, claims [{text, basis}], questions [{question, why_it_matters}], done, open, boundaries [{boundary, reason}], next, text. It replaces the recorded notes.

Example: dbctl session notes agent.ctx acme/support chat-1 <notes.json`,
	"session contract": `Appends in one write. A strict contract that already contains everything is left unchanged.

Example: dbctl session contract agent.ctx acme/support chat-1 session.limn`,
	"session receive": `Reads a handoff packet from standard input: JSON, or a Markdown document. Up to 512 turns that it lists one by one become references, pins are kept while there is room, and nothing counts as verified. If the packet is long, a brief of it is pinned and the packet itself becomes a stub; session recall prints it in full.

Example: dbctl handoff agent.ctx acme/support chat-1 --format json >packet.json; dbctl session receive agent.ctx acme/night chat-2 <packet.json`,
	"session rm": `Deletes the turns of a session with their shorter forms, and what was decided and noted about them. Deleted turns stay readable by reference until gc; to take a conversation out of the files, use dbctl erase --session.

Example: dbctl session rm agent.ctx acme/support chat-1 --dry-run`,
	"session page": "Example: dbctl session page --history history.json --contract session.limn",
	"watch": `Shows what the watcher of a session does, until Ctrl-C: it keeps headroom in the window by compacting the least valuable turns. The process that owns the database does the work for every session that has a window, whichever process appends. If no other process has the database, that is this one. dbctl session undo reverts a pass.

With --summarizer or --summarizer-cmd the owner asks this process for the work on this session, and does it itself if this process does not answer. docs/watcher.md has the rules.

Example: dbctl watch agent.ctx acme/support chat-1 --dry-run`,
	"mcp": `Serves one scope of a database to a model over the Model Context Protocol. The scope and the actor are fixed by the command line; no tool takes a path, a scope or a verdict.

Example: dbctl mcp agent.ctx --scope acme/support --actor claude --write`,
	"mcp serve": `Serves until standard input ends, the parent process ends, or Ctrl-C. Without --write the model can only read. With --write, what the gate does not pass is held for dbctl review, unless --evaluator judges it or --confirm names a person to ask. With --model the tools assemble and search find pages by their meaning, too.

Other processes may use the database while it runs: agents, other servers, dbctl.

Example: dbctl mcp agent.ctx --scope acme/support --actor claude --write`,
	"mcp config": `Prints what a client needs in its configuration to start dbctl mcp with these flags. With --write and neither --confirm nor --evaluator, writes are judged by --evaluator supported. dbctl setup does the whole: server, hooks and skill.

--install calls claude mcp add, codex mcp add, gemini mcp add or code --add-mcp, and merges the block into the file of claude-desktop or cursor. Restart the client afterwards.

Example: dbctl mcp config claude-desktop agent.ctx --scope acme/support --actor claude --write`,
	"serve": `Answers JSON over HTTP at a unix socket that only you can use, or at a loopback address. The first line of output says where. PROTOCOL.md describes the calls.

If an agent has the database open, serve asks it, as every verb does. If not, serve owns the files, and agents that start later ask serve. When serve ends, one of them takes its place.

While serve owns the files it makes room in every conversation that has a window, ahead of need. --summarizer and --summarizer-cmd write the summaries for that; docs/watcher.md has the rules.

It ends on Ctrl-C, by dbctl stop, by POST /v1/stop of an operator, and as --idle, --parent and --stdin say.

Example: dbctl serve agent.ctx --idle 30m`,
	"ui": `Serves pages at 127.0.0.1 until Ctrl-C and prints a link that works once. They show what the model saw in each context, what was left out and why, what changed since the context before, versions and sources of pages, how full the window of a session was, held batches, and the state of the database; they follow what happens.

Without --write the pages change nothing but the audit: what shows text of pages leaves a manifest by the actor ui. Sources are compared and never fetched. With --read-only not even a manifest is left.

If an agent has the database open, ui asks it, as every verb does. If not, ui owns the files, and agents that start later ask ui; only with --write it then makes room in conversations that have a window.

Example: dbctl ui agent.ctx --open`,
	"stop": `Asks the process that serves a database to end, and waits up to --wait for that. A process that serves the database beside its own work, such as an agent, refuses: end it where it runs. If no process has the database open, it does nothing and succeeds.

Example: dbctl stop agent.ctx --wait 10s`,
	"setup": `Puts a memory to use in an agent host with one command: the MCP server (dbctl mcp --write, judged by --evaluator supported unless told otherwise), the hooks that capture conversations (dbctl hook), and the skill that tells the model how to use both. The server is registered by the client's own command where it has one (claude mcp add, codex mcp add, gemini mcp add). Hooks, and the server of Cursor, are merged into the client's JSON, of which a backup is kept.

Repeating it with other flags replaces what is there. --undo removes it; the database stays. Restart the client afterwards.

Example: dbctl setup claude-code agent.ctx --scope acme/dev`,
	"hook": `Reads the event of an agent host's hook as JSON from standard input and appends what was said to a conversation: the prompt of UserPromptSubmit, call and result of PostToolUse and PostToolUseFailure, the answers of Stop. The events of Codex, Gemini CLI and Cursor with the same meaning are read, too. Other events are ignored. Text between <private> and </private> is left out. It prints nothing unless --json or --dry-run is given, because a host may show a hook's output to the model. docs/hooks.md has the configuration.

Example: dbctl hook agent.ctx --scope acme/dev`,
	"handoff": `Packages a session for another agent without calling a model. A source counts as verified if its hash, computed now, equals the one it was read with, and the manifests show that an answer of this session read it. The packet is short however long the session is: it lists the newest turns one by one and older ones as ranges, and counts what it leaves out. It quotes first lines of turns, so it writes a manifest and opens the file for writing.

With --format limn and a contract file, statements that the file lacks are appended in one write. Statements about this session that no longer hold are withdrawn: finished work, removed directives, answered questions. Without a contract file, a complete new contract is printed; do not append it to another one.

Example: dbctl handoff agent.ctx acme/support chat-1 --to 'night shift' >handoff-packet.md

    dbctl handoff agent.ctx acme/support chat-1 session.limn --format limn`,
	"retention": `A policy is stored in the database, for one scope and those below it, or with --default for the whole database. Each field is looked up by itself: in the scope, then in its ancestors, then in the default. The first value found counts; "forever" is a value, "inherit" is not. A field without a value deletes nothing.

Nothing is deleted until somebody runs "dbctl retention run", or a program opens the database with Options.Maintain, as dbctl serve does once a day. Retention is not erase: bytes stay in free pages, the log and backups for some time.

Example: dbctl retention set agent.ctx acme --kind scratch=7d --sessions 90d --versions 30d --by ann`,
	"retention set": `An age is a duration such as 36h, 30d or 8w, or "forever", or "inherit" to remove the value. Fields that you do not give stay as they are.

Example: dbctl retention set agent.ctx --default --decided 30d --versions 30d --keep-versions 2`,
	"retention show": "Example: dbctl retention show agent.ctx acme/support",
	"retention preset": `Sets the fields of the preset; others stay as they are. dbctl retention run carries it out, dbctl serve does so once a day.

Example: dbctl retention preset agent.ctx year`,
	"retention run": `Carries out the stored policies in small commits, each with an audit leaf that names the policy. It works beside an agent. Artefacts that are written meanwhile are left for the next run. If you press Ctrl-C, completed commits stay.

Example: dbctl retention run agent.ctx --dry-run`,
	"key": `A database created with a key is encrypted, and every verb then needs the key: --key-file FILE, or CTXPAGE_KEY_FILE. The key wraps the keyring of the database, FILE.keys, which is never part of a backup: keep copies of both, away from the backups. If the key or the keyring is lost, nothing can open the database. docs/encryption.md says what is protected and what is not.

Example: dbctl key new >agent.key; dbctl init agent.ctx --key-file agent.key`,
	"key new": `Prints 32 random bytes in base64. Keep it in a file that only you can read.

Example: (umask 077; dbctl key new >agent.key)`,
	"key add": `Writes the files anew, encrypted with the key of --key-file, checks the copy, and puts it in the place of the plain files. Ids, versions, references, contexts and the audit stay as they are, and every head verifies. It takes the space of a second copy, and no other process may have the database open. After a crash the database is either as it was, and the verb can be repeated, or the next open finishes it.

The plain files are removed, not overwritten: their blocks stay on the disk until it uses them again. Earlier backups and exports stay plain; the output names the backups that the database knows. Keep copies of the key and of FILE.keys.

Example: (umask 077; dbctl key new >agent.key); dbctl key add agent.ctx --key-file agent.key`,
	"key remove": `Writes the files anew in plain text, as key add does in the other direction. The keyring FILE.keys stays: it opens the earlier backups. Afterwards anybody who can read the files can read the database.

Example: dbctl key remove agent.ctx --key-file agent.key`,
	"key rotate": `Encrypts the keyring with the new key. The data is not rewritten, so it is instant. Afterwards only the new key opens the database. Anyone with the old key and a copy of the old keyring can still read it; if both have leaked, export the database and import it into a new one. Close the database first.

Example: dbctl key rotate agent.ctx --key-file old.key --to new.key`,
	"quota": `A quota bounds what a scope and those below it hold: bytes and pages of all stored versions, old ones too, batches that wait for review, and bytes of manifest bodies. A commit that would pass one is refused and says what is used, and by what. Reads, deletes, gc and erase always work; reads are recorded even when the quota of bodies is full, and only writes are refused then. All quotas above a scope count.

Example: dbctl quota set agent.ctx acme --bytes 500M --held 100 --by ann`,
	"quota set": `Limits that you do not give stay as they are. A limit below the current use deletes nothing: it refuses writes that add to it.

Example: dbctl quota set agent.ctx acme/support --pages 100000`,
	"quota show": "Example: dbctl quota show agent.ctx",
	"help":       "Example: dbctl help session pass",
	"version":    "Example: dbctl --version",
	"completion": `Prints a completion script. Load it from your shell's startup file:

  bash, in ~/.bashrc:  source <(dbctl completion bash)
  zsh, in ~/.zshrc:    source <(dbctl completion zsh)
  fish:                dbctl completion fish >~/.config/fish/completions/dbctl.fish

Example: source <(dbctl completion bash)`,
}
