package dbctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/foreign"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/store"
)

// follow imports what comes into a file, until the context ends. The file may be cut, or replaced by another one of its name.
func (c *importCmd) follow(a *app, s *ctxpage.Scope, path string, opts foreign.Options) error {
	var seen os.FileInfo
	said := ""
	f := &foreign.Follower{Scope: s, Options: opts}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		info, err := os.Stat(path)
		if err == nil && !sameFile(seen, info) {
			var rep *foreign.Report
			if rep, err = followed(a.ctx, f, path); err == nil && rep.New+rep.Changed+rep.Live > 0 {
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
		case !errors.As(err, &bad) && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, store.ErrInvalid):
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

// followed opens a file again, which may be another one now, and imports what is new in it.
func followed(ctx context.Context, f *foreign.Follower, path string) (*foreign.Report, error) {
	in, err := openInput(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return f.Next(ctx, in)
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
