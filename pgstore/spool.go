package pgstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// A read is answered when its audit leaf survives a killed process. A round trip to the server for that took longer than the search it
// recorded, so the leaf is written to a local file instead, as an embedded database does: the spool. The leaf goes to the server in the
// background, to the inbox within inboxEvery and to the log with the next turn. The file is removed when the log has all of its leaves.
//
// Open looks for the spools of processes that were killed, in its cache directory and in temporary ones, and sends their leaves. A
// leaf keeps the host and the ticket it was left with, so one that the server already has is not added twice.
//
//	file    magic, host (16 bytes), LSN of the last erase that the host had followed (8), length of the database's name (1), name; then frames
//	frame   length of the rest (4), CRC-32C of the rest (4), ticket (8), 1 + length of the question, 0 without one (4), question, body
//
// Integers are big-endian. A frame that is incomplete ends the file: it was being written when the machine stopped.
//
// A live host empties its spool when it follows an erase. The spool of a killed one may be older than an erase, and its questions may
// quote what was erased: then the leaves are sent without them.
type spool struct {
	dir  string
	db   string
	id   [16]byte // of the host
	host string   // the same in hexadecimal

	mu   sync.Mutex // before serverLog.mu
	n    int        // files made so far
	file *spoolFile // the one that is written to; nil: none
	old  []*spoolFile
	buf  []byte
}

// spoolFile is a file of the spool. left is how many of its leaves the log on the server may not have; it is guarded by serverLog.mu.
type spoolFile struct {
	f    *os.File
	size int
	left int
}

const (
	spoolMagic  = "ctxpage spool 1\n"
	spoolPrefix = "leaves-"
	spoolBytes  = 1 << 20 // a file of the spool ends at this size
	spoolMost   = 8192    // leaves that the server does not have yet; more wait for it
	spoolBuffer = 1 << 16 // memory kept for the next write
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// spool names the database in its spools: its id, and a hash of its secret. A tenant can give a database of its own the id of another one; a
// process that serves both would send it the leaves of the other.
func (d *database) spool() string {
	sum := sha256.Sum256(d.secret)
	return d.id + " " + hex.EncodeToString(sum[:16])
}

func newSpool(dir, db string, host [16]byte) *spool {
	return &spool{dir: dir, db: db, id: host, host: hex.EncodeToString(host[:])}
}

// head is the beginning of a file.
func (sp *spool) head(purged uint64) []byte {
	b := append([]byte(spoolMagic), sp.id[:]...)
	b = binary.BigEndian.AppendUint64(b, purged)
	return append(append(b, byte(len(sp.db))), sp.db...)
}

// errSpoolFull: the server has not taken leaves for long. A read then waits for it, and fails if it does not answer.
var errSpoolFull = errors.New("pgstore: too many audit leaves wait for the server")

// spoolNew writes the leaves that are not in the spool yet. After an error the caller must wait for the server.
func (l *serverLog) spoolNew() error {
	sp := l.spool
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if err := errors.Join(l.s.step("spool"), l.nextFile()); err != nil {
		return err
	}
	fresh, err := l.unspooled()
	if err != nil || len(fresh) == 0 { // none: another reader wrote them
		return err
	}
	b := sp.buf[:0]
	if sp.file.size == 0 {
		b = append(b, sp.head(l.s.purged.Load())...)
	}
	for _, f := range fresh {
		b = appendFrame(b, f.ticket, f.of.Question(), f.of.Body())
	}
	if cap(b) <= spoolBuffer {
		sp.buf = b
	}
	if _, err := sp.file.f.Write(b); err != nil {
		l.unspool(fresh)
		return err
	}
	sp.file.size += len(b)
	return nil
}

// unspooled returns the leaves that the spool has not, and counts them to its file. They are the last ones.
func (l *serverLog) unspooled() ([]*leaf, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.leaves) > spoolMost {
		return nil, errSpoolFull
	}
	first := len(l.leaves)
	for first > 0 && l.leaves[first-1].in == nil {
		first--
	}
	fresh := slices.Clone(l.leaves[first:])
	for _, f := range fresh {
		f.in = l.spool.file
		f.in.left++
	}
	return fresh, nil
}

// nextFile makes sure that there is a file to write to.
func (l *serverLog) nextFile() error {
	sp := l.spool
	if sp.file != nil && sp.file.size >= spoolBytes {
		sp.retire()
	}
	l.tidyLocked()
	if sp.file != nil {
		return nil
	}
	sp.n++
	f, err := os.OpenFile(filepath.Join(sp.dir, fmt.Sprintf("%s%s-%d", spoolPrefix, sp.host, sp.n)), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		sp.file = &spoolFile{f: f}
	}
	return err
}

// unspool notes that a write failed. What follows a broken frame cannot be read, so the next write goes to a new file.
func (l *serverLog) unspool(leaves []*leaf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range leaves {
		if f.in != nil {
			f.in.left--
			f.in = nil
		}
	}
	l.spool.retire()
}

// retire ends the file that is written to.
func (sp *spool) retire() {
	if sp.file != nil {
		sp.old = append(sp.old, sp.file)
		sp.file = nil
	}
}

// tidy removes the files whose leaves are all in the log, and empties the one that is written to.
func (l *serverLog) tidy() {
	l.spool.mu.Lock()
	defer l.spool.mu.Unlock()
	l.tidyLocked()
}

