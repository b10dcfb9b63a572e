package dbctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/store"
)

type importCmd struct {
	File        string            `arg:"" help:"Database."`
	Scope       string            `arg:"" help:"Scope to write to. Without PATH: an export that dbctl export wrote."`
	Path        []string          `arg:"" optional:"" help:"Directory to read, or files of another system."`
	From        string            `help:"Format of the files of another system: openai, responses, anthropic, claude-code, codex, gemini, copilot, cursor, opencode, hermes, langchain, sharegpt, letta, mem0, mcp-memory, chatgpt, claude, langgraph, pam or jsonl. Default: detected from the file."`
	Map         map[string]string `help:"For --from jsonl, which field is what: id=.key,text=.body.text. Also time, subject, group, seq, tags and expires." mapsep:","`
	Session     string            `help:"Session for messages of a file that names no conversation. Default: FORMAT/NAME, after the name of the file."`
	Branches    bool              `help:"For ChatGPT: also take turns that were regenerated or edited away."`
	Trust       string            `help:"Provenance of imported facts and of what the user said: scratch, tool, validated or chunk. With validated, contexts and searches show them." default:"scratch"`
	By          string            `help:"Who vouches for the import, for the audit." default:"operator"`
	Why         string            `help:"Why, for the audit. With --trust."`
	SkipUnknown bool              `help:"For transcripts: leave out lines with words whose type is unknown, and count them, instead of refusing the file."`
	Follow      bool              `help:"For one file that is still being written: import what comes, until Ctrl-C."`
	NoSecret    bool              `help:"Give a new database a secret of its own: take this for an export from somebody else, who knows the fences that its secret makes."`
	Erased      []string          `aliases:"receipt" help:"Receipt of an erase that came after the export was made; may be given several times. Content that it erased is left out." placeholder:"RECEIPT" sep:"none"`
	Roots       []string          `help:"For an export: also import its file roots and recorded directories at or below this directory; may be given several times. Without it they are left out and listed." placeholder:"DIR" sep:"none"`
	Policies    bool              `help:"For an export: also import its retention policies and quotas."`
	Prefix      string            `help:"Prefix for each id. The id is the path below DIR."`
	MaxSize     int64             `help:"Skip files larger than this, in bytes." default:"1048576"`
	Delete      bool              `help:"Delete the artefacts of files that no longer exist or no longer match."`
	DryRun      bool              `help:"Show what would be written."`
	Verbose     bool              `short:"v" help:"List all skipped files instead of the first 20 per reason. --json always lists all."`
}

type importView struct {
	Scope     string         `json:"scope"`
	Dir       string         `json:"dir"`
	Files     int            `json:"files"`
	Written   int            `json:"written"`
	Unchanged int            `json:"unchanged"`
	Replaced  int            `json:"replaced"` // of those written: they had come from somewhere else
	Bytes     int64          `json:"bytes"`
	Skipped   map[string]int `json:"skipped"` // by reason
	// SkippedFiles lists every skipped file, by reason and path.
	SkippedFiles []freshness.Skipped `json:"skipped_files"`
	Removed      []string            `json:"removed"`
	Deleted      int                 `json:"deleted"`
	DryRun       bool                `json:"dry_run,omitempty"`
	verbose      bool
}

// What one transaction of an import takes.
const (
	importFiles = 300
	importBytes = 8 << 20
)

// importNames limits the skipped files that are named for each reason without --verbose.
const importNames = 20

func (c *importCmd) Run(a *app) error {
	scope, paths, err := c.target()
	if err != nil {
		return err
	}
	if scope == "" {
		return c.exported(a, paths[0])
	}
	directories := 0
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return failed("import: %s does not exist", path)
		case err != nil:
			return failed("import: %v", err)
		case info.IsDir():
			directories++
		}
	}
	switch {
	case directories == 0:
		return c.foreign(a, scope, paths)
	case len(paths) > 1 || c.From != "":
		return usage("import: expected one directory, or files of another system")
	}
	return c.directory(a, scope, paths[0])
}

