package dbctl

import (
	"errors"
	"io"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

type statCmd struct {
	File  string `arg:"" help:"Database."`
	Space bool   `help:"Also show what each scope takes, by kind, how much of it is old versions, and the bodies of its manifests."`
}

type statView struct {
	Path         string    `json:"path"`
	ID           string    `json:"id"`
	Format       int       `json:"format"`
	Created      time.Time `json:"created"`
	LSN          uint64    `json:"lsn"`
	Applied      uint64    `json:"applied_lsn"`
	Scopes       int       `json:"scopes"`
	Artefacts    int       `json:"artefacts"`
	Pages        int       `json:"pages"`
	PageVersions int       `json:"page_versions"`
	Held         int       `json:"held"`
	Leaves       uint64    `json:"leaves"`
	Archived     uint64    `json:"leaves_archived"`
	FileBytes    int64     `json:"file_bytes"`
	LogBytes     int64     `json:"log_bytes"`
	ColumnBytes  int64     `json:"column_bytes"`
	Unflushed    int       `json:"unflushed_rows"`
	FileRoots    []string  `json:"file_roots"`

	Space []store.ScopeInfo `json:"space,omitempty"` // with --space
}

func (c *statCmd) Run(a *app) error {
	return a.with(c.File, false, func(db *ctxpage.DB) error {
		s, damage := db.Stats(a.ctx) // of what is held: all else is known
		if damage != nil && !errors.Is(damage, store.ErrCorrupt) {
			return damage
		}
		roots, err := db.Admin().FileRoots(a.ctx)
		if err != nil {
			return err
		}
		v := statView{
			s.Path, s.ID, s.Format, s.Created, s.LSN, s.Applied, s.Scopes, s.Artefacts, s.Pages, s.PageVersions, s.Held, s.Leaves, s.Archived,
			s.FileBytes, s.LogBytes, s.ColumnBytes, s.Overlay, nonNil(roots), nil,
		}
		if c.Space {
			if v.Space, err = db.Admin().Quotas().Spaces(a.ctx); err != nil {
				return err
			}
		}
		return errors.Join(a.emit(v, v.print), damage)
	})
}

func (v statView) print(w io.Writer) {
	table(w, "", func(row func(...any)) {
		row("path", v.Path)
		row("database", v.ID)
		row("format", v.Format)
		row("created", when(v.Created))
		row("lsn", v.LSN, "applied", v.Applied)
		row("scopes", v.Scopes)
		row("artefacts", v.Artefacts)
		row("pages", v.Pages, "versions", v.PageVersions)
		row("held", v.Held)
		row("leaves", v.Leaves, "archived", v.Archived)
		row("file bytes", v.FileBytes)
		row("log bytes", v.LogBytes)
		if v.ColumnBytes > 0 {
			row("column bytes", v.ColumnBytes)
		}
		row("unflushed rows", v.Unflushed)
		for _, r := range v.FileRoots {
			row("file root", r)
		}
	})
	if v.Space == nil {
		return
	}
	table(w, "SCOPE KIND PAGES BYTES OLD-PAGES OLD-BYTES", func(row func(...any)) {
		for _, s := range v.Space {
			for _, k := range s.Space {
				row(s.Name, k.Kind, k.Pages, k.Bytes, k.OldPages, k.OldBytes)
			}
			if s.Bodies > 0 {
				row(s.Name, "manifest bodies", "-", s.Bodies, "-", "-")
			}
		}
	})
}
