package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/portable"
	"github.com/ctxpage/ctxpage/portable/foreign"
)

// follow imports a file again whenever it changed, until the context ends. Importing is idempotent, so it does not matter whether the
// file grew, was cut, or was replaced by another one of its name. A last line that is still being written waits for its end.
func (c *importCmd) follow(a *app, s *ctxpage.Scope, path string, opts foreign.Options) error {
	var seen os.FileInfo
	said := ""
	opts.Progress = nil
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		info, err := os.Stat(path)
		if err == nil && !sameFile(seen, info) {
			var rep *foreign.Report
			if rep, err = followed(a.ctx, s, path, opts); err == nil && rep.New+rep.Changed+rep.Live > 0 {
				err = a.followedLine(foreignFile{path, *rep}, s.Name())
			}
			seen = info
		}
		var bad *portable.LineError
		switch {
		case a.ctx.Err() != nil:
			return nil
		case err == nil:
			said = ""
		case !errors.As(err, &bad) && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, ctxpage.ErrInvalid):
			return fmt.Errorf("import %s: %w", path, err)
		case err.Error() != said: // the file may be complete with its next change
			said = err.Error()
			fmt.Fprintf(a.err, "dbctl: import %s: waiting: %s\n", line(path), line(said))
		}
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			return nil
		}
	}
}

func sameFile(a, b os.FileInfo) bool {
	return a != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// followed imports a file, or if it ends within a value, its whole lines.
func followed(ctx context.Context, s *ctxpage.Scope, path string, opts foreign.Options) (*foreign.Report, error) {
	f, err := openInput(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rep, err := foreign.Import(ctx, s, f, opts)
	var bad *portable.LineError
	if err == nil || !errors.As(err, &bad) {
		return rep, err
	}
	whole, werr := wholeLines(f)
	if werr != nil || whole == 0 {
		return rep, err
	}
	return foreign.Import(ctx, s, io.NewSectionReader(f, 0, whole), opts)
}

// wholeLines returns how many bytes of a file its complete lines have.
func wholeLines(f *os.File) (int64, error) {
	end, err := f.Seek(0, io.SeekEnd)
	for buf := make([]byte, 64<<10); err == nil && end > 0; {
		from := max(0, end-int64(len(buf)))
		var n int
		if n, err = f.ReadAt(buf[:end-from], from); err != nil && !errors.Is(err, io.EOF) {
			break
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		end, err = from, nil
	}
	return 0, err
}

// followedLine prints what one change of the file brought: with --json, an object a line.
func (a *app) followedLine(f foreignFile, scope string) error {
	if a.JSON {
		return oneLine(a.out, f)
	}
	_, err := fmt.Fprintf(a.out, "%s: %d new and %d changed of %s into %s\n", line(f.Path), f.New, f.Changed, plural(f.Items, "item", "items"), scope)
	if f.Live > 0 && err == nil {
		_, err = fmt.Fprintf(a.err, "%d left out: their session has turns from elsewhere\n", f.Live)
	}
	return err
}
