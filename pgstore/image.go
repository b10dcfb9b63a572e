package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/store"
)

// An image is the cache of a host, as files in a table: the rows, compacted, and the archive of the audit, as of a commit. A
// host that starts begins with the newest image and follows the log behind it, so it replays little; and records that an image
// covers may leave the server, and with them content that gc dropped or an erase took.
//
//	written   by whichever host finds it due, one at a time, in one transaction        writeImage
//	replaced  by the next; the old one goes in the same transaction
//	trimmed   records before it that every live host has, after Options.KeepRecords    trim
//
// Sharing rows instead was rejected: the segments of an index belong to the host that merged them, and a shared checkpoint
// would have to agree on who merges.

// partBytes is the size of one row of an image.
const partBytes = 1 << 20

// fetchFile has the number of the image that is being fetched into a cache. While it is there the cache is not whole.
const fetchFile = "image"

// fetchImage fills an empty cache from the newest image. Where there is none the log is whole. A download that was cut goes on
// where it was, if the server still has that image.
func (s *Store) fetchImage(ctx context.Context, dir string) error {
	mark := filepath.Join(dir, fetchFile)
	_, rows := os.Stat(filepath.Join(dir, rowsFile))
	was, err := os.ReadFile(mark)
	if rows == nil && err != nil {
		return nil
	}
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var seq, size int64
		err := tx.QueryRow(ctx, "SELECT seq, bytes FROM ctxpage_images WHERE db = $1 ORDER BY seq DESC LIMIT 1", s.db.num).Scan(&seq, &size)
		none := errors.Is(err, pgx.ErrNoRows)
		if err != nil && !none {
			return err
		}
		if is := fmt.Sprintf("%s %d", s.db.id, seq); none || string(was) != is {
			if err := errors.Join(emptyDir(dir), os.RemoveAll(mark)); none || err != nil {
				return err
			}
			if err := writeWhole(mark, is); err != nil {
				return err
			}
		}
		return s.fetchParts(ctx, tx, seq, size, dir)
	})
	if err == nil {
		if bad := filestore.CheckRows(filepath.Join(dir, rowsFile), true); bad != nil {
			err = errors.Join(&store.CorruptError{File: "postgres:" + s.opts.Name, Err: fmt.Errorf("its image: %w", bad), Hint: "write a new image on a host that runs (dbctl postgres image), or restore the server's backup"}, emptyDir(dir))
		}
	}
	if err != nil {
		return fmt.Errorf("pgstore: read the image: %w", err)
	}
	return os.RemoveAll(mark)
}

// fetchParts writes the parts of an image that a cache does not have to its files.
func (s *Store) fetchParts(ctx context.Context, tx pgx.Tx, seq, size int64, dir string) error {
	names, parts, have, err := fetched(dir)
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `SELECT file, body FROM ctxpage_image_parts WHERE db = $1 AND seq = $2
		AND part >= coalesce((SELECT n FROM unnest($3::text[], $4::int[]) AS had(f, n) WHERE f = file), 0) ORDER BY file, part`, s.db.num, seq, names, parts)
	if err != nil {
		return err
	}
	got, err := unpack(rows, dir, s.opts.CacheDir != "", func(n int64) {
		if s.opts.progress != nil {
			s.opts.progress("image", uint64(have+n), uint64(size))
		}
	})
	if err == nil && have+got != size {
		err = errors.Join(fmt.Errorf("%w: the image has %d bytes, %d are in the cache", errForeignCache, size, have+got), emptyDir(dir))
	}
	return err
}

// fetched lists the files of an image that a cut download left, and how many whole parts each has. The rest of them is cut off.
func fetched(dir string) (names []string, parts []int32, have int64, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, archiveDir, "*"))
	if err != nil {
		return nil, nil, 0, err
	}
	for _, path := range append(paths, filepath.Join(dir, rowsFile)) {
		fi, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, 0, err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return nil, nil, 0, err
		}
		n := fi.Size() / partBytes
		if err := os.Truncate(path, n*partBytes); err != nil {
			return nil, nil, 0, err
		}
		names, parts, have = append(names, filepath.ToSlash(name)), append(parts, int32(n)), have+n*partBytes
	}
	return names, parts, have, nil
}

