package pgstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
)

// A file is moved as an image: its rows and its archive as they are, under the same database id and secret. So references,
// versions, LSNs, digests, manifests and proofs stay the same, and a head that was kept of the file verifies against
// the server. The log on the server begins with a record that stands for all before it.

// Copied says what was copied.
type Copied struct {
	Database string        `json:"database"` // id
	LSN      uint64        `json:"lsn"`
	Head     manifest.Head `json:"-"`
	Bytes    int64         `json:"bytes"` // size of the copy: of the image on the server, or of the file with its log and audit
}

// CopyFile copies an embedded database to a server, as a database that must not exist there. The copy is then opened, compared
// with the head of the file, and its audit is verified. The file must not be open in another process; it is not changed, but for
// a checkpoint.
//
// A copy that is interrupted or killed keeps what it has: the directory path-copy beside the file, and rows on the server under
// the name with copySuffix, which Open refuses. The next call goes on there, after comparing the hashes of what arrived. If the file changed in
// between, it begins anew. Nobody can open the database until all of it is there.
//
// Errors: those of filestore.Open; ErrSchema; store.ErrInvalid if the server has a database of that name, or this one under
// another name; store.ErrLocked if another process is copying the file.
func CopyFile(ctx context.Context, path, dsn string, opts Options, progress store.Progress) (c Copied, err error) {
	if opts, err = opts.withDefaults(); err != nil {
		return c, err
	}
	if progress == nil {
		progress = func(string, uint64, uint64) {}
	}
	from, err := filestore.Open(filestore.Options{Path: path, MustExist: true, State: opts.State, Now: opts.Now})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	head, err := from.Head(ctx)
	if err != nil {
		return c, err
	}
	dir, lock, err := staging(path)
	if err != nil {
		return c, err
	}
	defer lock.Close()
	c = Copied{Database: head.DB, Head: head, LSN: from.Mark().LSN}
	if c.Bytes, err = upload(ctx, from, dir, dsn, opts, progress); err != nil {
		return c, err
	}
	opts.MustExist = true
	st, err := Open(ctx, dsn, opts)
	if err != nil {
		return c, fmt.Errorf("pgstore: open the copy: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if at := st.Mark().LSN; at != c.LSN {
		return c, fmt.Errorf("pgstore: the copy has LSN %d, the file %d", at, c.LSN)
	}
	if _, err := st.Audit().Verify(ctx, &head, func(done, total uint64) { progress("verify", done, total) }); err != nil {
		return c, fmt.Errorf("pgstore: verify the copy: %w", err)
	}
	return c, os.RemoveAll(dir)
}

// staging makes the directory where a copy keeps what it has, and locks it.
func staging(path string) (dir string, lock *os.File, err error) {
	dir = path + "-copy"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("pgstore: copy: %w", err)
	}
	lock, err = lockCache(dir)
	return dir, lock, err
}

// upload writes the image of a file to the server, or the rest of it.
func upload(ctx context.Context, from *filestore.Store, dir, dsn string, opts Options, progress store.Progress) (n int64, err error) {
	s := &Store{opts: opts, dsn: dsn, cache: &cache{dir: dir, temp: true}}
	var made filestore.Copy
	var token string
	err = filestore.Export(ctx, from, func(tx *bbolt.Tx, c filestore.Copy) error {
		made = c
		token, err = s.cache.stage(ctx, tx, c, opts, progress)
		return err
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
	src, err := s.imageFiles(filepath.Join(dir, rowsFile))
	if err != nil {
		return 0, err
	}
	defer src.close()
	src.progress = progress
	var whole bool
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		whole, err = s.claim(ctx, tx, made, token, src.total)
		return err
	})
	if err == nil && !whole {
		err = s.send(ctx, conn, src)
	}
	if err == nil && !whole {
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return s.publish(ctx, tx, made, src.total) })
	}
	if err != nil {
		return 0, fmt.Errorf("pgstore: copy to %q: %w", opts.Name, err)
	}
	return src.total, nil
}

// stagedFile says which state of the file the rows in a staging directory are of. Its second line is the token of the copy.
const stagedFile = "staged"

