package dbctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

type manifestHeadCmd struct {
	File string `arg:"" help:"Database."`
}

type headView struct {
	Head    string `json:"head"`
	DB      string `json:"db"`
	Size    uint64 `json:"size"`
	Root    string `json:"root"`
	Covers  string `json:"covers"`
	Archive uint64 `json:"archived"`
}

func (c *manifestHeadCmd) Run(a *app) error {
	return a.audit(c.File, func(l auditOf) error {
		h, err := l.head(a.ctx)
		if err != nil {
			return err
		}
		v := headView{h.String(), h.DB, h.Size, h.Root.String(), "what is readable now", l.archived()}
		if err := a.emit(v, func(w io.Writer) { fmt.Fprintln(w, v.Head) }); err != nil || a.JSON {
			return err
		}
		fmt.Fprintf(a.err, "it covers what is readable now: %s, %d of them in the archive\n", plural(int(v.Size), "leaf", "leaves"), v.Archive)
		return nil
	})
}

// syncLog brings to the disk what was read from the segments of a log: a writer may have written it without a sync.
// A segment that is gone by now is in the archive, which is synced before.
func syncLog(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return failed("head: %v", err)
	}
	for _, e := range entries {
		f, err := os.OpenFile(filepath.Join(dir, e.Name()), system.ToSync, 0)
		if errors.Is(err, os.ErrNotExist) || !system.ReadSyncs && errors.Is(err, os.ErrPermission) {
			continue
		}
		if err != nil {
			return failed("head: %v", err)
		}
		err = f.Sync()
		f.Close()
		if err != nil && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EINVAL) {
			return failed("head: sync %s: %v", e.Name(), err)
		}
	}
	return nil
}

// readHead takes a head line, or a file whose last line is one, as the value of a flag.
func readHead(flag, s string) (*manifest.Head, error) {
	if s == "" {
		return nil, nil
	}
	h, err := manifest.ParseHead(s)
	if err == nil || errors.Is(err, store.ErrNewerFormat) {
		return &h, err
	}
	var b []byte
	f, ferr := openInput(s)
	if ferr == nil {
		b, ferr = io.ReadAll(io.LimitReader(f, maxReceipt))
		ferr = errors.Join(ferr, f.Close())
	}
	if ferr != nil {
		return nil, usage("%s: neither a head line (%v) nor a readable file (%v)", flag, err, ferr)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if h, err = manifest.ParseHead(lines[len(lines)-1]); err != nil {
		return nil, usage("%s: the last line of %s: %v", flag, s, err)
	}
	return &h, nil
}

type manifestVerifyCmd struct {
	File  string `arg:"" optional:"" help:"Database."`
	Head  string `help:"Head kept elsewhere: the line itself, or a file that ends with it."`
	Proof string `help:"Verify a proof made by dbctl manifest prove --json against --head, without a database." placeholder:"PATH"`
}

type verifyView struct {
	OK       bool     `json:"ok"`
	Size     uint64   `json:"size"`
	Archived uint64   `json:"archived"`
	Root     string   `json:"root"`
	Against  string   `json:"against,omitempty"`
	Found    int      `json:"found"`
	First    int64    `json:"first"`
	Problems []string `json:"problems"`
	Note     string   `json:"note,omitempty"`
}

func (c *manifestVerifyCmd) Run(a *app) error {
	head, err := readHead("--head", c.Head)
	if err != nil {
		return err
	}
	if (c.File == "") == (c.Proof == "") {
		return usage("verify: name a database, or a proof with --proof")
	}
	if c.Proof != "" {
		return verifyProof(a, c.Proof, head)
	}
	return a.audit(c.File, func(l auditOf) error {
		progress := a.progress()
		got, err := l.Verify(a.ctx, head, func(done, total uint64) { progress("verify", done, total) })
		if err != nil && got.Found == 0 {
			return err
		}
		if got.Found == 0 && l.damage != nil { // of the audit as a whole: no leaf of it differs
			got.Found, got.Problems = 1, []error{l.damage}
		}
		v := verifyOf(got)
		return unless(v.OK, exitDamaged, a.emit(v, v.print))
	})
}

func verifyOf(got manifest.Verification) verifyView {
	v := verifyView{OK: got.Found == 0, Size: got.Size, Archived: got.Archived, Root: got.Root.String(), Found: got.Found, First: got.First, Problems: []string{}, Note: got.Note}
	if got.Against != nil {
		v.Against = got.Against.String()
	}
	for _, p := range got.Problems {
		var damaged *store.CorruptError
		if errors.As(p, &damaged) { // what to do is the same for all
			bare := *damaged
			bare.Hint, p = "", &bare
		}
		v.Problems = append(v.Problems, p.Error())
	}
	return v
}

func (v verifyView) print(w io.Writer) {
	if v.OK {
		fmt.Fprintf(w, "verified %s, %d archived, root %s\n", plural(int(v.Size), "leaf", "leaves"), v.Archived, v.Root)
		if v.Against != "" {
			fmt.Fprintf(w, "it contains all that this head vouches for: %s\n", v.Against)
		}
		if v.Note != "" {
			fmt.Fprintln(w, v.Note)
		}
		return
	}
	fmt.Fprintf(w, "NOT VERIFIED: %s in %d leaves\n", plural(v.Found, "problem", "problems"), v.Size)
	if v.First >= 0 {
		fmt.Fprintf(w, "the first leaf that differs: %d\n", v.First)
	}
	for _, p := range v.Problems {
		fmt.Fprintln(w, " ", line(p))
	}
	if v.Found > len(v.Problems) {
		fmt.Fprintf(w, "  and %d more\n", v.Found-len(v.Problems))
	}
}
