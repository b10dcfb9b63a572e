package pgstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage/engine"
	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A file is moved as an image: its rows and its archive as they are, under the same database id and secret. So references,
// versions, LSNs, digests, manifests and proofs are those of the file, and a head that was kept of the file verifies against
// the server. The log on the server begins with a record that stands for all before it.

// Copied says what was copied.
type Copied struct {
	Database string        `json:"database"` // id
	LSN      uint64        `json:"lsn"`
	Head     manifest.Head `json:"-"`
	Bytes    int64         `json:"bytes"`
}

// CopyFile copies an embedded database to a server, as a database that must not exist there. Everything or nothing is written.
// The copy is then opened, compared with the head of the file, and its audit is verified. The file must not be open in another
// process; it is not changed, but for a checkpoint.
//
// Errors: those of filestore.Open; ErrSchema; store.ErrInvalid if the server has a database of that name, or this one under
// another name.
func CopyFile(ctx context.Context, path, dsn string, opts Options, progress store.Progress) (Copied, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return Copied{}, err
	}
	if progress == nil {
		progress = func(string, uint64, uint64) {}
	}
	from, err := filestore.Open(filestore.Options{Path: path, MustExist: true, State: opts.State, Now: opts.Now})
	if err != nil {
		return Copied{}, err
	}
	defer from.Close()
	head, err := from.Head(ctx)
	if err != nil {
		return Copied{}, err
	}
	c := Copied{Database: head.DB, Head: head, LSN: from.Mark().LSN}
	if c.Bytes, err = upload(ctx, from, dsn, opts, progress); err != nil {
		return c, err
	}
	opts.MustExist = true
	st, err := Open(ctx, dsn, opts)
	if err != nil {
		return c, fmt.Errorf("pgstore: open the copy: %w", err)
	}
	defer st.Close()
	if at := st.Mark().LSN; at != c.LSN {
		return c, fmt.Errorf("pgstore: the copy has LSN %d, the file %d", at, c.LSN)
	}
	if _, err := st.Audit().Verify(ctx, &head, func(done, total uint64) { progress("verify", done, total) }); err != nil {
		return c, fmt.Errorf("pgstore: verify the copy: %w", err)
	}
	return c, nil
}

// upload writes the image of a file in one transaction.
func upload(ctx context.Context, from *filestore.Store, dsn string, opts Options, progress store.Progress) (n int64, err error) {
	dir, err := os.MkdirTemp("", tempPrefix)
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	s := &Store{opts: opts, dsn: dsn, cache: &cache{dir: dir, temp: true}}
	var made filestore.Copy
	err = filestore.Export(ctx, from, func(tx *bbolt.Tx, c filestore.Copy) error {
		made = c
		return s.cache.take(ctx, tx, c, progress)
	})
	if err != nil {
		return 0, fmt.Errorf("pgstore: copy the rows: %w", err)
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, fmt.Errorf("pgstore: connect: %w", err)
	}
	defer conn.Close(context.Background())
	if err := checkSchema(ctx, conn); err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := s.claim(ctx, tx, made); err != nil {
			return err
		}
		if err := s.putImage(ctx, tx, 1, filepath.Join(dir, rowsFile), progress); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "SELECT bytes FROM ctxpage_images WHERE db = $1", s.db.num).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("pgstore: copy to %q: %w", opts.Name, err)
	}
	return n, nil
}

// first is the record of the log that stands for everything in the image of a copy.
func first(c filestore.Copy) (body []byte, at position) {
	body = fmt.Appendf(nil, "copy of %s at lsn %d with %d leaves", c.Info.ID, c.Base.Applied, c.Leaves)
	return body, position{}.next(engine.KindMark, body)
}

// claim makes the row of the database and the first record of its log.
func (s *Store) claim(ctx context.Context, tx pgx.Tx, c filestore.Copy) error {
	var there string
	err := tx.QueryRow(ctx, "SELECT coalesce(min(name), '') FROM ctxpage_db WHERE name = $1 OR id = $2", s.opts.Name, c.Info.ID).Scan(&there)
	if err != nil {
		return err
	}
	if there != "" {
		return store.Invalid("name", s.opts.Name, "a name that the server does not have, for a database it does not have: it has "+there)
	}
	err = tx.QueryRow(ctx, "INSERT INTO ctxpage_db (name, id, secret, created) VALUES ($1, $2, $3, $4) RETURNING db",
		s.opts.Name, c.Info.ID, c.Info.Secret, c.Created).Scan(&s.db.num)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO ctxpage_turn VALUES ($1)", s.db.num); err != nil {
		return err
	}
	body, at := first(c)
	_, err = tx.Exec(ctx, "INSERT INTO ctxpage_records (db, seq, kind, body, chain) VALUES ($1, 1, $2, $3, $4)", s.db.num, int16(engine.KindMark), body, at.chain[:])
	return err
}

