package wal_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/wal"
)

// slowFS syncs as slowly as a disk, so that reports run beside syncs.
type slowFS struct{ wal.FS }

type slowFile struct{ wal.File }

func (s slowFS) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	return slowFile{f}, err
}

func (f slowFile) Sync() error {
	time.Sleep(time.Duration(rand.IntN(150)) * time.Microsecond)
	return f.File.Sync()
}

// TestPairsFail: many writers, some impatient; the disk fails at some operation, or the log is closed or abandoned, or
// rotated, while one round syncs and the one before is reported. Whoever is answered is reported and survives a power
// cut; nobody waits forever.
func TestPairsFail(t *testing.T) {
	failed, ended := 0, 0
	for seed := range uint64(32) {
		rng := rand.New(rand.NewPCG(seed, 1))
		mem := dbtest.NewFS()
		var reported, inside atomic.Uint64
		opts := wal.Options{FS: slowFS{mem}, Salt: salts(), SegmentBytes: 8 << 10, OnDurable: func(seq uint64) {
			if inside.Add(1) != 1 || seq <= reported.Load() {
				t.Errorf("report of %d after %d", seq, reported.Load())
			}
			time.Sleep(time.Duration(rand.IntN(150)) * time.Microsecond)
			reported.Store(seq)
			inside.Add(^uint64(0))
		}}
		l, _, _, err := open(opts)
		require.NoError(t, err)
		if seed%4 < 2 {
			op := dbtest.OpSync
			if seed%2 == 1 {
				op = dbtest.OpWrite
			}
			mem.Inject(dbtest.Fault{Op: op, N: 5 + rng.IntN(60)})
		}
		var mu sync.Mutex
		acked := uint64(0)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var bad atomic.Bool
		for w := range 8 {
			wg.Go(func() {
				for i := range 40 {
					select {
					case <-stop:
						return
					default:
					}
					seq, err := l.Enqueue(wal.KindCommit, false, binary.LittleEndian.AppendUint64(nil, uint64(w)), make([]byte, i*5))
					if err != nil {
						bad.Store(true)
						return
					}
					ctx, cancel := context.Background(), func() {}
					if (w+i)%7 == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(200))*time.Microsecond)
					}
					if (w+i)%5 == 0 {
						_ = l.Write()
					}
					err = l.Sync(ctx, seq, nil)
					cancel()
					switch {
					case err == nil:
						if reported.Load() < seq {
							t.Errorf("%d was answered and not reported", seq)
						}
						mu.Lock()
						acked = max(acked, seq)
						mu.Unlock()
					case errors.Is(err, context.DeadlineExceeded):
					default:
						bad.Store(true)
						return
					}
				}
			})
		}
		wg.Go(func() {
			time.Sleep(time.Duration(rng.IntN(8000)) * time.Microsecond)
			switch seed % 4 {
			case 2:
				_ = l.Close(wal.KindMark, nil)
			case 3:
				_ = l.Abandon()
			default:
				_ = l.Rotate()
			}
		})
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			panic("somebody waits for ever")
		}
		if bad.Load() {
			if seed%4 < 2 {
				failed++
			} else {
				ended++
			}
		}
		after := mem.CrashClone(seed, 0)
		_ = l.Abandon()
		_, rec, _, err := open(wal.Options{FS: after, Salt: salts()})
		require.NoError(t, err, "seed %d", seed)
		require.GreaterOrEqual(t, rec.Last, acked, "seed %d", seed)
	}
	t.Log(failed, ended)
	require.Positive(t, failed)
	require.Positive(t, ended)
}
