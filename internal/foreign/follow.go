package foreign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/portable"
)

// Follower imports a file that grows. It belongs to one goroutine.
type Follower struct {
	Scope   *ctxpage.Scope
	Options Options // Progress is not used

	reading *reading // where the last import ended; nil: begin at the beginning
	offset  int64
	tail    []byte // the bytes before offset
	why     string
}

// tailBytes is the size of the end of what was read that must be unchanged for reading to continue behind it.
const tailBytes = 4096

// Next imports what came since the last call, and at first the whole file; a last line that is still being written waits. If
// what was read before is not there any more, or if the file is a log that may change what it said (of Gemini CLI and Copilot
// Chat), the whole file is imported again, which writes only what is new.
func (f *Follower) Next(ctx context.Context, file *os.File) (*Report, error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("ctxpage: import: %w", err)
	}
	if !f.unchanged(file, size) {
		f.reading, f.offset = nil, 0
	}
	rep, err := f.upTo(ctx, file, size)
	var bad *portable.LineError
	if err == nil || !errors.As(err, &bad) {
		return rep, err
	}
	whole, werr := wholeLines(file, f.offset, size)
	if werr != nil || whole == 0 {
		return rep, err
	}
	return f.upTo(ctx, file, whole)
}

// unchanged reports whether what was read before is still in the file.
func (f *Follower) unchanged(file *os.File, size int64) bool {
	if f.reading == nil || size < f.offset {
		return false
	}
	now := make([]byte, len(f.tail))
	_, err := file.ReadAt(now, f.offset-int64(len(now)))
	return err == nil && bytes.Equal(now, f.tail)
}

// upTo imports the file from where the last import ended up to an offset.
func (f *Follower) upTo(ctx context.Context, file *os.File, end int64) (rep *Report, err error) {
	part := io.NewSectionReader(file, f.offset, end-f.offset)
	var x *reading
	if f.reading != nil {
		x = f.reading.clone()
	} else {
		opts := f.Options
		opts.Progress = nil
		if x, f.why, err = begin(ctx, part, opts); err != nil {
			return nil, err
		}
	}
	if rep, err = bring(ctx, f.Scope, part, x, f.why, true); err != nil {
		return rep, err
	}
	if x.logged != nil || x.dialect != nil && x.dialect.holds {
		return rep, nil
	}
	f.tail = make([]byte, min(end, tailBytes))
	if _, err := file.ReadAt(f.tail, end-int64(len(f.tail))); err != nil {
		return rep, nil // it is being cut: the next call begins at the beginning, as f.reading is unchanged
	}
	f.reading, f.offset = x, end
	return rep, nil
}

// wholeLines returns where the last complete line of file[begin:end] ends; begin: there is none.
func wholeLines(file *os.File, begin, end int64) (int64, error) {
	for buf := make([]byte, 64<<10); end > begin; {
		from := max(begin, end-int64(len(buf)))
		n, err := file.ReadAt(buf[:end-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return begin, fmt.Errorf("ctxpage: import: %w", err)
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		end = from
	}
	return begin, nil
}