// stage fills the staging directory, unless it has this state of the file. The token is new each time it is filled: rows of
// the server with another token are of other bytes.
func (c *cache) stage(ctx context.Context, tx *bbolt.Tx, from filestore.Copy, opts Options, progress store.Progress) (token string, err error) {
	mark := filepath.Join(c.dir, stagedFile)
	is := fmt.Sprintf("%s %d %d %d", from.Info.ID, from.Base.Applied, from.Leaves, tx.ID())
	if b, err := os.ReadFile(mark); err == nil {
		if was, token, ok := strings.Cut(string(b), "\n"); ok && was == is && len(token) == 26 {
			return token, nil
		}
	}
	if err := errors.Join(os.RemoveAll(mark), emptyDir(c.dir)); err != nil {
		return "", err
	}
	if err := c.take(ctx, tx, from, progress); err != nil {
		return "", err
	}
	id, err := store.NewID(opts.Now(), opts.Rand)
	if err != nil {
		return "", err
	}
	return id.String(), writeWhole(mark, is+"\n"+id.String())
}

// writeWhole writes a small file that is there whole or not at all.
func writeWhole(path, text string) error {
	if err := os.WriteFile(path+newSuffix, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+newSuffix, path)
}

// first is the record of the log that stands for everything in the image of a copy.
func first(c filestore.Copy) (body []byte, at position) {
	body = fmt.Appendf(nil, "copy of %s at lsn %d with %d leaves", c.Info.ID, c.Base.Applied, c.Leaves)
	return body, position{}.next(engine.KindMark, body)
}

// copySuffix ends the name of a database on the server while it is being copied there.
const copySuffix = " (copy in progress)"

// claim makes the row of the database, under a name that nobody can open, or finds that of the same copy. whole: the copy was
// published before. What another copy to that name left is removed; if that one is still running, it fails at its next part.
func (s *Store) claim(ctx context.Context, tx pgx.Tx, c filestore.Copy, token string, total int64) (whole bool, err error) {
	rows, err := tx.Query(ctx, `SELECT d.db, d.name, coalesce((SELECT max(m.host) FROM ctxpage_images m WHERE m.db = d.db), ''), (SELECT count(*) FROM ctxpage_records r WHERE r.db = d.db)
		FROM ctxpage_db d WHERE d.name = ANY($1) OR d.id = $2 ORDER BY d.name DESC FOR UPDATE`, []string{s.opts.Name, s.opts.Name + copySuffix}, c.Info.ID)
	if err != nil {
		return false, err
	}
	type found struct {
		db      int
		name    string
		from    string
		records int
	}
	there, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f found, err error) {
		return f, row.Scan(&f.db, &f.name, &f.from, &f.records)
	})
	if err != nil {
		return false, err
	}
	for _, f := range there {
		same := f.from == copyHost+token
		switch {
		case same && f.name == s.opts.Name && f.records == 1: // killed between publish and verify
			s.db.num = f.db
			return true, nil
		case f.name != s.opts.Name+copySuffix:
			if f.name == s.opts.Name {
				return false, store.Invalid("name", s.opts.Name, "the name of a database that the server does not have yet; choose another one (--database)")
			}
			return false, store.Invalid("database", c.Info.ID, fmt.Sprintf("one that the server does not have: it has this one already, under the name %q, and two copies would part", f.name))
		case same:
			s.db.num = f.db
			return false, nil
		}
		if _, err := tx.Exec(ctx, "DELETE FROM ctxpage_images WHERE db = $1", f.db); err != nil {
			return false, err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM ctxpage_db WHERE db = $1", f.db); err != nil {
			return false, err
		}
	}
	err = tx.QueryRow(ctx, "INSERT INTO ctxpage_db (name, id, secret, created) VALUES ($1, $2, $3, $4) RETURNING db",
		s.opts.Name+copySuffix, c.Info.ID, c.Info.Secret, c.Created).Scan(&s.db.num)
	if err == nil {
		_, err = tx.Exec(ctx, "INSERT INTO ctxpage_images (db, seq, bytes, host) VALUES ($1, 1, $2, $3)", s.db.num, total, copyHost+token)
	}
	return false, err
}

