package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// Cascade says what happens to artefacts that were derived from erased ones. Summaries and copies (a page: source) hold
// the erased content, so they are erased in any case.
type Cascade string

// The cascades.
const (
	// Keep keeps derived artefacts. A context leaves them out, with the reason that a page they
	// derive from changed.
	Keep Cascade = "keep"
	// Rederive erases derived artefacts. The report names those that have other sources, so that they can be
	// derived again.
	Rederive Cascade = "rederive"
	// Erase erases derived artefacts, what was derived from those, and so on.
	Erase Cascade = "erase"
)

// Request names what is to be erased: one of Subject, Scope, Session and Refs.
type Request struct {
	// Subject selects every artefact of which a version names this subject, turns included. With a Scope it selects those
	// of the scope and of the scopes below it alone: tenants may use the same name for different people.
	Subject string
	// Scope without a Subject selects all of a scope and of the scopes below it: artefacts, sessions, directives, held
	// batches, questions.
	Scope string
	// Session selects a conversation, by scope and id: its turns, what was decided about them, and what was asked in
	// it.
	Session store.Ref
	// Refs are artefacts by scope and id; all their versions go.
	Refs []store.Ref
	// By and Reason stay in the audit forever, so they must not name what is erased.
	By, Reason string
	Cascade    Cascade // "": Keep
	// Names also removes the ids, scopes and sessions of what is erased from the audit, and every row that has these
	// names. Leaves that name them lose their bodies and keep their hashes.
	Names bool
	// DryRun makes the report and changes nothing.
	DryRun bool
	// Progress, if not nil, is called from the calling goroutine.
	Progress func(what string, done, total uint64)
}

// Check refuses a request that does not name exactly one thing to erase, or does not say who asks for it and why.
// Names are put in the form in which they are stored.
func (r *Request) Check() error {
	r.Subject, r.Session.ID = store.Canonical(r.Subject), store.Canonical(r.Session.ID)
	r.Refs = slices.Clone(r.Refs)
	for i := range r.Refs {
		r.Refs[i].ID = store.Canonical(r.Refs[i].ID)
	}
	n := 0
	for _, is := range []bool{r.Subject != "" || r.Scope != "", r.Session != (store.Ref{}), len(r.Refs) > 0} {
		if is {
			n++
		}
	}
	if r.Subject != "" && r.Scope != "" {
		if err := store.CheckScope(r.Scope); err != nil {
			return err
		}
	}
	switch {
	case n != 1:
		return store.Invalid("request", fmt.Sprintf("%d things to erase", n), "one of a subject, a scope, a subject in a scope, a session, and references")
	case !slices.Contains([]Cascade{"", Keep, Rederive, Erase}, r.Cascade):
		return store.Invalid("cascade", string(r.Cascade), "keep, rederive or erase")
	case r.Session != (store.Ref{}) && (r.Session.Scope == "" || r.Session.ID == ""):
		return store.Invalid("session", r.Session.String(), "a scope and the id of a session")
	}
	for _, f := range []struct{ field, text string }{{"by", r.By}, {"reason", r.Reason}} {
		if err := store.CheckID(f.field, f.text); err != nil {
			return err
		}
	}
	for _, ref := range r.Refs {
		if ref.Scope == "" || ref.ID == "" || ref.Page != 0 || ref.Version != 0 {
			return store.Invalid("reference", ref.String(), "scope:id, without page and version: all versions are erased")
		}
	}
	if r.Scope != "" {
		return store.CheckScope(r.Scope)
	}
	return nil
}

