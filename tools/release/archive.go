package main

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name string
	mode int64
	data []byte
}

// archives writes one archive for each platform, all with the same folder inside.
func archives(ctx context.Context, r *release) error {
	for _, t := range r.targets {
		files, err := r.contents(ctx, t)
		if err != nil {
			return err
		}
		base := fmt.Sprintf("dbctl_%s_%s_%s", r.number(), t.os, t.arch)
		for i := range files {
			files[i].name = base + "/" + files[i].name
		}
		write, ext := writeTarGz, ".tar.gz"
		if t.os == "windows" {
			write, ext = writeZip, ".zip"
		}
		if err := r.create(base+ext, func(w io.Writer) error { return write(w, files, r.date) }); err != nil {
			return err
		}
	}
	return nil
}

// contents lists what an archive holds: the program, and the texts that belong to it.
func (r *release) contents(ctx context.Context, t target) ([]entry, error) {
	program, err := r.program(ctx, t)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	files := append([]entry{{"dbctl" + t.exe(), 0o755, b}}, completions()...)
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "docs/install.md"} {
		b, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return nil, err
		}
		files = append(files, entry{filepath.Base(name), 0o644, b})
	}
	for _, page := range r.manual() {
		files = append(files, entry{"man/man1/" + page.name, 0o644, page.data})
	}
	slices.SortFunc(files, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return files, nil
}

func writeTarGz(w io.Writer, files []entry, date time.Time) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(z, files, date), z.Close())
}

// writeTar writes files, and names that end in a slash as folders.
func writeTar(w io.Writer, files []entry, date time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: date, Format: tar.FormatPAX}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if strings.HasPrefix(f.name, dataDir) {
			h.Uid, h.Gid = imageUser, imageUser
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return t.Close()
}

func writeZip(w io.Writer, files []entry, date time.Time) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: date}
		h.SetMode(os.FileMode(f.mode))
		out, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := out.Write(f.data); err != nil {
			return err
		}
	}
	return z.Close()
}

// sumsFile lists the digests of all files of a release, in the form that `sha256sum -c` reads.
const sumsFile = "SHA256SUMS"

func sums(_ context.Context, r *release) error {
	found, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	return r.create(sumsFile, func(w io.Writer) error {
		for _, e := range found {
			if e.IsDir() || e.Name() == sumsFile {
				continue
			}
			f, err := os.Open(filepath.Join(r.out, e.Name()))
			if err != nil {
				return err
			}
			d := sha256.New()
			_, err = io.Copy(d, f)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%x  %s\n", d.Sum(nil), e.Name()); err != nil {
				return err
			}
		}
		return nil
	})
}
