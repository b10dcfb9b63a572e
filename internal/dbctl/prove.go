package dbctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/manifest"
)

type manifestProveCmd struct {
	File string `arg:"" help:"Database."`
	Leaf string `arg:"" optional:"" help:"Index of a leaf, or a trace (its first leaf)."`
	Head string `help:"Prove against this head, kept elsewhere, instead of the current log."`
	From string `help:"Instead of a leaf: prove that the log still extends this earlier head." placeholder:"HEAD"`
}

// proofView is a proof as it is handed on.
type proofView struct {
	Head        string                `json:"head"`
	Body        []byte                `json:"body,omitempty"` // of the leaf
	Leaf        *leafRow              `json:"leaf,omitempty"`
	Inclusion   *manifest.Inclusion   `json:"inclusion,omitempty"`
	From        string                `json:"from,omitempty"`
	Consistency *manifest.Consistency `json:"consistency,omitempty"`
}

func (c *manifestProveCmd) Run(a *app) error {
	if (c.Leaf == "") == (c.From == "") {
		return usage("prove: name a leaf, or an earlier head with --from")
	}
	head, err := readHead("--head", c.Head)
	if err != nil {
		return err
	}
	from, err := readHead("--from", c.From)
	if err != nil {
		return err
	}
	return a.audit(c.File, func(l auditOf) error {
		if head == nil {
			now, err := l.head(a.ctx) // the proof shows it
			if err != nil {
				return err
			}
			head = &now
		}
		v := proofView{Head: head.String()}
		if from != nil {
			err = v.proveFrom(a.ctx, l, *from, *head)
		} else {
			err = v.proveLeaf(a, l, c.Leaf, *head)
		}
		if err != nil {
			return err
		}
		return a.emit(v, v.print)
	})
}

func (v *proofView) proveLeaf(a *app, l auditOf, which string, head manifest.Head) error {
	i, err := strconv.ParseUint(which, 10, 64)
	if err != nil {
		leaves, err := l.ByTrace(a.ctx, which)
		if err != nil {
			return err
		}
		i = leaves[0].Index
	}
	p, err := l.ProveInclusion(a.ctx, i, head.Size)
	if errors.Is(err, manifest.ErrNoLeaf) {
		err = cmp.Or(vouches(a.ctx, l, head.Size), err)
	}
	if err != nil {
		return err
	}
	if v.Body, err = l.Body(a.ctx, i); err != nil {
		return err
	}
	r, err := archive.Decode(i, v.Body)
	if err != nil {
		return err
	}
	row := rowOf(r)
	v.Leaf, v.Inclusion = &row, &p
	return p.Verify(v.Body, head)
}

// vouches refuses a head of more leaves than the log has.
func vouches(ctx context.Context, l auditOf, leaves uint64) error {
	size, err := l.Size(ctx)
	if err == nil && leaves > size {
		err = fmt.Errorf("%w: it vouches for %d leaves, the log has %d", manifest.ErrHead, leaves, size)
	}
	return err
}

func (v *proofView) proveFrom(ctx context.Context, l auditOf, from, head manifest.Head) error {
	if err := vouches(ctx, l, max(from.Size, head.Size)); err != nil {
		return err
	}
	p, err := l.ProveConsistency(ctx, from.Size, head.Size)
	if err != nil {
		return err
	}
	v.From, v.Consistency = from.String(), &p
	return p.Verify(from, head)
}

func (v *proofView) print(w io.Writer) {
	if v.Inclusion != nil {
		fmt.Fprintf(w, "leaf %d (%s, trace %s) stands among the %d leaves of\n  %s\nby a path of %s\n",
			v.Leaf.Index, v.Leaf.Type, v.Leaf.Trace, v.Inclusion.Size, v.Head, plural(len(v.Inclusion.Path), "hash", "hashes"))
		return
	}
	fmt.Fprintf(w, "the %d leaves of\n  %s\nbegin with the %d of\n  %s\nby a path of %s\n",
		v.Consistency.Size, v.Head, v.Consistency.Old, v.From, plural(len(v.Consistency.Path), "hash", "hashes"))
}

// verifyProof checks a proof against a head that came another way than the proof.
func verifyProof(a *app, path string, head *manifest.Head) error {
	if head == nil {
		return usage("verify: --proof needs --head, kept elsewhere: the head in the proof proves nothing")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return failed("verify: %v", err)
	}
	var v proofView
	if err := json.Unmarshal(b, &v); err != nil || v.Inclusion == nil && v.Consistency == nil {
		return usage("verify: %s is no proof that dbctl manifest prove --json made", path)
	}
	held := provedView{OK: true, Head: head.String()}
	if v.Inclusion != nil {
		held.Leaf, err = v.provedLeaf(*head)
	} else {
		var from manifest.Head
		if from, err = manifest.ParseHead(v.From); err == nil {
			held.From, err = from.String(), v.Consistency.Verify(from, *head)
		}
	}
	if err != nil {
		return err
	}
	return a.emit(held, held.print)
}

// provedLeaf decodes the proved bytes. The fields that a proof shows beside them must agree.
func (v *proofView) provedLeaf(head manifest.Head) (*leafRow, error) {
	if err := v.Inclusion.Verify(v.Body, head); err != nil {
		return nil, err
	}
	r, err := archive.Decode(v.Inclusion.Index, v.Body)
	if err != nil {
		return nil, err
	}
	row := rowOf(r)
	is, err := json.Marshal(row)
	if err != nil {
		return nil, err
	}
	said, err := json.Marshal(v.Leaf)
	if err == nil && v.Leaf != nil && !bytes.Equal(is, said) {
		err = fmt.Errorf("%w: the leaf that it shows is not the leaf that it proves, which is: %s", manifest.ErrProof, is)
	}
	return &row, err
}

type provedView struct {
	OK   bool     `json:"ok"`
	Head string   `json:"head"`
	Leaf *leafRow `json:"leaf,omitempty"`
	From string   `json:"from,omitempty"`
}

func (v provedView) print(w io.Writer) {
	fmt.Fprintf(w, "the proof holds under %s\n", v.Head)
	if v.Leaf == nil {
		fmt.Fprintf(w, "which contains all that this head vouches for: %s\n", v.From)
		return
	}
	l := v.Leaf
	fmt.Fprintf(w, "leaf %d, %s at %s, trace %s, scope %s, actor %s, lsn %d\n", l.Index, l.Type, when(l.At), l.Trace, or(l.Scope, "-"), or(l.Actor, "-"), l.LSN)
	if l.Status+l.Reason != "" {
		fmt.Fprintf(w, "status %s, reason %s\n", line(or(l.Status, "-")), line(or(l.Reason, "-")))
	}
	if l.By != "" {
		fmt.Fprintf(w, "confidence %.2f by %s\n", l.Confidence, line(l.By))
	}
}
