package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// about is what registries and package managers show.
const (
	homepage = "https://github.com/ctxpage/ctxpage"
	summary  = "An embedded context database for LLM agents"
	licence  = "MIT"
)

// packager returns the step that writes the packages of one format, for the processors of Linux.
func packager(format string) func(context.Context, *release) error {
	return func(ctx context.Context, r *release) error {
		p, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		made := 0
		for _, t := range r.targets {
			if t.os != "linux" {
				continue
			}
			info, err := r.packageOf(ctx, t, format)
			if err != nil {
				return err
			}
			if err := r.create(p.ConventionalFileName(info), func(w io.Writer) error { return p.Package(info, w) }); err != nil {
				return err
			}
			made++
		}
		if made == 0 {
			return fmt.Errorf("got no platform of Linux in -targets, expected linux/amd64 or linux/arm64")
		}
		return nil
	}
}

// packageOf describes the package ctxpage: the program, its manual, its completions and the licence.
func (r *release) packageOf(ctx context.Context, t target, format string) (*nfpm.Info, error) {
	contents, err := r.contents(ctx, t)
	if err != nil {
		return nil, err
	}
	places := map[string]string{
		"dbctl": "/usr/bin/dbctl", "LICENSE": "/usr/share/doc/ctxpage/copyright", "README.md": "/usr/share/doc/ctxpage/README.md",
		"completions/dbctl.bash": "/usr/share/bash-completion/completions/dbctl", "completions/dbctl.fish": "/usr/share/fish/vendor_completions.d/dbctl.fish",
		"completions/_dbctl": "/usr/share/zsh/site-functions/_dbctl",
	}
	if format == "deb" {
		places["completions/_dbctl"] = "/usr/share/zsh/vendor-completions/_dbctl"
	}
	from := filepath.Join(r.work, "package", t.arch, format)
	info := &nfpm.Info{
		Name: "ctxpage", Arch: t.arch, Platform: "linux", Version: r.version, VersionSchema: "semver", Section: "database", Priority: "optional",
		Maintainer: "The ctxpage authors <ctxpage@users.noreply.github.com>", Vendor: "ctxpage", Description: summary, Homepage: homepage, License: licence, MTime: r.date,
		Overridables: nfpm.Overridables{RPM: nfpm.RPM{BuildHost: "release", Summary: summary}},
	}
	for _, e := range contents {
		to, known := places[e.name]
		data := e.data
		if !known && filepath.Dir(e.name) == "man/man1" {
			to, known = "/usr/share/"+e.name+".gz", true
			if data, err = zipped(data); err != nil {
				return nil, err
			}
		}
		if !known {
			continue
		}
		path := filepath.Join(from, e.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return nil, err
		}
		info.Contents = append(info.Contents, &files.Content{Source: path, Destination: to,
			FileInfo: &files.ContentFileInfo{Mode: os.FileMode(e.mode), MTime: r.date, Owner: "root", Group: "root"}})
	}
	info = nfpm.WithDefaults(info)
	return info, nfpm.PrepareForPackager(info, format)
}