// directory imports the files below a directory.
func (c *importCmd) directory(a *app, scope, path string) error {
	dir, err := filepath.Abs(path)
	if err != nil {
		return failed("import: %v", err)
	}
	if c.MaxSize < 1 || c.MaxSize > store.MaxText {
		return usage("--max-size %d: expected 1 to %d", c.MaxSize, store.MaxText)
	}
	if !usableID(c.Prefix) {
		return usage("--prefix %q: expected at most %d bytes without control characters: it begins each id", c.Prefix, store.MaxID)
	}
	file, err := filepath.Abs(c.File)
	if err != nil {
		return failed("import: %v", err)
	}
	w := &freshness.Walker{Dir: dir, MaxSize: c.MaxSize, Except: []string{file}, Usable: usableID}
	if err := w.Walk(a.ctx); err != nil {
		return err
	}
	return a.with(c.File, !c.DryRun, func(db *ctxpage.DB) error {
		im := &importer{scope: db.Scope(scope), walker: w, prefix: c.Prefix, dry: c.DryRun, remove: c.Delete, progress: a.progress()}
		im.out = importView{Scope: scope, Dir: dir, DryRun: c.DryRun, verbose: c.Verbose}
		if !c.DryRun && len(w.Files) > 0 {
			if err := db.Admin().AddFileRoot(a.ctx, dir); err != nil {
				return err
			}
		}
		if err := im.run(a.ctx); err != nil {
			return fmt.Errorf("import stopped after %s: %w", plural(im.out.Written, "file", "files"), err)
		}
		if !c.DryRun && len(w.Files) > 0 {
			if err := im.scope.AddDirectory(a.ctx, ctxpage.Directory{Dir: dir, Prefix: c.Prefix, MaxSize: c.MaxSize}); err != nil {
				return err
			}
		}
		return a.emit(im.out, im.out.print)
	})
}

// importer brings a scope up to date with the files a walker found.
type importer struct {
	scope    *ctxpage.Scope
	walker   *freshness.Walker
	prefix   string
	dry      bool
	remove   bool
	progress func(what string, done, total uint64)
	have     map[string]stored // by id
	out      importView
	batch    []ctxpage.Artefact
	bytes    int64
}

// stored describes an artefact that the database has already.
type stored struct {
	source string
	hash   uint64
}

func (im *importer) run(ctx context.Context) error {
	w := im.walker
	im.out.Files, im.out.Removed = len(w.Files), []string{}
	im.have = map[string]stored{}
	err := eachArtefact(ctx, im.scope, im.prefix, func(v *ctxpage.Version) {
		im.have[v.ID] = stored{v.Source, v.SourceHash}
	})
	if err != nil {
		return err
	}
	for i, f := range w.Files {
		if err := im.file(ctx, f); err != nil {
			return err
		}
		im.progress("import", uint64(i+1), uint64(len(w.Files)))
	}
	if err := im.flush(ctx); err != nil {
		return err
	}
	im.out.Skipped, im.out.SkippedFiles = w.Counts(), nonNil(w.Skipped)
	sort.Slice(im.out.SkippedFiles, func(i, j int) bool {
		a, b := &im.out.SkippedFiles[i], &im.out.SkippedFiles[j]
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Path, b.Path)) < 0
	})
	return im.gone(ctx)
}

// file compares a file with what is stored, by hash, and takes it if it differs.
func (im *importer) file(ctx context.Context, f freshness.Found) error {
	id, source := store.Canonical(im.prefix+f.Rel), "file:"+f.Path
	if !usableID(id) || len(source) > store.MaxSource {
		im.walker.Skip(f.Rel, freshness.Name)
		return nil
	}
	text, hash, skip := freshness.ReadText(f.Path)
	if skip != "" {
		im.walker.Skip(f.Rel, skip)
		if skip == freshness.Unreadable {
			im.walker.Unread = append(im.walker.Unread, f.Rel)
		}
		im.out.Files--
		return nil
	}
	known, ok := im.have[id]
	delete(im.have, id)
	if ok && known.source == source && known.hash == hash {
		im.out.Unchanged++
		return nil
	}
	if ok && known.source != source {
		im.out.Replaced++
	}
	im.batch = append(im.batch, ctxpage.Artefact{ID: id, Kind: store.KindChunk, Source: source, Group: id})
	if im.bytes += int64(len(text)); len(im.batch) >= importFiles || im.bytes >= importBytes {
		return im.flush(ctx)
	}
	return nil
}