// Report says what is erased and what that affects. A dry run returns the same report, without Done.
type Report struct {
	DryRun    bool       `json:"dry_run,omitempty"`
	Erased    []Item     `json:"erased"`             // artefacts that go, by scope and id
	Derived   []Derived  `json:"derived"`            // artefacts made from those, that stay or are to be made again
	Held      []HeldItem `json:"held"`               // held batches that go, decided ones too
	Contexts  []Context  `json:"contexts"`           // that showed a page that goes
	Answers   []Answer   `json:"answers"`            // that were committed or held from those contexts; they stay unless they are in Erased
	Sessions  []string   `json:"sessions"`           // of which turns go, scope/session
	Scopes    []string   `json:"scopes"`             // of which something goes
	Questions int        `json:"questions"`          // texts that were asked
	Rows      int        `json:"rows"`               // of state: sessions, directives, drafts
	Bodies    uint64     `json:"bodies,omitempty"`   // of leaves that go with Names
	NamedBy   []string   `json:"named_by,omitempty"` // artefacts that stay and name what goes, with Names: their rows still have the names
	// Missing are references that were asked for and that the database does not have: the name is mistyped, or it was
	// erased before.
	Missing []string `json:"missing,omitempty"`
	// Files are the files that erased artefacts were imported from. An erase changes no file. The next Refresh imports
	// a file again unless it is removed, excluded by a .gitignore of its directory, or its directory is forgotten
	// (Scope.RemoveDirectory).
	Files []File `json:"files"`
	// Backups are the backups that the database knows of. They still have what is erased here, if it was
	// there when they were made.
	Backups []store.Backup `json:"backups"`
	// Done says what was erased; nil after a dry run.
	Done *store.EraseReport `json:"done,omitempty"`
}

// Empty reports whether the database has nothing of what was asked for and, if Request.Names was set, nothing
// that names it.
func (r *Report) Empty() bool {
	return len(r.Erased)+len(r.Held)+r.Questions+r.Rows == 0 && r.Bodies == 0
}

// Item is an artefact that is erased.
type Item struct {
	Ref      string `json:"ref"`
	Kind     string `json:"kind"`
	Versions uint32 `json:"versions"`
	Why      string `json:"why"` // that it was asked for, or the erased artefact it derives from
}

// Derived is an artefact that was derived from an erased one.
type Derived struct {
	Ref   string   `json:"ref"`
	From  []string `json:"from"`  // those of its sources that are erased
	Left  []string `json:"left"`  // its other sources
	Stays bool     `json:"stays"` // false: it is erased too, and can be derived again from Left
}

// File is a file of a recorded directory that an artefact was imported from.
type File struct {
	Ref  string `json:"ref"`  // the erased artefact
	Path string `json:"path"` // of the file; it was not checked whether the file still exists
	Dir  string `json:"dir"`  // the recorded directory
}

// HeldItem is a held batch that is erased.
type HeldItem struct {
	ID    string    `json:"id"`
	Scope string    `json:"scope"`
	Actor string    `json:"actor"`
	At    time.Time `json:"at"`
	Why   string    `json:"why"`
}

// Context is a read that gave pages to somebody.
type Context struct {
	Trace   string    `json:"trace"`
	Type    string    `json:"type"`
	Scope   string    `json:"scope"`
	Session string    `json:"session,omitempty"`
	Actor   string    `json:"actor"`
	At      time.Time `json:"at"`
	Pages   int       `json:"pages"` // how many of the pages it gave are erased
}

// Answer is a write that was made from a context.
type Answer struct {
	Trace   string   `json:"trace"`   // of the write
	Context string   `json:"context"` // trace
	Status  string   `json:"status"`
	Refs    []string `json:"refs"`
}

// receiptFormat is the format of receipts that this program writes.
const receiptFormat = "ctxpage-erase/1"

// ErrReceipt means that a receipt does not prove what it says.
var ErrReceipt = errors.New("ctxpage: the receipt is not valid")

// Receipt proves to a third party that an erase is in the audit of a database: who erased, when, why and how much, as
// the leaf says. It names nothing that was erased. It does not prove what the files of the database hold, nor that the
// database had everything about the subject.
type Receipt struct {
	Format string             `json:"format"`
	DB     string             `json:"db"`
	Done   store.EraseReport  `json:"done"`
	Body   []byte             `json:"body"` // of the leaf
	Proof  manifest.Inclusion `json:"proof"`
	Head   string             `json:"head"` // line of manifest.Head
	// Limits say in words what the receipt is no proof of.
	Limits []string `json:"limits"`
}