// unpack appends the parts of an image to its files. They are synced if the cache is kept.
func unpack(rows pgx.Rows, dir string, keep bool, progress func(int64)) (got int64, err error) {
	defer rows.Close()
	if err := os.MkdirAll(filepath.Join(dir, archiveDir), 0o700); err != nil {
		return 0, err
	}
	var f *os.File
	open := ""
	end := func() error {
		switch {
		case f == nil:
			return nil
		case keep:
			return errors.Join(f.Sync(), f.Close())
		}
		return f.Close()
	}
	defer func() { err = errors.Join(err, end()) }()
	for rows.Next() {
		var name string
		var body []byte
		if err := rows.Scan(&name, &body); err != nil {
			return got, err
		}
		if name != open {
			if err := end(); err != nil {
				return got, err
			}
			if f, err = create(dir, name); err != nil {
				return got, err
			}
			open = name
		}
		if _, err := f.Write(body); err != nil {
			return got, err
		}
		got += int64(len(body))
		progress(got)
	}
	return got, rows.Err()
}

// create makes or continues a file of an image. Names come from the server and must not lead out of the cache.
func create(dir, name string) (*os.File, error) {
	base, in := strings.CutPrefix(name, archiveDir+"/")
	if name != rowsFile && (!in || base != path.Base(base) || base == ".." || base == ".") {
		return nil, fmt.Errorf("pgstore: an image has a file %q; expected %s or one in %s", name, rowsFile, archiveDir)
	}
	return os.OpenFile(filepath.Join(dir, filepath.FromSlash(name)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// imageIfDue writes an image once the log has grown enough since the last one.
func (s *Store) imageIfDue(ctx context.Context) error {
	if s.opts.ImageBytes < 0 {
		return nil
	}
	var seq, size int64
	ask, cancel := context.WithTimeout(ctx, replyTimeout)
	err := s.pool.QueryRow(ask, "SELECT seq, bytes FROM ctxpage_images WHERE db = $1 ORDER BY seq DESC LIMIT 1", s.db.num).Scan(&seq, &size)
	cancel()
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if s.imaged.Swap(seq) < seq { // another host wrote one
		s.log.grown.Store(0)
	}
	limit := max(64<<20, size)
	if s.opts.ImageBytes > 0 {
		limit = s.opts.ImageBytes
	}
	if s.log.grown.Load() < limit {
		return nil
	}
	if _, err := s.writeImage(ctx, nil); err != nil {
		return err
	}
	return s.trim(ctx, s.opts.KeepRecords)
}

// WriteImage puts an image of this host's rows on the server, and deletes the records that it makes superfluous. It happens by
// itself as the log grows (Options.ImageBytes). written is false if another host is writing one, or there is nothing to write.
func (s *Store) WriteImage(ctx context.Context, progress store.Progress) (written bool, err error) {
	if err := s.log.catchUp(ctx); err != nil {
		return false, err
	}
	if written, err = s.writeImage(ctx, progress); err != nil {
		return written, err
	}
	return written, s.trim(ctx, s.opts.KeepRecords)
}

// writeImage brings the cache up to date and puts it on the server. written is false if another host is writing one.
func (s *Store) writeImage(ctx context.Context, progress store.Progress) (written bool, err error) {
	s.ckptMu.Lock()
	defer s.ckptMu.Unlock()
	if _, err := s.checkpointLocked(ctx); err != nil {
		return false, err
	}
	sys := s.cache.now()
	if sys.Seq == 0 {
		return false, nil
	}
	rows := filepath.Join(s.cache.dir, rowsFile+newSuffix)
	if err := s.cache.compacted(rows); err != nil {
		return false, fmt.Errorf("pgstore: image: %w", err)
	}
	defer os.Remove(rows)
	grown := s.log.grown.Load()
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "SELECT db FROM ctxpage_db WHERE db = $1 FOR NO KEY UPDATE SKIP LOCKED", s.db.num)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		written = true
		return s.putImage(ctx, tx, int64(sys.Seq), rows, progress)
	})
	if err != nil || !written {
		return false, err
	}
	s.imaged.Store(int64(sys.Seq))
	s.log.grown.Add(-grown)
	return true, nil
}

