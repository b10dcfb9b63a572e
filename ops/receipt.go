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
