package pgstore

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ctxpage/ctxpage/store"
)

// How hosts know of each other: each writes down how far it has come, and tells the others when it committed. Nothing depends
// on a notification: they rely on the poll.

const heartbeat = 5 * time.Second

// gone is after how long a host that was not seen is not waited for.
func (o *Options) gone() time.Duration { return 3 * o.beat }

func (s *Store) register(ctx context.Context) error {
	var lsn *int64
	var held *time.Time
	if at, any := s.eng.OldestHold(); any {
		n := int64(at.LSN)
		lsn, held = &n, &at.Time
	}
	_, err := s.pool.Exec(ctx, `INSERT INTO ctxpage_hosts (db, host, name, applied, purged, held_lsn, held_at, seen) VALUES ($1, $2, $3, $4, $5, $6, $7, now())
		ON CONFLICT (db, host) DO UPDATE SET applied = excluded.applied, purged = excluded.purged, held_lsn = excluded.held_lsn, held_at = excluded.held_at, seen = now()`,
		s.db.num, s.log.uuid(), s.opts.Host, int64(s.log.applied.Load().seq), int64(s.purged.Load()), lsn, held)
	if err == nil { // of hosts that were killed
		_, err = s.pool.Exec(ctx, "DELETE FROM ctxpage_hosts WHERE db = $1 AND seen < now() - interval '1 day'", s.db.num)
	}
	if err != nil {
		return fmt.Errorf("pgstore: tell the other hosts of this one: %w", err)
	}
	return nil
}

func (s *Store) deregister() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = s.pool.Exec(ctx, "DELETE FROM ctxpage_hosts WHERE db = $1 AND host = $2", s.db.num, s.log.uuid()) // else it is gone in a minute
}

// keep checkpoints, writes images, and says that this host is there.
func (s *Store) keep(ctx context.Context) {
	tick := time.NewTicker(min(250*time.Millisecond, s.opts.beat/2))
	defer tick.Stop()
	told := time.Now() // by Open
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.whyDead() != nil {
			return
		}
		if s.due() {
			if _, err := s.checkpoint(ctx); err != nil && ctx.Err() == nil {
				s.opts.Logger.Error("pgstore: a checkpoint of the local cache failed", "database", s.opts.Name, "error", err)
			}
		}
		did, err := s.purgeCache(ctx)
		if err != nil && ctx.Err() == nil {
			s.opts.Logger.Error("pgstore: erased content was not purged from the local cache", "database", s.opts.Name, "error", err)
		}
		if !did && time.Since(told) < s.opts.beat {
			continue
		}
		told = time.Now()
		ask, cancel := context.WithTimeout(ctx, replyTimeout)
		err = s.register(ask)
		cancel()
		if err == nil {
			err = s.imageIfDue(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("pgstore: the heartbeat failed; it tries again", "database", s.opts.Name, "error", err)
		}
	}
}

// channel is the notification channel for commits.
func (s *Store) channel() string { return fmt.Sprintf("ctxpage_%d", s.db.num) }

// self marks this host's notifications, so that it ignores them.
func (s *Store) self() string { return hex.EncodeToString(s.log.host[:]) }

// notify has the other hosts told that this one committed. Many commits become one notification.
func (s *Store) notify() {
	select {
	case s.tell <- struct{}{}:
	default:
	}
}

// sqlNotify does not wait for the disk, nor for a standby: the server writes a record for the transaction of a notification, and its
// flush held up the next commit. A notification that a crash takes away is of a commit that polls find.
const sqlNotify = `SELECT pg_notify($1, $2) WHERE set_config('synchronous_commit', 'off', true) = 'off'`

// notifyOthers tells in transactions of its own: a NOTIFY in the commit takes a lock of the whole server.
func (s *Store) notifyOthers(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.tell:
		}
		if s.opts.NoNotify {
			continue
		}
		ask, cancel := context.WithTimeout(ctx, replyTimeout)
		_, err := s.pool.Exec(ask, sqlNotify, s.channel(), s.self())
		cancel()
		if err != nil && ctx.Err() == nil {
			s.opts.Logger.Debug("pgstore: notify", "database", s.opts.Name, "error", err)
		}
	}
}

// listen hears what other hosts tell, on a connection of its own, and begins anew when that is lost.
func (s *Store) listen(ctx context.Context) {
	for try := 0; !s.opts.NoNotify && ctx.Err() == nil; try++ {
		begun := time.Now()
		if err := s.hearOthers(ctx); err != nil && ctx.Err() == nil {
			s.opts.Logger.Debug("pgstore: listen", "database", s.opts.Name, "error", err)
		}
		if time.Since(begun) > time.Minute {
			try = 0
		}
		if !s.log.pause(ctx, try) {
			return
		}
	}
}

func (s *Store) hearOthers(ctx context.Context) error {
	ask, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ask, s.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(end)
	}()
	if _, err := conn.Exec(ask, "LISTEN "+s.channel()); err != nil {
		return err
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if n.Payload == s.self() {
			continue
		}
		for _, who := range []chan struct{}{s.told, s.log.told} {
			select {
			case who <- struct{}{}:
			default:
			}
		}
	}
}

// heldElsewhere are the oldest moments that readers of other live hosts read at.
func (s *Store) heldElsewhere(ctx context.Context) ([]store.Moment, error) {
	rows, err := s.pool.Query(ctx, `SELECT held_lsn, held_at FROM ctxpage_hosts
		WHERE db = $1 AND host <> $2 AND held_lsn IS NOT NULL AND seen > now() - $3::interval`, s.db.num, s.log.uuid(), s.opts.gone())
	if err != nil {
		return nil, fmt.Errorf("pgstore: what other hosts read: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m store.Moment, err error) {
		var lsn int64
		err = row.Scan(&lsn, &m.Time)
		m.LSN = uint64(lsn)
		return m, err
	})
}

// size of the files of a cache, bytes.
func (c *cache) size() (n int64) {
	_ = filepath.Walk(c.dir, func(_ string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() {
			n += fi.Size()
		}
		return nil
	})
	return n
}