func (l *serverLog) tidyLocked() {
	sp := l.spool
	kept := sp.old[:0]
	for _, f := range sp.old {
		if l.left(f) > 0 {
			kept = append(kept, f)
			continue
		}
		_ = f.f.Close()
		_ = os.Remove(f.f.Name())
	}
	clear(sp.old[len(kept):])
	sp.old = kept
	if f := sp.file; f != nil && f.size > 0 && l.left(f) == 0 {
		if f.size = 0; f.f.Truncate(0) != nil {
			sp.retire() // and removed the next time
		}
	}
}

func (l *serverLog) left(f *spoolFile) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return f.left
}

// emptySpool returns when no file has a leaf that was left before the call.
func (l *serverLog) emptySpool(ctx context.Context) error {
	l.spool.mu.Lock()
	l.spool.retire()
	l.spool.mu.Unlock()
	err := l.Sync(ctx, 0, nil)
	l.tidy()
	return err
}

// closeSpool ends the spool and reports whether files with leaves stay, for the next Open on this machine.
func (l *serverLog) closeSpool() (stays bool) {
	l.spool.mu.Lock()
	defer l.spool.mu.Unlock()
	l.spool.retire()
	l.tidyLocked()
	for _, f := range l.spool.old {
		_ = f.f.Close()
	}
	return len(l.spool.old) > 0
}

// appendFrame appends a leaf to b.
func appendFrame(b []byte, ticket int64, question, body []byte) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(ticket))
	asked := 0
	if question != nil {
		asked = 1 + len(question)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(asked))
	b = append(append(b, question...), body...)
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-8))
	binary.BigEndian.PutUint32(b[at+4:], crc32.Checksum(b[at+8:], castagnoli))
	return b
}

// spooled are the leaves of a file of a spool.
type spooled struct {
	db                string
	host              [16]byte
	purged            uint64 // LSN of the last erase that the host had followed
	tickets           []int64
	questions, bodies [][]byte
}

// readSpool decodes a file of a spool, up to the first frame that is not whole.
func readSpool(b []byte) (s spooled, ok bool) {
	b, ok = bytes.CutPrefix(b, []byte(spoolMagic))
	const fixed = 16 + 8 + 1
	if !ok || len(b) < fixed || len(b) < fixed+int(b[fixed-1]) {
		return s, false
	}
	copy(s.host[:], b)
	s.purged = binary.BigEndian.Uint64(b[16:])
	id := fixed + int(b[fixed-1])
	s.db = string(b[fixed:id])
	for b = b[id:]; len(b) >= 20; {
		n := int(binary.BigEndian.Uint32(b))
		if n < 12 || n > len(b)-8 || crc32.Checksum(b[8:8+n], castagnoli) != binary.BigEndian.Uint32(b[4:]) {
			break
		}
		frame := b[8 : 8+n]
		b = b[8+n:]
		asked, rest := int(binary.BigEndian.Uint32(frame[8:])), frame[12:]
		if asked > 1+len(rest) {
			break
		}
		var question []byte
		if asked > 0 {
			question, rest = rest[:asked-1:asked-1], rest[asked-1:]
		}
		s.tickets = append(s.tickets, int64(binary.BigEndian.Uint64(frame)))
		s.questions, s.bodies = append(s.questions, question), append(s.bodies, rest)
	}
	return s, true
}

// adoptSpools sends what killed processes of this machine left in their spools: those in the cache directory, and those in temporary
// directories of this user that nobody has locked.
func (s *Store) adoptSpools(ctx context.Context) error {
	newest, err := s.newestErase(ctx)
	if err == nil {
		err = s.adoptIn(ctx, s.dir, newest)
	}
	if err != nil {
		return err
	}
	files, _ := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*", spoolPrefix+"*"))
	for i, path := range files {
		dir := filepath.Dir(path)
		if dir == s.dir || i > 0 && filepath.Dir(files[i-1]) == dir || !private(dir) {
			continue
		}
		lock, err := lockCache(dir)
		if err != nil {
			continue // it is in use
		}
		err = s.adoptIn(ctx, dir, newest)
		if err == nil && !hasSpool(dir) {
			err = os.RemoveAll(dir)
		}
		if err = errors.Join(err, lock.Close()); err != nil {
			return err
		}
	}
	return nil
}

// adoptIn sends the leaves of this database that the files in dir have, and removes those files. newest is the LSN of the newest erase.
func (s *Store) adoptIn(ctx context.Context, dir string, newest uint64) error {
	files, _ := filepath.Glob(filepath.Join(dir, spoolPrefix+"*"))
	for _, path := range files {
		if strings.HasPrefix(filepath.Base(path), spoolPrefix+s.log.spool.host) {
			continue // our own
		}
		if fi, err := os.Lstat(path); err != nil || !fi.Mode().IsRegular() || !ours(fi) {
			continue // a cache directory that others can write to: they could put leaves there
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("pgstore: audit leaves of a process that ended: %w", err)
		}
		found, is := readSpool(b)
		if is && found.db != s.db.spool() {
			continue
		}
		if found.purged < newest {
			clear(found.questions)
		}
		if err := s.log.resend(ctx, found); err != nil {
			return fmt.Errorf("pgstore: audit leaves of a process that ended, in %s: %w", path, err)
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("pgstore: audit leaves of a process that ended: %w", err)
		}
	}
	return nil
}

// hasSpool reports whether a directory has leaves that no server has yet.
func hasSpool(dir string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, spoolPrefix+"*"))
	for _, path := range files {
		if fi, err := os.Stat(path); err == nil && fi.Size() > 0 {
			return true
		}
	}
	return false
}
