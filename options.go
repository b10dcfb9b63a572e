package ctxpage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
)

// The interfaces that a host implements are here, beside the options that name them: Counter and Source come from their packages;
// Embedder, Evaluator and Summarizer are declared below. All are called concurrently and under no lock of the
// database, so they may be slow, may be a network, and must not call the database.

// Defaults of Options, GCOptions and Directory.
const (
	defaultGate = 0.7
	// GateOff lets every verdict from outside pass. Commits with a missing or self-certified verdict are still held.
	GateOff        = -1
	defaultKeepFor = 30 * 24 * time.Hour
	defaultMaxFile = 1 << 20 // bytes of a file of a recorded directory
)

// Options configure a database. The zero value is ready to use. Options are taken by value and never changed.
type Options struct {
	// WorkingSet limits the bytes of pages kept in memory; 0: 64 MiB, negative: keep none.
	WorkingSet int64
	// Gate is the confidence below which Commit holds a batch; 0: 0.7, GateOff: no gate.
	Gate float64
	// PageTokens is the size at which a text is split into pages; 0: 512.
	PageTokens int
	// Counter counts tokens; nil: the built-in estimator.
	Counter token.Counter
	// Sources fetch pages, by scheme, in addition to file: and page:. They run under SourceTimeout.
	Sources map[string]store.Source
	// FileRoots are the directories that file: sources may read. RecordedRoots also allows the directories that
	// Admin.AddFileRoot recorded in the file. Leave it off for a file from elsewhere: its recorded roots decide what is
	// read on this computer.
	FileRoots     []string
	RecordedRoots bool
	SourceTimeout time.Duration // for one probe or fetch; 0: 10 s
	// RefreshEvery refreshes the file: sources and recorded directories of all scopes in the background, first at Open
	// and then at this interval; 0: never. Close waits for it. A read-only database does not refresh.
	RefreshEvery time.Duration
	// Maintain carries out the stored retention policies in the background, first at Open and then at this interval; 0:
	// never, and nothing is deleted by age unless Admin.Retention().Run is called. Close waits for it.
	Maintain time.Duration
	// Embedder finds pages by their meaning beside words, and judges relevance by both; nil: words only. EmbedTimeout
	// bounds all calls of one question; 0: 10 s. When the embedder fails, the question is answered by words only and says so.
	Embedder     Embedder
	EmbedTimeout time.Duration
	// Evaluator judges a draft when Commit gets no verdict. It must not be the writer.
	Evaluator Evaluator
	// NoWatch leaves the headroom of sessions to Watcher.Start, Watcher.Step and commits. Without it the process that owns the
	// files makes room ahead of need in every session that has a window, whichever process appends (docs/watcher.md).
	NoWatch bool
	// Summarizer shortens the turns that a watcher compacts, and pages that fit into a context only in part and have no
	// stored summary; nil: extracts. SummarizeTimeout bounds one summary, and the time for which an owner waits for a process
	// that started the watcher of a session; 0: 30 s.
	Summarizer       Summarizer
	SummarizeTimeout time.Duration
	// AuditSync syncs the manifest of a read before the read returns. Without it manifests are written before the read returns
	// and synced within 100 ms: a power cut may lose the last manifests, a killed process does not.
	AuditSync bool
	// DigestQuestions makes the manifest of a search or an assembly keep only a salted digest of its question, which nobody
	// can read. Without it the text is kept beside the leaf, where it can be erased. It does not change what was kept before.
	DigestQuestions bool
	// Clock and Rand are the only time and randomness in what the database stores, except for keys and nonces, which always
	// come from crypto/rand; nil: the system's. Open returns an *InvalidError
	// for a Clock outside the years 1 to 9999.
	Clock func() time.Time
	Rand  io.Reader
	// Logger gets recoveries and failures of background work; nil: they are not logged. Errors are returned, not
	// logged.
	Logger *slog.Logger
	// Observer is told of reads, commits, faults and jobs, with durations and sizes, but no text and no ids; nil: nobody. Scopes
	// are digests, or their names with ObserveScopes. The work of other processes is not told: each has its own observer.
	Observer      ops.Observer
	ObserveScopes bool
	// ReadOnly opens the files for reading. Nothing is written: no page is fetched again, and reads leave no manifest;
	// the manifest that an Assembly or a Search carries says so (Record.ReadOnly).
	ReadOnly bool
	// Identity is the id and secret of a database that Open creates; zero: new ones. An import into a new file takes the identity of
	// the export (ExportOf), because fences in contexts are made from it.
	Identity store.Info
	// Key encrypts the files: 32 random bytes; nil: they are not encrypted. A database stays as it was made: errors match
	// ErrKey where the key does not fit, or is missing. Keyring, with ReadOnly, is the path of the keyring of
	// a copy that has none beside it; "": the path of the database with .keys behind it.
	// docs/encryption.md says what a key protects, and that nothing opens a database whose key or keyring is lost.
	Key     []byte
	Keyring string
	// MustExist makes Open fail with ErrNotExist instead of creating a database.
	MustExist bool
	// Exclusive keeps the files to this process: Open serves no other one, and fails with a *LockedError while another
	// one has them.
	Exclusive bool
	// Stop is called once, in its own goroutine, when another process asks this one to end while it owns the files (dbctl
	// stop). It should have the database closed. nil: such requests are refused.
	Stop func()
	// LockTimeout bounds the time for which Open waits for another process that keeps the files to itself; 0: it does not wait.
	LockTimeout time.Duration
	// AnswerTimeout bounds the time for which the process that owns the files may be silent, work under way excepted, before a call
	// fails; 0: 2 s. A machine under load needs more.
	AnswerTimeout time.Duration
	// Store holds the database instead of files at the path; the path is then only a name in errors and Stats. Open the
	// store with StateKinds. A successful Open takes it over and Close closes it; after a failed Open it is still the
	// caller's. With ReadOnly, open the store for reading too. Key, Keyring, MustExist, Identity, Exclusive and LockTimeout
	// describe how files are opened: with a Store they return an *InvalidError.
	Store store.Store
}

