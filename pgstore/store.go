package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// served has the methods of store.Store that the engine answers unchanged. Store has the other methods.
type served interface {
	Info(ctx context.Context) (store.Info, error)
	Commit(ctx context.Context, b store.Batch) (store.Outcome, error)
	PutVectors(ctx context.Context, model string, nums []uint64, vecs [][]float32) error
	Hold(ctx context.Context, at store.Moment) (store.Ticket, error)
	Release(t store.Ticket)
	Changes(ctx context.Context, after uint64, wait time.Duration) (store.Changes, error)
	Append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error
	Audit() store.Audit
}

// Store is a database on a server, as one host follows it. All methods may be called concurrently.
type Store struct {
	served // by eng
	eng    *engine.Engine
	opts   Options
	dsn    string
	pool   *pgxpool.Pool
	log    *serverLog
	cache  *cache
	dir    string // of the cache
	temp   bool   // it is removed at the end
	lock   *os.File
	db     database

	ckptMu sync.Mutex    // one checkpoint, image or check at a time
	imaged atomic.Int64  // record of the newest image this host knows of
	purged atomic.Uint64 // LSN of the last erase that the cache has no byte of

	told  chan struct{} // another host says that it committed
	tell  chan struct{} // this host committed
	ended <-chan struct{}
	end   context.CancelFunc

	mu      sync.Mutex
	closing bool
	tasks   sync.WaitGroup
	cause   error         // why it is dead; under mu
	dead    chan struct{} // closed when the handle takes no more calls
}

var _ store.Store = (*Store)(nil)

// database is a row of ctxpage_db.
type database struct {
	num     int
	id      string
	secret  []byte
	created time.Time
}