// take fills an empty cache with the rows and the archive of a file.
func (c *cache) take(ctx context.Context, from *bbolt.Tx, made filestore.Copy, progress store.Progress) error {
	to, err := openRows(filepath.Join(c.dir, rowsFile), true)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := copyBuckets(ctx, from, to, progress); err != nil {
		return err
	}
	_, at := first(made)
	b := made.Base
	row := sysRow{Format: cacheFormat, DB: made.Info.ID, Applied: b.Applied, Seq: at.seq, Chain: at.chain, High: b.High, Summed: b.Summed, AskedOK: b.AskedOK, Rows: b.Rows}
	err = to.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucket(sysBucket); err != nil {
			return err
		}
		return c.put(tx, row)
	})
	if err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(c.dir, archiveDir), os.DirFS(made.Audit)); err != nil {
		return err
	}
	return to.Sync()
}

// copyBuckets copies all tables, some rows in a transaction.
func copyBuckets(ctx context.Context, from *bbolt.Tx, to *bbolt.DB, progress store.Progress) (err error) {
	tx, err := to.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of one that was committed: nothing
	size, done := 0, uint64(0)
	err = from.ForEach(func(name []byte, b *bbolt.Bucket) error {
		if string(name) == string(sysBucket) {
			return nil
		}
		into, err := tx.CreateBucket(name)
		if err != nil {
			return err
		}
		into.FillPercent = 0.9
		return b.ForEach(func(k, v []byte) error {
			if size += len(k) + len(v); size > compactBytes {
				done += uint64(size)
				progress("copy rows", min(done, uint64(from.Size())), uint64(from.Size()))
				if err := tx.Commit(); err != nil {
					return err
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				if tx, err = to.Begin(true); err != nil {
					return err
				}
				into, size = tx.Bucket(name), 0
				into.FillPercent = 0.9
			}
			return into.Put(k, v)
		})
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}

// CopyToFile copies a database on a server to a new embedded database, with its id, history and audit. Commits that hosts make
// meanwhile are not in it. The file is then opened, compared with the head of the server, and its audit is verified. Original and
// copy have one id: do not write to both.
func CopyToFile(ctx context.Context, dsn, path string, opts Options, progress store.Progress) (c Copied, err error) {
	if progress == nil {
		progress = func(string, uint64, uint64) {}
	}
	opts.MustExist = true
	st, err := Open(ctx, dsn, opts)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if c, err = st.export(ctx, path, progress); err != nil {
		return c, fmt.Errorf("pgstore: copy to %s: %w", path, err)
	}
	to, err := filestore.Open(filestore.Options{Path: path, MustExist: true, State: st.opts.State, Now: st.opts.Now})
	if err != nil {
		return c, fmt.Errorf("pgstore: open the copy: %w", err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if at := to.Mark().LSN; at != c.LSN {
		return c, fmt.Errorf("pgstore: the copy has LSN %d, the server %d", at, c.LSN)
	}
	if _, err := to.Audit().Verify(ctx, &c.Head, func(done, total uint64) { progress("verify", done, total) }); err != nil {
		return c, fmt.Errorf("pgstore: verify the copy: %w", err)
	}
	return c, nil
}

// export writes the rows and the archive of this host to a new file. Checkpoints wait meanwhile.
func (s *Store) export(ctx context.Context, path string, progress store.Progress) (c Copied, err error) {
	if err := s.log.catchUp(ctx); err != nil {
		return c, err
	}
	s.ckptMu.Lock()
	defer s.ckptMu.Unlock()
	if _, err := s.checkpointLocked(ctx); err != nil {
		return c, err
	}
	leaves := s.eng.Leaves.Archived()
	head, err := s.eng.Leaves.Head(leaves, codec.Micros(s.opts.Now()))
	if err != nil {
		return c, err
	}
	base := s.cache.base()
	s.cache.file.RLock()
	defer s.cache.file.RUnlock()
	err = s.cache.bolt.View(func(tx *bbolt.Tx) error {
		from := filestore.Copy{Info: store.Info{ID: s.db.id, Secret: s.db.secret}, Created: s.db.created, Base: base, Leaves: leaves, Audit: filepath.Join(s.dir, archiveDir)}
		c = Copied{Database: s.db.id, LSN: base.Applied, Head: head, Bytes: tx.Size()}
		return filestore.Import(ctx, path, from, tx, progress)
	})
	return c, err
}