// limits are the sentences that every receipt says of itself.
var limits = []string{
	"backups, copies and exports made before the erase have what it took; the database knows only of the backups that it made itself",
	"the audit keeps names, times, digests and who did what",
	"what was shown to a model, or fetched from a source, is there still",
	"the list of backups, the sizes of the file and the time of the head are what the database said when it made the receipt; the audit does not have them",
}

// Limits returns sentences that say what no receipt proves. A receipt has them too, for people who read it as text.
// Nothing proves those in a receipt, so show these instead.
func Limits() []string { return slices.Clone(limits) }

// atSlack bounds the distance of the time of a receipt from the time in its trace: they are of one moment, by a clock that may be set
// between the two.
const atSlack = time.Minute

// NewReceipt makes the receipt of an erase from the audit. All leaves of head must be on the disk.
func NewReceipt(ctx context.Context, a store.Audit, done store.EraseReport, head manifest.Head) (*Receipt, error) {
	r := &Receipt{Format: receiptFormat, DB: a.DB(), Done: done, Head: head.String(), Limits: limits}
	var err error
	if r.Body, err = a.Body(ctx, done.Leaf); err != nil {
		return nil, err
	}
	if r.Proof, err = a.ProveInclusion(ctx, done.Leaf, head.Size); err != nil {
		return nil, err
	}
	return r, r.Verify(nil)
}

// Verify checks that the leaf says what the receipt says, and that the receipt's head contains the leaf. kept, if not
// nil, takes the place of that head: a head of the same size that was kept elsewhere. Errors match ErrReceipt.
func (r *Receipt) Verify(kept *manifest.Head) error {
	if r.Format != receiptFormat {
		return fmt.Errorf("%w: its format is %q, this program reads %s", ErrReceipt, r.Format, receiptFormat)
	}
	head, err := manifest.ParseHead(r.Head)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	if kept != nil {
		head = *kept
	}
	if head.DB != r.DB {
		return fmt.Errorf("%w: the head is of database %s, the receipt of %s", ErrReceipt, head.DB, r.DB)
	}
	if err := r.Proof.Verify(r.Body, head); err != nil {
		return fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	leaf, err := archive.Decode(r.Proof.Index, r.Body)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	return r.says(leaf)
}

// says compares the words of the receipt with the words of the leaf.
func (r *Receipt) says(leaf *manifest.Record) error {
	d := &r.Done
	for _, c := range []struct{ what, said, is string }{
		{"type", manifest.TypeErase.String(), leaf.Type.String()}, {"trace", d.Trace, leaf.Parent}, {"by", d.By, leaf.By}, {"reason", d.Reason, leaf.Reason},
		{"asked", fmt.Sprintf("%x", format.AskedDigest(d.Asked, d.Cascade)), leaf.Query.String()},
		{"leaf", fmt.Sprint(d.Leaf), fmt.Sprint(r.Proof.Index)}, {"lsn", fmt.Sprint(d.LSN), fmt.Sprint(leaf.LSN)}, {"counts", format.EraseCounts(d), leaf.Note},
	} {
		if c.said != c.is {
			return fmt.Errorf("%w: its %s is %q, the leaf says %q", ErrReceipt, c.what, c.said, c.is)
		}
	}
	run, err := ulid.ParseStrict(d.Trace)
	if err != nil {
		return fmt.Errorf("%w: its trace %q: %w", ErrReceipt, d.Trace, err)
	}
	if at := run.Timestamp(); d.At.Sub(at).Abs() > atSlack {
		return fmt.Errorf("%w: its time is %s, its trace is of %s", ErrReceipt, d.At.UTC().Format(time.RFC3339), at.UTC().Format(time.RFC3339))
	}
	return nil
}