// Open follows a database on the server that dsn names, in the form that pgx takes (a URL or key=value pairs). It returns when
// this host has everything that was committed before the call. ctx ends the opening, nothing else.
//
// Errors: ErrSchema, store.ErrNotExist with Options.MustExist, ErrTooOld, a *ForkedError if the server lacks records that the cache in
// Options.CacheDir remembers, and those of the connection. An open that is refused
// leaves nothing behind but the row of a database it made.
func Open(ctx context.Context, dsn string, opts Options) (st *Store, err error) {
	if opts, err = opts.withDefaults(); err != nil {
		return nil, err
	}
	s := &Store{opts: opts, dsn: dsn, told: make(chan struct{}, 1), tell: make(chan struct{}, 1), dead: make(chan struct{})}
	running, end := context.WithCancel(context.Background())
	s.ended, s.end = running.Done(), end
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	if err := s.follow(ctx); err != nil {
		return nil, err
	}
	s.eng.Start()
	s.background(running)
	if err := s.adopt(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// connect opens the pool, checks the schema, and finds or makes the database.
func (s *Store) connect(ctx context.Context) error {
	cfg, err := pgxpool.ParseConfig(s.dsn)
	if err != nil {
		return fmt.Errorf("pgstore: data source name: %w", err)
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	cfg.MaxConns = max(cfg.MaxConns, 6)
	if s.pool, err = pgxpool.NewWithConfig(context.Background(), cfg); err != nil {
		return fmt.Errorf("pgstore: %w", err)
	}
	if err := checkSchema(ctx, s.pool); err != nil {
		return err
	}
	return s.find(ctx)
}

const sqlFind = "SELECT db, id, secret, created FROM ctxpage_db WHERE name = $1"

// find reads the row of the database, and makes it if it may.
func (s *Store) find(ctx context.Context) error {
	read := func() error {
		return s.pool.QueryRow(ctx, sqlFind, s.opts.Name).Scan(&s.db.num, &s.db.id, &s.db.secret, &s.db.created)
	}
	err := read()
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("pgstore: open: %w", err)
	case s.opts.MustExist:
		return fmt.Errorf("%w: the server has no database %q in this schema that this login may see; dbctl postgres ls lists the names, --database or Options.Name chooses one", store.ErrNotExist, s.opts.Name)
	}
	id, err := store.NewID(s.opts.Now(), s.opts.Rand)
	if err != nil {
		return err
	}
	secret := make([]byte, 32)
	if _, err := io.ReadFull(s.opts.Rand, secret); err != nil {
		return fmt.Errorf("pgstore: randomness: %w", err)
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO ctxpage_db (name, id, secret, created) VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING", s.opts.Name, id.String(), secret, s.opts.Now())
		if err == nil {
			_, err = tx.Exec(ctx, "INSERT INTO ctxpage_turn SELECT db FROM ctxpage_db WHERE name = $1 ON CONFLICT DO NOTHING", s.opts.Name)
		}
		return err
	})
	if err == nil {
		err = read()
	}
	if errors.Is(err, pgx.ErrNoRows) { // it is there, and the policy of the table hides it
		return fmt.Errorf("%w: database %q belongs to another role (ctxpage_db.owner); become a member of that role, or take another name", store.ErrNotExist, s.opts.Name)
	}
	if err != nil {
		return fmt.Errorf("pgstore: make database %q: %w", s.opts.Name, err)
	}
	return nil
}

// follow builds the engine from the cache, or from the newest image, and from the log behind it.
func (s *Store) follow(ctx context.Context) error {
	var host [16]byte
	if _, err := io.ReadFull(s.opts.Rand, host[:]); err != nil {
		return fmt.Errorf("pgstore: randomness: %w", err)
	}
	dir, temp, err := s.cacheDir()
	if err != nil {
		return fmt.Errorf("pgstore: cache: %w", err)
	}
	s.dir, s.temp = dir, temp
	if s.lock, err = lockCache(dir); err != nil {
		s.temp = false
		return err
	}
	s.log = newLog(s, s.pool, s.db.num, host)
	for try := 1; ; try++ {
		err = s.fromCache(ctx, dir, temp)
		if err == nil || !stale(err) || try == 3 || !temp && errors.Is(err, ErrForked) {
			return err
		}
		s.opts.Logger.Warn("pgstore: the local cache cannot be used; beginning anew", "dir", dir, "error", err)
		if s.cache != nil {
			_ = s.cache.bolt.Close()
			s.cache = nil
		}
		if err := emptyDir(dir); err != nil {
			return fmt.Errorf("pgstore: cache: %w", err)
		}
		s.log = newLog(s, s.pool, s.db.num, host)
		s.dead, s.cause = make(chan struct{}), nil
	}
}

// stale reports whether beginning with an empty cache may help: it is of another history, damaged, or older than the log. A cache that
// was kept and has records that the server lost is not thrown away: it may be all that remembers the loss.
func stale(err error) bool {
	for _, e := range []error{ErrTooOld, ErrForked, errForeignCache, lexical.ErrCorrupt, store.ErrCorrupt, bolterrors.ErrInvalid, bolterrors.ErrChecksum, bolterrors.ErrVersionMismatch} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (s *Store) cacheDir() (dir string, temp bool, err error) {
	if s.opts.CacheDir == "" {
		removeAbandoned(os.TempDir())
		dir, err = os.MkdirTemp("", tempPrefix)
		return dir, true, err
	}
	return s.opts.CacheDir, false, os.MkdirAll(s.opts.CacheDir, 0o700)
}

func (s *Store) fromCache(ctx context.Context, dir string, temp bool) (err error) {
	if err := s.fetchImage(ctx, dir); err != nil {
		return err
	}
	if s.cache, err = openCache(dir, temp, s.db.id); err != nil {
		return err
	}
	s.eng = engine.New(engine.Options{
		Path: "postgres:" + s.opts.Name, Now: s.opts.Now, Rand: s.opts.Rand, Analyzer: s.opts.Analyzer, State: s.opts.State, Repeat: true,
		Checkpoint: func(ctx context.Context) error { _, err := s.checkpoint(ctx); return err },
	})
	s.served = s.eng
	s.eng.Attach(s.log)
	s.eng.Identify(store.Info{ID: s.db.id, Secret: s.db.secret, Host: s.opts.Host})
	if err := s.load(ctx); err != nil {
		return err
	}
	if s.eng.Leaves, err = s.cache.audit(ctx, s.db.id); err != nil {
		return err
	}
	sys := s.cache.now()
	s.log.moved(position{sys.Seq, sys.Chain})
	if err := s.register(ctx); err != nil {
		return err
	}
	if err := s.log.catchUp(ctx); err != nil {
		return err
	}
	if err := s.adoptSpools(ctx); err != nil {
		return err
	}
	return s.register(ctx)
}

// load builds the catalogue and the index from the cache. An index of another analyzer is built anew from the pages.
func (s *Store) load(ctx context.Context) error {
	err := s.log.Snapshot(ctx, s.eng.LoadRows)
	if !errors.Is(err, lexical.ErrAnalyzer) {
		return err
	}
	err = s.cache.update(func(tx *bbolt.Tx) error { return lexical.Reset(engine.SegRows{Reader: filestore.Rows(tx)}) })
	if err != nil {
		return fmt.Errorf("pgstore: rebuild the index: %w", err)
	}
	return s.log.View(s.eng.IndexAnew)
}

// adopt numbers what hosts that have ended left in the inbox.
func (s *Store) adopt(ctx context.Context) error {
	var some bool
	err := s.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM ctxpage_inbox WHERE db = $1)", s.db.num).Scan(&some)
	if err != nil {
		return fmt.Errorf("pgstore: open: %w", err)
	}
	if !some {
		return nil
	}
	tail, err := s.log.Acquire(ctx)
	if err != nil {
		return err
	}
	tail.Release()
	return s.log.Sync(ctx, 0, nil)
}

// background starts what goes on until Close.
func (s *Store) background(ctx context.Context) {
	for _, task := range []func(context.Context){s.log.poll, s.log.takeTurns, s.log.fillInbox, s.keep, s.notifyOthers, s.listen} {
		s.start(func() { task(ctx) })
	}
}

// start runs a task that Close waits for. False: it is too late.
func (s *Store) start(task func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.tasks.Go(task)
	return true
}

// die ends the handle: what is in memory is not, or no longer, what the server has.
func (s *Store) die(err error) error {
	s.mu.Lock()
	if s.cause == nil {
		s.cause = fmt.Errorf("pgstore: database %q must be opened again: %w", s.opts.Name, err)
		if forked := (*ForkedError)(nil); errors.As(err, &forked) { // it says what to do
			s.cause = fmt.Errorf("pgstore: database %q: %w", s.opts.Name, err)
		}
		close(s.dead)
	}
	err = s.cause
	s.mu.Unlock()
	_ = s.eng.Fail(err)
	return err
}

// fatal ends the handle if an error shows that the engine and the log differ. Other errors pass.
func (s *Store) fatal(err error) error {
	var follow followError
	if errors.As(err, &follow) {
		return s.die(s.log.forked(follow.error))
	}
	return err
}

func (s *Store) whyDead() error {
	select {
	case <-s.dead:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.cause
	default:
		return nil
	}
}

// damage says where a record stands that the engine refuses.
func (s *Store) damage(seq uint64, err error) error {
	if errors.Is(err, codec.ErrNewer) {
		return fmt.Errorf("%w: record %d: %w; use a newer release", store.ErrNewerFormat, seq, err)
	}
	var bad *engine.RecordError
	if errors.As(err, &bad) {
		return &store.CorruptError{File: "postgres:" + s.opts.Name, Err: fmt.Errorf("record %d of the log: %w", seq, bad.Err), Hint: "restore the server's backup"}
	}
	return err
}

func (s *Store) step(name string) error {
	if s.opts.hook == nil {
		return nil
	}
	return s.opts.hook(name)
}

// fresh is asked first by what reads.
func (s *Store) fresh() error {
	if s.eng.Closed() {
		return store.ErrClosed
	}
	if err := s.whyDead(); err != nil {
		return err
	}
	if s.opts.MaxLag < 0 {
		return nil
	}
	heard := time.Unix(0, s.log.heard.Load())
	if time.Since(heard) <= s.opts.MaxLag {
		return nil
	}
	e := &BehindError{Heard: heard, MaxLag: s.opts.MaxLag}
	if p := s.log.silent.Load(); p != nil {
		e.Err = *p
	}
	return e
}

// Close numbers the audit leaves that wait, stops following, and removes a temporary cache. If the server does not answer, leaves stay
// in its inbox, where the next host that opens the database finds them, or on this machine, for the next Open here.
func (s *Store) Close() error {
	if !s.eng.Shut() {
		return nil
	}
	if s.whyDead() == nil && s.log.down.Load() == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		_ = s.log.Sync(ctx, 0, nil)
		cancel()
	}
	s.stop()
	var err error
	if !s.temp && s.whyDead() == nil {
		_, err = s.checkpoint(context.Background())
	}
	s.deregister()
	return errors.Join(err, s.release())
}

// stop ends the background and waits for it.
func (s *Store) stop() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.end()
	s.tasks.Wait()
}

// release lets go of the server and of the cache.
func (s *Store) release() (err error) {
	s.end()
	if s.pool != nil {
		s.pool.Close()
	}
	if s.eng != nil && s.eng.Leaves != nil {
		err = s.eng.Leaves.Close()
	}
	if s.cache != nil {
		err = errors.Join(err, s.cache.bolt.Close())
	}
	stays := s.log != nil && s.log.closeSpool()
	switch {
	case s.temp && stays:
		err = errors.Join(err, emptyDir(s.dir))
	case s.temp:
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}
