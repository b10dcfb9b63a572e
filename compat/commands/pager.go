package commands

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/session"
)

// Exit codes of the command.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// RunPager executes the command with the arguments after its name and returns the exit
// code: 0, 1 for a pass that failed, 2 for wrong usage. Records and errors go to errw,
// the summary to out; in is not read. now stamps the pass marker.
func RunPager(args []string, in io.Reader, out, errw io.Writer, now func() time.Time) int {
	_ = in
	if len(args) == 1 && args[0] == "--matrix" {
		return runMatrix(out, errw)
	}
	o, err := parseArgs(args)
	switch {
	case errors.Is(err, errHelp):
		fmt.Fprint(out, help)
		return exitOK
	case err != nil:
		fmt.Fprintf(errw, "%serror: %v\n", usage, err)
		return exitUsage
	}
	if err := runPass(o, out, errw, now); err != nil {
		fmt.Fprintf(errw, "error: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// runPass reads, decides, writes, reports; nothing is written before all is decided.
func runPass(o options, out, errw io.Writer, now func() time.Time) error {
	raw, err := os.ReadFile(o.history)
	if err != nil {
		return fmt.Errorf("pager: reading the history: %w", err)
	}
	p, err := decide(raw, o)
	if err != nil {
		return err
	}
	if err := appendFile(o.contract, append(p.lines, mark(now())+"\n"...)); err != nil {
		return err
	}
	if _, err := errw.Write(p.records); err != nil {
		return fmt.Errorf("pager: writing the records: %w", err)
	}
	_, err = fmt.Fprintf(out, "alpha=%s beta=%s  retain=%d page=%d evict=%d\n", floatText(o.alpha), floatText(o.beta),
		p.count[session.Retain], p.count[session.Page], p.count[session.Evict])
	return err
}

// pass is a decided pass: what is to be written.
type pass struct {
	lines   []byte // contract statements
	records []byte // one JSON object a block
	count   [3]int
}

// decide scores and checks every block of a history.
func decide(raw []byte, o options) (*pass, error) {
	h, err := readHistory(raw)
	if err != nil {
		return nil, err
	}
	p := new(pass)
	for i, b := range h.blocks {
		if err := p.block(b, h, o); err != nil {
			return nil, &BlockError{Index: i, ID: b.name(), Field: b.fault, Err: err}
		}
	}
	return p, nil
}

// block decides one block and adds its line and its record. On an error,
// b.fault names the field.
func (p *pass) block(b *block, h *history, o options) error {
	sim, err := b.similarity(h)
	if err != nil {
		return err
	}
	b.fault = "turn"
	delta, err := subtract(h.head, b.turn)
	if err != nil {
		return err
	}
	ln, err := logOnePlus(delta)
	if err != nil {
		return err
	}
	if 1+ln == 0 {
		return errZeroDivision
	}
	r := conversation.Score(o.alpha, o.beta, sim, conversation.Recency(ln))
	action := conversation.Classify(r, o.retainCut, o.evictCut)
	if err := p.line(b, action); err != nil {
		return err
	}
	return p.record(b, sim, delta, r, action)
}

func (p *pass) line(b *block, a session.Action) error {
	b.fault = "id"
	id, err := b.contractID()
	if err != nil {
		return err
	}
	line, err := statement(id, a)
	if err != nil {
		return err
	}
	p.lines = append(append(p.lines, line...), '\n')
	p.count[a]++
	return nil
}

func (p *pass) record(b *block, sim float64, delta number, r float64, a session.Action) error {
	w := bytes.NewBuffer(p.records)
	w.WriteString(`{"block": `)
	writeString(w, b.id.text)
	w.WriteString(`, "kind": `)
	b.fault = "kind"
	if err := writeValue(w, b.kind); err != nil {
		return err
	}
	b.fault = "turn"
	d, err := delta.json()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, `, "similarity": %s, "delta_t": %s, "R": %s, "action": "%s"}`+"\n", round4(sim), d, round4(r), a)
	p.records = w.Bytes()
	return nil
}

// appendFile adds b to a file with one write. A last line without a newline is
// ended first, so that no statement is glued to it. A write that comes up short
// is taken back.
func appendFile(path string, b []byte) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return fmt.Errorf("pager: opening the contract: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("pager: reading the contract: %w", err)
	}
	size := info.Size()
	if !endsLine(f, size) {
		b = append([]byte{'\n'}, b...)
	}
	if n, err := f.Write(b); err != nil {
		if n > 0 {
			err = errors.Join(err, f.Truncate(size))
		}
		return fmt.Errorf("pager: writing the contract: %w", err)
	}
	return nil
}

// endsLine reports whether a file is empty or ends with a newline.
func endsLine(f *os.File, size int64) bool {
	if size == 0 {
		return true
	}
	var last [1]byte
	_, err := f.ReadAt(last[:], size-1)
	return err != nil || last[0] == '\n'
}
