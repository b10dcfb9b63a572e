package pgstore

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
)

// Options configure a Store. The zero value is ready to use.
type Options struct {
	// Name is the database in the schema; "": "main". It is made if it does not exist, unless MustExist is set.
	Name      string
	MustExist bool
	// Host is the name of this machine: operators see the follower under it, and file: sources are checked only on the host whose
	// name they have. At most 200 bytes, printable, and the same at each start; "": the name that the system has.
	Host string
	// CacheDir is the directory of the local cache, and of audit leaves of reads on their way to the server. "": a temporary one,
	// removed by Close. A directory that is kept makes the next Open on this host fast. One process uses it at a time.
	CacheDir string
	// MaxLag is how long reads go on without hearing from the server; 0: 5 s, negative: without limit. Then they fail with
	// ErrBehind.
	MaxLag time.Duration
	// Patience is how long a call waits for a server that does not answer; 0: 30 s. A commit that has not been sent then ends
	// with ErrUnavailable; one that was sent, with store.ErrOutcomeUnknown.
	Patience time.Duration
	// Poll is how often a host looks for commits of others; 0: 50 ms.
	Poll time.Duration
	// NoNotify switches LISTEN and NOTIFY off, for poolers that do not pass them on: other hosts then see commits by Poll alone.
	NoNotify bool
	// SynchronousCommit is the server's setting for commits: "" means on; remote_apply and remote_write wait for standbys.
	SynchronousCommit string
	// KeepRecords is how long the server keeps records of the log that an image covers and every live host has; 0: 7 days.
	KeepRecords time.Duration
	// ImageBytes is how much the log grows before a host writes a new image of its rows for hosts that start; 0: 64 MiB or the
	// size of the last image, whichever is more. Negative: never.
	ImageBytes int64

	State     []store.StateKind  // what the pipeline says of its state rows; nil: ctxpage.StateKinds()
	Analyzer  *lexical.Analyzer  // nil: lexical.NewAnalyzer()
	Logger    *slog.Logger       // nil: nothing is logged
	Now       func() time.Time   // nil: time.Now. Deadlines use the system's clock in any case
	Rand      io.Reader          // nil: crypto/rand
	hook      func(string) error // tests: called at steps of a turn
	credulous bool               // tests, a control: a commit or a leaf without an answer is taken for done
	progress  store.Progress     // of the image that Open fetches; CopyToFile
	beat      time.Duration      // tests: how often a host says that it is there; 0: heartbeat
}

// Deadlines that the server keeps for a turn, so that a host that stops in the middle of one does not stop the others for long.
const (
	lockTimeout      = 5 * time.Second  // waiting for the turn
	statementTimeout = 10 * time.Second // one statement
	idleTimeout      = 2 * time.Second  // between the two trips of a turn
	replyTimeout     = 15 * time.Second // ours, for an answer: above the sum of what the server may take
	connectTimeout   = 5 * time.Second
)

const defaultName = "main"

func (o Options) withDefaults() (Options, error) {
	if o.Host == "" {
		o.Host, _ = os.Hostname()
	}
	o.Name = cmp.Or(o.Name, defaultName)
	o.MaxLag = cmp.Or(o.MaxLag, 5*time.Second)
	o.Patience = cmp.Or(o.Patience, 30*time.Second)
	o.Poll = cmp.Or(o.Poll, 50*time.Millisecond)
	o.SynchronousCommit = cmp.Or(o.SynchronousCommit, "on")
	o.beat = cmp.Or(o.beat, heartbeat)
	o.KeepRecords = cmp.Or(o.KeepRecords, 7*24*time.Hour)
	if o.State == nil {
		o.State = ctxpage.StateKinds()
	}
	if o.Analyzer == nil {
		o.Analyzer = lexical.NewAnalyzer()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	o.Rand = &filestore.LockedReader{R: o.Rand}
	switch o.SynchronousCommit {
	case "on", "remote_write", "remote_apply":
	default: // off and local would acknowledge commits that a crash or a failover takes back
		return o, store.Invalid("Options.SynchronousCommit", o.SynchronousCommit, "on, remote_write or remote_apply")
	}
	if len(o.Name) > 200 {
		return o, store.Invalid("Options.Name", o.Name[:20]+"…", "a name of at most 200 bytes")
	}
	if len(o.Host) > 200 || strings.ContainsFunc(o.Host, unicode.IsControl) {
		return o, store.Invalid("Options.Host", fmt.Sprintf("%.20q", o.Host), "a printable name of at most 200 bytes")
	}
	if strings.HasSuffix(o.Name, copySuffix) {
		return o, store.Invalid("Options.Name", o.Name, "the name of a database that is not being copied; repeat the copy to finish it")
	}
	if o.Patience < 0 || o.Poll < time.Millisecond {
		return o, store.Invalid("Options", "a Patience below 0 or a Poll below 1 ms", "0 for the default, or more")
	}
	return o, nil
}