// withDefaults fills in the defaults and reports all broken rules at once. It wraps Rand in a lock, because ids are
// made concurrently and io.Reader promises nothing about that.
func (o Options) withDefaults() (Options, error) {
	if o.WorkingSet == 0 {
		o.WorkingSet = 64 << 20
	}
	if o.Gate == 0 {
		o.Gate = defaultGate
	}
	if o.PageTokens == 0 {
		o.PageTokens = store.PageTokens
	}
	if o.Counter == nil {
		o.Counter = token.Default()
	}
	if o.SourceTimeout == 0 {
		o.SourceTimeout = 10 * time.Second
	}
	if o.EmbedTimeout == 0 {
		o.EmbedTimeout = 10 * time.Second
	}
	if o.SummarizeTimeout == 0 {
		o.SummarizeTimeout = 30 * time.Second
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	o.Rand = &filestore.LockedReader{R: o.Rand}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	var errs []error
	if o.Gate != GateOff && !(o.Gate > 0 && o.Gate <= 1) {
		errs = append(errs, store.Invalid("Options.Gate", fmt.Sprint(o.Gate), "a confidence above 0 up to 1, or GateOff"))
	}
	if o.PageTokens < store.MinPageTokens || o.PageTokens > store.MaxPageTokens {
		errs = append(errs, store.Invalid("Options.PageTokens", fmt.Sprint(o.PageTokens), fmt.Sprintf("%d to %d", store.MinPageTokens, store.MaxPageTokens)))
	}
	for scheme := range o.Sources {
		if scheme == "page" || scheme == "" {
			errs = append(errs, store.Invalid("Options.Sources", scheme, "schemes other than page"))
		}
	}
	if o.SourceTimeout < 0 || o.RefreshEvery < 0 || o.Maintain < 0 || o.LockTimeout < 0 || o.AnswerTimeout < 0 || o.EmbedTimeout < 0 || o.SummarizeTimeout < 0 {
		errs = append(errs, store.Invalid("Options", "a negative timeout", "zero or more"))
	}
	return o, errors.Join(append(errs, o.checkStore())...)
}

// checkStore refuses options that describe files when the caller brings a store.
func (o Options) checkStore() error {
	if o.Store == nil {
		return nil
	}
	var errs []error
	for _, f := range []struct {
		name string
		set  bool
	}{{"MustExist", o.MustExist}, {"Exclusive", o.Exclusive}, {"Stop", o.Stop != nil}, {"LockTimeout", o.LockTimeout != 0}, {"Identity", o.Identity.ID != ""}, {"Key", o.Key != nil}, {"Keyring", o.Keyring != ""}} {
		if f.set {
			errs = append(errs, store.Invalid("Options."+f.name, "a value beside Options.Store", "nothing: tell the store when you open it"))
		}
	}
	return errors.Join(errs...)
}

// Embedder turns texts into vectors whose angle tells how similar their meanings are. Package embed has a client for
// the endpoint that most servers speak.
type Embedder interface {
	// Model names the model. Vectors are stored with their page under this name and are never compared across names, so
	// the name must change when the vectors do.
	Model() string
	// Embed returns the vector of each text, in order, all of one length. It may use a network. It runs concurrently,
	// under a deadline (Options.EmbedTimeout) and under no lock of the database, and must not call the database. The
	// database owns the result.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// Draft is a transaction as an Evaluator sees it.
type Draft struct {
	Scope, Actor string
	Trace        string
	Writes       []Artefact
	Deletes      []string
	// Context has the pages that the reads of Trace showed, in their order and form. Pages that gc took since are missing.
	Context []Block
}

// Evaluator judges drafts when Commit gets no verdict. It runs under no lock of the database. Its name is recorded in
// the manifest.
type Evaluator interface {
	Name() string
	Evaluate(ctx context.Context, d Draft) (confidence float64, note string, err error)
}

// Summarizer shortens texts, for the watcher and for assemblies. It may be slow and may fail. It is called concurrently
// and under no lock, must not call the database, and is never called by a commit that makes room for itself. When it
// fails, an extract takes its place and the manifest says so. A summary is stored as a derived page under the
// summarizer's name and is not requested again while its page is unchanged.
type Summarizer interface {
	Name() string
	// Summarize shortens a text to at most maxTokens by Options.Counter. An assembly drops a longer answer.
	Summarize(ctx context.Context, text string, maxTokens int) (string, error)
}
