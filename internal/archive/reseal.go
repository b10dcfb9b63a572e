package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
	"golang.org/x/mod/sumdb/tlog"
)

// Reseal writes the archived leaves into a new archive in dir, whose bodies are sealed by seal, or
// plain if seal is nil. Leaves, stubs and tree are the same, so every head verifies there, too. dir
// must be empty or not exist. On an error it has a part of an archive, without a mark.
func (l *Log) Reseal(ctx context.Context, dir string, fs wal.FS, seal Sealer) error {
	l.archiving.Lock()
	defer l.archiving.Unlock()
	v, err := l.pending(0)
	if err != nil {
		return err
	}
	a := v.arch
	next := &archive{dir: dir, fs: fs, segSize: a.segSize, seal: seal, mark: a.mark}
	if err := next.openDir(); err != nil {
		return err
	}
	if something, err := next.holdsSomething(); err != nil || something {
		return errors.Join(err, fmt.Errorf("manifest: reseal: %s is not empty", dir))
	}
	defer next.close()
	w := &pruner{v: v, p: &manifest.Record{}, next: next}
	for k, s := range v.segs {
		to := v.archived
		if k+1 < len(v.segs) {
			to = v.segs[k+1].first
		}
		if err := w.rewrite(ctx, s, to); err != nil {
			return fmt.Errorf("manifest: reseal: %w", err)
		}
	}
	if next.index, err = w.make(indexFile(next.mark.gen), kindIndex, 0); err == nil {
		err = writeSync(next.index, w.rows, headerSize)
	}
	if err == nil {
		err = next.copyHashes(ctx, a, v.archived)
	}
	if err == nil {
		err = fs.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("manifest: reseal: %w", err)
	}
	next.mark.size = v.archived
	if next.mark.root, err = v.root(v.archived); err != nil {
		return err
	}
	return next.writeMark(next.mark)
}

// copyHashes writes the hashes of another archive of the same leaves.
func (a *archive) copyHashes(ctx context.Context, from *archive, leaves uint64) (err error) {
	if a.hashes, err = a.make(hashesName, kindHashes, 0); err != nil {
		return err
	}
	end := hashOffset(int64(hashCount(leaves)))
	for off := int64(headerSize); off < end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := readUpTo(from.hashes, off, int(min(writeChunk/tlog.HashSize*tlog.HashSize, end-off)))
		if err == nil && len(b) == 0 {
			err = corruptAt(hashesName, off, noLeaf, errors.New("the file is too short"))
		}
		if err == nil {
			_, err = a.hashes.WriteAt(b, off)
		}
		if err != nil {
			return err
		}
		off += int64(len(b))
	}
	return a.hashes.Sync()
}