// putImage replaces the image that is there. The row of the database is locked.
func (s *Store) putImage(ctx context.Context, tx pgx.Tx, seq int64, rows string, progress store.Progress) error {
	if _, err := tx.Exec(ctx, "DELETE FROM ctxpage_images WHERE db = $1", s.db.num); err != nil {
		return err
	}
	src, err := s.imageFiles(rows)
	if err != nil {
		return err
	}
	defer src.close()
	if _, err := tx.Exec(ctx, "INSERT INTO ctxpage_images (db, seq, bytes, host) VALUES ($1, $2, $3, $4)", s.db.num, seq, src.total, s.opts.Host); err != nil {
		return err
	}
	src.db, src.seq, src.progress = s.db.num, seq, progress
	for src.Next() {
		if _, err := tx.Exec(ctx, sqlPutPart, src.Values()...); err != nil {
			return err
		}
	}
	return src.err
}

// sqlPutPart writes a part of an image. COPY was rejected: the server does not take it for a table with row-level security.
const sqlPutPart = "INSERT INTO ctxpage_image_parts (db, seq, file, part, body) VALUES ($1, $2, $3, $4, $5)"

// imageSource returns the parts of files one after the other.
type imageSource struct {
	db          int
	seq         int64
	names       []string // as in the image
	paths       []string
	total, done int64
	progress    store.Progress

	file *os.File
	at   int // in names, of file
	part int32
	body []byte
	err  error
}

func (s *Store) imageFiles(rows string) (*imageSource, error) {
	src := &imageSource{}
	entries, err := os.ReadDir(filepath.Join(s.cache.dir, archiveDir))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		src.names = append(src.names, archiveDir+"/"+e.Name())
		src.paths = append(src.paths, filepath.Join(s.cache.dir, archiveDir, e.Name()))
	}
	src.names, src.paths = append(src.names, rowsFile), append(src.paths, rows)
	for _, p := range src.paths {
		fi, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		src.total += fi.Size()
	}
	return src, nil
}

func (s *imageSource) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}

// Next reads a part.
func (s *imageSource) Next() bool {
	for s.err == nil && s.at < len(s.paths) {
		if s.file == nil {
			if s.file, s.err = os.Open(s.paths[s.at]); s.err != nil {
				return false
			}
			s.part = -1
		}
		body := make([]byte, partBytes)
		n, err := io.ReadFull(s.file, body)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			s.err = err
			return false
		}
		if n > 0 {
			s.body, s.part, s.done = body[:n], s.part+1, s.done+int64(n)
			if s.progress != nil {
				s.progress("image", uint64(s.done), uint64(s.total))
			}
			return true
		}
		s.err = s.file.Close()
		s.file = nil
		s.at++
	}
	return false
}

// Values is the part read last.
func (s *imageSource) Values() []any { return []any{s.db, s.seq, s.names[s.at], s.part, s.body} }

const sqlTrimTo = `SELECT least((SELECT max(seq) FROM ctxpage_images WHERE db = $1),
	(SELECT min(applied) FROM ctxpage_hosts WHERE db = $1 AND seen > now() - $2::interval))`

// trimRows limits the records that one transaction deletes.
const trimRows = 5000

// trim deletes records that the image covers, that every live host has, and that are older than keep. The record that an image
// or a host stands at stays: what follows is held against it.
func (s *Store) trim(ctx context.Context, keep time.Duration) error {
	var to *int64
	if err := s.pool.QueryRow(ctx, sqlTrimTo, s.db.num, s.opts.gone()).Scan(&to); err != nil {
		return fmt.Errorf("pgstore: trim the log: %w", err)
	}
	for to != nil {
		tag, err := s.pool.Exec(ctx, `DELETE FROM ctxpage_records WHERE db = $1 AND seq IN (
			SELECT seq FROM ctxpage_records WHERE db = $1 AND seq < $2 AND at < now() - $3::interval ORDER BY seq LIMIT $4)`, s.db.num, *to, keep, trimRows)
		if err != nil {
			return fmt.Errorf("pgstore: trim the log: %w", err)
		}
		if tag.RowsAffected() < trimRows {
			return nil
		}
	}
	return nil
}