// copyHost and the token of a copy stand in place of the host that wrote an image.
const copyHost = "copy "

// copyParts limits the parts that one transaction of a copy writes.
const copyParts = 4

// send writes the parts that the server does not have.
func (s *Store) send(ctx context.Context, conn *pgx.Conn, src *imageSource) error {
	type key struct {
		file string
		part int32
	}
	have := map[key][]byte{}
	rows, err := conn.Query(ctx, "SELECT file, part, sha256(body) FROM ctxpage_image_parts WHERE db = $1 AND seq = 1", s.db.num)
	if err != nil {
		return err
	}
	var k key
	var sum []byte
	_, err = pgx.ForEachRow(rows, []any{&k.file, &k.part, &sum}, func() error {
		have[k] = bytes.Clone(sum)
		return nil
	})
	if err != nil {
		return err
	}
	src.db, src.seq = s.db.num, 1
	for more := true; more; {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			for n := 0; n < copyParts; {
				if more = src.Next(); !more {
					return src.err
				}
				was, is := have[key{src.names[src.at], src.part}], sha256.Sum256(src.body)
				if bytes.Equal(was, is[:]) {
					continue
				}
				if was != nil {
					return fmt.Errorf("pgstore: part %d of %s arrived with other bytes; delete the directory %s and copy again", src.part, src.names[src.at], s.cache.dir)
				}
				if _, err := tx.Exec(ctx, sqlPutPart, src.Values()...); err != nil {
					return err
				}
				n++
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// publish sets the name of a copy and the first record of its log, once the server has all of it.
func (s *Store) publish(ctx context.Context, tx pgx.Tx, c filestore.Copy, total int64) error {
	var got int64
	if err := tx.QueryRow(ctx, "SELECT coalesce(sum(length(body)), 0) FROM ctxpage_image_parts WHERE db = $1", s.db.num).Scan(&got); err != nil {
		return err
	}
	if got != total {
		return fmt.Errorf("pgstore: %d bytes arrived, the copy has %d", got, total)
	}
	body, at := first(c)
	var b pgx.Batch
	b.Queue("UPDATE ctxpage_db SET name = $2 WHERE db = $1", s.db.num, s.opts.Name)
	b.Queue("INSERT INTO ctxpage_turn VALUES ($1)", s.db.num)
	b.Queue("INSERT INTO ctxpage_records (db, seq, kind, body, chain) VALUES ($1, 1, $2, $3, $4)", s.db.num, int16(engine.KindMark), body, at.chain[:])
	return tx.SendBatch(ctx, &b).Close()
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
	row := sysRow{Format: cacheFormat, DB: made.Info.ID, Applied: b.Applied, Seq: at.seq, Chain: at.chain, High: b.High, Rows: b.Rows}
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
// meanwhile may not be in it. The file is then opened, compared with the head of the server, and its audit is verified. Original and
// copy have one id: do not write to both.
//
// A copy that is interrupted or killed keeps what it has in the directory path-copy, and the next call goes on there. Nothing
// is at path until the copy is verified.
func CopyToFile(ctx context.Context, dsn, path string, opts Options, progress store.Progress) (c Copied, err error) {
	if progress == nil {
		progress = func(string, uint64, uint64) {}
	}
	if path, err = filepath.Abs(path); err != nil {
		return c, fmt.Errorf("pgstore: copy: %w", err)
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return c, fmt.Errorf("pgstore: copy: make the directory of %s first: %w", path, err)
	}
	dir, lock, err := staging(path)
	if err != nil {
		return c, err
	}
	defer lock.Close()
	made := filepath.Join(dir, "made.ctx")
	if c, err = movable(filepath.Join(dir, movableFile), opts.Name); err == nil {
		return c, moveCopy(made, path, dir)
	}
	for _, suffix := range copiedFiles {
		if _, err := os.Lstat(path + suffix); err == nil {
			return c, errors.Join(fmt.Errorf("pgstore: copy: %s already exists; name a new path", path+suffix), removeIfUnused(dir))
		}
	}
	opts.MustExist, opts.CacheDir, opts.progress = true, filepath.Join(dir, "cache"), progress
	st, err := Open(ctx, dsn, opts)
	if err != nil {
		return c, errors.Join(err, removeIfUnused(dir))
	}
	for _, suffix := range copiedFiles {
		err = errors.Join(err, os.RemoveAll(made+suffix))
	}
	if err == nil {
		c, err = st.export(ctx, made, progress)
	}
	if err = errors.Join(err, st.Close()); err != nil {
		return c, fmt.Errorf("pgstore: copy to %s: %w", path, err)
	}
	if err := verifyFile(ctx, made, c, st.opts, progress); err != nil {
		return c, err
	}
	if c.Bytes, err = sizeOf(made); err != nil {
		return c, fmt.Errorf("pgstore: copy to %s: %w", path, err)
	}
	text := fmt.Sprintf("%s\n%s\n%d %d", st.opts.Name, c.Head.String(), c.LSN, c.Bytes)
	if err := writeWhole(filepath.Join(dir, movableFile), text); err != nil {
		return c, fmt.Errorf("pgstore: copy to %s: %w", path, err)
	}
	return c, moveCopy(made, path, dir)
}

// copiedFiles lists the files of a database in the order in which a copy is moved into place: the file that makes it a database comes last.
var copiedFiles = []string{"-manifest", "-wal", ".lock", ""}

// movableFile says that the copy in a staging directory was verified, and of what it is.
const movableFile = "verified"

// movable reads what a killed process wrote before it moved a copy of the database name into place.
func movable(path, name string) (c Copied, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) != 3 || lines[0] != cmp.Or(name, defaultName) {
		return c, store.ErrNotExist
	}
	if _, err = fmt.Sscan(lines[2], &c.LSN, &c.Bytes); err == nil {
		c.Head, err = manifest.ParseHead(lines[1])
	}
	c.Database = c.Head.DB
	return c, err
}

// moveCopy puts a verified copy in its place. It goes on where a killed process stopped.
func moveCopy(made, path, dir string) error {
	for _, suffix := range copiedFiles {
		if _, err := os.Lstat(made + suffix); err != nil {
			continue // moved before
		}
		if _, err := os.Lstat(path + suffix); err == nil {
			return fmt.Errorf("pgstore: copy: %s already exists; move it away and copy again", path+suffix)
		}
		if err := os.Rename(made+suffix, path+suffix); err != nil {
			return fmt.Errorf("pgstore: copy: %w", err)
		}
	}
	if err := wal.OS().SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("pgstore: copy: %w", err)
	}
	return os.RemoveAll(dir)
}

// removeIfUnused removes a staging directory in which nothing was staged.
func removeIfUnused(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "cache", rowsFile)); err == nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "cache", fetchFile)); err == nil {
		return nil
	}
	return os.RemoveAll(dir)
}

// verifyFile opens a copy and compares it with what it is of.
func verifyFile(ctx context.Context, path string, c Copied, opts Options, progress store.Progress) (err error) {
	to, err := filestore.Open(filestore.Options{Path: path, MustExist: true, State: opts.State, Now: opts.Now})
	if err != nil {
		return fmt.Errorf("pgstore: open the copy: %w", err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if at := to.Mark().LSN; at != c.LSN {
		return fmt.Errorf("pgstore: the copy has LSN %d, the server %d", at, c.LSN)
	}
	if _, err := to.Audit().Verify(ctx, &c.Head, func(done, total uint64) { progress("verify", done, total) }); err != nil {
		return fmt.Errorf("pgstore: verify the copy: %w", err)
	}
	return nil
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
		c = Copied{Database: s.db.id, LSN: base.Applied, Head: head}
		return filestore.Import(ctx, path, from, tx, progress)
	})
	return c, err
}

// sizeOf returns the bytes of the files of an embedded database.
func sizeOf(path string) (n int64, err error) {
	for _, suffix := range copiedFiles {
		err := filepath.WalkDir(path+suffix, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			fi, err := d.Info()
			if err == nil {
				n += fi.Size()
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, err
		}
	}
	return n, nil
}