var errUnread = errors.New("files that can no longer be read")

// flush writes a batch. The text is read again by the source, which notes what the file is recognised by; a file that
// can no longer be read by then is skipped.
func (im *importer) flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	batch, bytes := im.batch, im.bytes
	im.batch, im.bytes = nil, 0
	if len(batch) == 0 {
		return nil
	}
	if im.dry {
		im.out.Written += len(batch)
		im.out.Bytes += bytes
		return nil
	}
	for len(batch) > 0 {
		unread := map[string]bool{} // a transaction does not outlive a write that failed: it is made again without those
		err := im.scope.Update(ctx, func(tx *ctxpage.Txn) error {
			clear(unread)
			for _, art := range batch {
				err := tx.Put(ctx, art)
				if err != nil && (ctx.Err() != nil || !strings.HasPrefix(err.Error(), "fetch ")) {
					return err
				}
				if err != nil {
					unread[art.ID] = true
				}
			}
			if len(unread) > 0 {
				return errUnread
			}
			return nil
		})
		if err == nil {
			break
		}
		if !errors.Is(err, errUnread) {
			return err
		}
		batch = slices.DeleteFunc(batch, func(art ctxpage.Artefact) bool { return unread[art.ID] })
		for _, id := range slices.Sorted(maps.Keys(unread)) {
			im.walker.Skip(strings.TrimPrefix(id, im.prefix), freshness.Unreadable)
		}
	}
	im.out.Written += len(batch)
	im.out.Bytes += bytes
	return nil
}

// gone finds artefacts imported from below the directory whose file is no longer taken. Of what could not be read
// nothing is known, so it stays.
func (im *importer) gone(ctx context.Context) error {
	below := "file:" + strings.TrimSuffix(filepath.ToSlash(im.walker.Dir), "/") + "/"
	for _, id := range slices.Sorted(maps.Keys(im.have)) {
		rel, ok := strings.CutPrefix(im.have[id].source, below)
		if ok && id == store.Canonical(im.prefix+rel) && !im.walker.Unknown(rel) {
			im.out.Removed = append(im.out.Removed, id)
		}
	}
	if !im.remove {
		return nil
	}
	im.out.Deleted = len(im.out.Removed)
	if im.dry {
		return nil
	}
	for part := range slices.Chunk(im.out.Removed, importFiles) {
		if err := deleteAll(ctx, im.scope, part); err != nil {
			return err
		}
	}
	return nil
}

func usableID(s string) bool {
	return len(s) <= store.MaxID && !strings.HasPrefix(s, store.ReservedPrefix) && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func (v *importView) print(w io.Writer) {
	fmt.Fprintf(w, "%s %d of %s from %s into %s, %d unchanged\n", would(v.DryRun, "wrote", "would write"), v.Written, plural(v.Files, "text file", "text files"), v.Dir, v.Scope, v.Unchanged)
	if v.Replaced > 0 {
		fmt.Fprintf(w, "%s had come from somewhere else: give each directory its own --prefix\n", plural(v.Replaced, "artefact", "artefacts"))
	}
	v.printSkipped(w)
	format := "its file is gone, --delete would delete it: %s\n"
	if v.Deleted > 0 {
		format = would(v.DryRun, "deleted", "would delete") + " %s: its file is gone\n"
	}
	printEach(w, format, v.Removed)
}

func (v *importView) printSkipped(w io.Writer) {
	named, reason := 0, ""
	for _, f := range v.SkippedFiles {
		if f.Reason != reason {
			named, reason = 0, f.Reason
			fmt.Fprintf(w, "skipped %d: %s\n", v.Skipped[reason], reason)
		}
		named++
		switch {
		case v.verbose || named <= importNames:
			fmt.Fprintf(w, "  %s\n", line(f.Path))
		case named == importNames+1:
			fmt.Fprintf(w, "  and %d more; --verbose names them all\n", v.Skipped[reason]-importNames)
		}
	}
}
