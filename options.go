package ctxpage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/source"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
	"github.com/ctxpage/ctxpage/wal"
)

// DefaultGate is the confidence below which a speculative commit is held.
const DefaultGate = 0.7

// GateOff lets every verdict from outside pass. A missing or self-certified verdict is still held.
const GateOff = -1

// AuditMode says when the manifest of a read is on disk. It is written before the read returns either way.
type AuditMode uint8

// AuditAsync syncs manifests within 100 ms: a power cut may lose the last ones, a killed process does not. AuditSync
// syncs before the read returns.
const (
	AuditAsync AuditMode = iota
	AuditSync
)

// QuestionMode says what the manifest of a search or an assembly keeps of its question.
type QuestionMode uint8

// KeepQuestions keeps the text beside the leaf, where it can be erased, and a salted digest in the leaf. DigestQuestions
// keeps a digest alone: it tells whether two questions are the same, and nobody can read them.
const (
	KeepQuestions QuestionMode = iota
	DigestQuestions
)

// Options configure a database. The zero value is ready to use; it is taken by value and never changed.
type Options struct {
	// WorkingSet is how many bytes of pages are kept in memory; 0: 64 MiB, negative: none.
	WorkingSet int64
	// Gate is the confidence below which Commit holds a batch; 0: DefaultGate, GateOff: none.
	Gate float64
	// PageTokens is the size at which a text is split; 0: 512.
	PageTokens int
	// Counter counts tokens; nil: the built-in estimator. It may be slow and is called under no lock.
	Counter token.Counter
	// Sources by scheme, beside file: and page:. Called concurrently, under a deadline, under no lock; a source may
	// not call the database.
	Sources map[string]source.Source
	// FileRoots are the directories file: sources may read. RecordedRoots also allows those recorded in the file by
	// DB.AddFileRoot; leave it off for files from elsewhere, which could otherwise name what to read here.
	FileRoots     []string
	RecordedRoots bool
	SourceTimeout time.Duration // of one probe or fetch; 0: 10 s
	// RefreshEvery refreshes the file: sources and recorded directories of all scopes in the background, at Open and then
	// at this interval; 0: never. Close waits for it. A read-only database does not.
	RefreshEvery time.Duration
	// Embedder lets relevance be judged by vectors beside words; nil: by words alone. EmbedTimeout is for what
	// one assembly asks of it; 0: 10 s. When it fails, the assembly is made by words alone, and says so.
	Embedder     Embedder
	EmbedTimeout time.Duration
	// Evaluator judges a draft when Commit is given no verdict. It must not be the writer.
	Evaluator Evaluator
	// Summarizer shortens what the watcher compacts, and a page that a context has room for only in part when no summary
	// of it is stored; nil: extracts stand in. SummarizeTimeout is for one summary of a page; 0: 30 s.
	Summarizer       Summarizer
	SummarizeTimeout time.Duration
	Audit            AuditMode
	// Questions says whether the audit keeps the texts of questions; what was kept before stays.
	Questions QuestionMode
	// Clock and Rand are the only time and randomness the database uses for what it stores; nil: the system's. A Clock
	// outside the years 1 to 9999 gives an InvalidError.
	Clock func() time.Time
	Rand  io.Reader
	// Logger hears of recoveries and failed background work; nil: nobody. Errors are returned, not logged.
	Logger   *slog.Logger
	ReadOnly bool
	// MustExist refuses to create a database.
	MustExist bool
	// LockTimeout is how long Open waits for another process to let go; 0: not at all.
	LockTimeout time.Duration
	// Store holds the database instead of files at the path; the path is then a name in errors and Stats. Open it with
	// StateKinds. A successful Open takes it over, and Close closes it; after a failed Open it is still the caller's.
	// ReadOnly, MustExist and LockTimeout describe how files are opened: with a Store they give an InvalidError.
	Store Store

	noSync  bool // the negative control of crash tests
	trust   bool // tests: what was edited in the file is served
	blind   bool // tests: a copy is opened like the file it was made from
	fs      wal.FS
	segment int64
	rotate  int64
	hook    func(step string) error
}

func (o Options) withDefaults() (Options, error) {
	if o.WorkingSet == 0 {
		o.WorkingSet = 64 << 20
	}
	if o.Gate == 0 {
		o.Gate = DefaultGate
	}
	if o.PageTokens == 0 {
		o.PageTokens = PageTokens
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
	if o.fs == nil {
		o.fs = wal.OS()
	}
	var errs []error
	if o.Gate != GateOff && !(o.Gate > 0 && o.Gate <= 1) {
		errs = append(errs, store.Invalid("Options.Gate", fmt.Sprint(o.Gate), "a confidence above 0 up to 1, or GateOff"))
	}
	if o.PageTokens < store.MinPageTokens || o.PageTokens > MaxPageTokens {
		errs = append(errs, store.Invalid("Options.PageTokens", fmt.Sprint(o.PageTokens), fmt.Sprintf("%d to %d", store.MinPageTokens, MaxPageTokens)))
	}
	for scheme := range o.Sources {
		if scheme == "page" || scheme == "" {
			errs = append(errs, store.Invalid("Options.Sources", scheme, "schemes other than page"))
		}
	}
	if o.SourceTimeout < 0 || o.RefreshEvery < 0 || o.LockTimeout < 0 || o.EmbedTimeout < 0 || o.SummarizeTimeout < 0 {
		errs = append(errs, store.Invalid("Options", "a negative timeout", "zero or more"))
	}
	return o, errors.Join(append(errs, o.checkStore())...)
}

// checkStore refuses options that only a store of files can follow, where the caller brings another store.
func (o Options) checkStore() error {
	if o.Store == nil {
		return nil
	}
	var errs []error
	for _, f := range []struct {
		name string
		set  bool
	}{{"ReadOnly", o.ReadOnly}, {"MustExist", o.MustExist}, {"LockTimeout", o.LockTimeout != 0}} {
		if f.set {
			errs = append(errs, store.Invalid("Options."+f.name, "a value beside Options.Store", "nothing: tell the store when you open it"))
		}
	}
	return errors.Join(errs...)
}

// Embedder turns texts into vectors whose angle tells how near their meanings are. Package embed has a client for the
// endpoint that most servers speak.
type Embedder interface {
	// Model names what makes the vectors. Vectors are stored under it with their page and never compared across names,
	// so it changes when the vectors do.
	Model() string
	// Embed gives the vector of each text, in order, all of one length. It may be a network; it runs concurrently, under
	// a deadline (Options.EmbedTimeout) and under no lock of the database, and may call nothing of it. What it gives is
	// the database's from then on.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// Draft is what an Evaluator judges.
type Draft struct {
	Scope, Actor string
	Trace        string
	Writes       []Artefact
	Deletes      []string
}

// Evaluator judges drafts when Commit is given no verdict. It runs under no lock of the database; its name is recorded.
type Evaluator interface {
	Name() string
	Evaluate(ctx context.Context, d Draft) (confidence float64, note string, err error)
}

// Summarizer shortens texts, for the watcher and for assemblies. It may be slow and may fail: it is called concurrently,
// under no lock, never by a commit that makes room for itself, and an extract takes the place of what it does not give;
// the manifest says so. What it gave is stored as a derived page, with its name, and not asked for again while the page
// stands. It may call nothing of the database.
type Summarizer interface {
	Name() string
	// Summarize shortens a text to at most maxTokens by Options.Counter. An assembly has no use for more.
	Summarize(ctx context.Context, text string, maxTokens int) (string, error)
}
