//go:build rehome

package filestore

// bytesFS shows one file of bytes as the only segment of a log, so that a test may cut and flip it ten thousand times a
// second. It is for reading.
type bytesFS struct {
	wal.FS
	dir, name string
	data      []byte
}

func (f *bytesFS) ReadDir(dir string) ([]string, error) {
	if dir == f.dir {
		return []string{f.name}, nil
	}
	return nil, fs.ErrNotExist
}

func (f *bytesFS) Stat(name string) (fs.FileInfo, error) { return nil, fs.ErrNotExist }

func (f *bytesFS) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	if name == filepath.Join(f.dir, f.name) {
		return &bytesFile{data: f.data}, nil
	}
	return nil, fs.ErrNotExist
}

type bytesFile struct {
	wal.File
	data []byte
}

func (f *bytesFile) ReadAt(p []byte, off int64) (int, error) {
	if off > int64(len(f.data)) {
		off = int64(len(f.data))
	}
	n := copy(p, f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *bytesFile) Size() (int64, error) { return int64(len(f.data)), nil }
func (f *bytesFile) Close() error         { return nil }

// logUnderTest is the log of a real database, about 64 KiB of it, and what it holds record by record.
type logUnderTest struct {
	sys     filestore.sysRow
	file    bytesFS
	records []loggedRecord
	all     *filestore.overlay // after the last
	words   *lexical.Analyzer
	rig     *rig
	im      image
}

type loggedRecord struct {
	end     int64 // offset behind its frame
	seq     uint64
	durable uint64
	lsn     uint64 // after it
	rows    int
	leaves  uint64
	root    manifest.Hash
}

const logBytes = 64 << 10

// makeLog writes commits, reads, marks and held drafts until the log is long enough; no checkpoint comes between. The
// bulk is in the drafts, which a replay does not analyse: it is replayed some hundred thousand times.
func makeLog(t *testing.T) *logUnderTest {
	ctx := context.Background()
	r := newRig(t, Options{})
	db, err := r.open()
	require.NoError(t, err)
	s, st := db.Scope("acme", WithActor("writer")), db.store.(*filestore.Store)
	for n := 1; st.log.Size() < logBytes; n++ {
		_, err := s.Put(ctx, Artefact{ID: fmt.Sprint("page-", n%3), Text: fmt.Sprint("number ", n)})
		require.NoError(t, err)
		_, err = s.Get(ctx, fmt.Sprint("page-", n%3))
		require.NoError(t, err)
		tx, err := s.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Kind: KindFact, Text: fmt.Sprintf("held %d%s", n, strings.Repeat(".", 9000))}))
		require.ErrorIs(t, tx.Commit(ctx, Verdict{}), ErrHeld)
		if n%3 == 0 {
			require.NoError(t, st.mark())
		}
	}
	require.NoError(t, st.log.Sync(ctx, st.log.Last()))
	l := &logUnderTest{sys: st.sys, file: bytesFS{dir: r.path + "-wal"}, words: lexical.NewAnalyzer(), rig: r}
	names, err := r.fs.ReadDir(l.file.dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
	l.file.name = names[0]
	l.file.data, err = r.fs.ReadFile(filepath.Join(l.file.dir, names[0]))
	require.NoError(t, err)
	l.file.data = l.file.data[:st.log.Size()]
	l.im = r.cut(1, 0)
	require.NoError(t, r.restart(db, l.im))
	l.index(t)
	return l
}

// index replays the whole log once and notes the state after each record.
func (l *logUnderTest) index(t *testing.T) {
	s, err := l.store()
	require.NoError(t, err)
	_, err = wal.Scan(context.Background(), l.file.dir, &l.file, 0, func(r wal.Record) error {
		if n := len(l.records); n > 0 {
			l.records[n-1].end = r.Offset
		}
		if err := s.redo(r); err != nil {
			return err
		}
		root, err := s.man.Root(s.man.Size())
		l.records = append(l.records, loggedRecord{
			seq: r.Seq, durable: r.Durable, lsn: s.cat.lsn, rows: s.over.rows(), leaves: s.man.Size(), root: root,
		})
		return err
	})
	require.NoError(t, err)
	l.records[len(l.records)-1].end = int64(len(l.file.data))
	l.all = s.over
}

// store is a store of an empty file, before recovery.
func (l *logUnderTest) store() (*filestore.Store, error) {
	s := &filestore.Store{cat: filestore.newCatalogue(), over: filestore.newOverlay(), sys: l.sys}
	s.opts = filestore.Options{Path: strings.TrimSuffix(l.file.dir, "-wal"), ReadOnly: true, Analyzer: l.words, Fs: &l.file}
	s.seq.init()
	var err error
	if s.idx, err = lexical.Open(filestore.noRows{}); err != nil {
		return nil, err
	}
	return s, s.openManifest(context.Background())
}

var errWrong = errors.New("something was recovered that was never written")

// recovered replays the log as it is now. It gives how many records came through; ErrCorrupt if damage was told;
// errWrong if what came through is not exactly those records.
func (l *logUnderTest) recovered() (int, error) {
	s, err := l.store()
	if err != nil {
		return 0, err
	}
	rec, err := s.recover(context.Background())
	if err != nil {
		return 0, err
	}
	want := loggedRecord{}
	if rec.Last > 0 {
		want = l.records[rec.Last-1]
	}
	root, err := s.man.Root(s.man.Size())
	if err != nil || s.cat.lsn != want.lsn || s.man.Size() != want.leaves || want.leaves > 0 && root != want.root || s.over.rows() != want.rows {
		return 0, fmt.Errorf("%w: lsn %d, %d leaves, %d rows; expected %+v; %w", errWrong, s.cat.lsn, s.man.Size(), s.over.rows(), want, err)
	}
	return int(rec.Last), sameRows(s.over, l.all)
}

// sameRows compares rows with those of the whole log: names are never used twice, so each must be the same there.
func sameRows(o, all *filestore.overlay) error {
	for k, v := range o.heads {
		if !bytes.Equal(v, all.heads[k]) {
			return fmt.Errorf("%w: head %v", errWrong, k)
		}
	}
	for k, v := range o.texts {
		if v != all.texts[k] {
			return fmt.Errorf("%w: text %d", errWrong, k)
		}
	}
	for _, m := range [][2]map[ulid.ULID][]byte{{o.held, all.held}, {o.result, all.result}} {
		for k, v := range m[0] {
			if !bytes.Equal(v, m[1][k]) {
				return fmt.Errorf("%w: row %s", errWrong, k)
			}
		}
	}
	return nil
}

// each calls check for every number below n, on all processors, with a log of its own.
func (l *logUnderTest) each(n int, check func(l *logUnderTest, i int) error) error {
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	workers := runtime.GOMAXPROCS(0)
	errs := make(chan error, workers)
	for w := range workers {
		go func() {
			own := *l
			own.file.data = slices.Clone(l.file.data)
			var err error
			for i := w; i < n && err == nil; i += workers {
				err = check(&own, i)
			}
			errs <- err
		}()
	}
	var err error
	for range workers {
		err = errors.Join(err, <-errs)
	}
	return err
}

// before is how many records end at or before an offset.
func (l *logUnderTest) before(off int) int {
	n := 0
	for n < len(l.records) && l.records[n].end <= int64(off) {
		n++
	}
	return n
}

const segmentHeader = 64 // synced before the segment has its name: no crash damages it

// TestLogCut cuts the log of a database at every byte: the records before the cut are there, none of them changed, and
// nothing else.
func TestLogCut(t *testing.T) {
	l := makeLog(t)
	whole := l.file.data
	require.NoError(t, l.each(len(whole)+1, func(l *logUnderTest, at int) error {
		l.file.data = whole[:at]
		n, err := l.recovered()
		switch {
		case at < segmentHeader && errors.Is(err, ErrCorrupt):
			return nil
		case at < segmentHeader || err != nil || n != l.before(at):
			return fmt.Errorf("cut at %d: expected %d records, got %d, %w", at, l.before(at), n, err)
		}
		return nil
	}))
	t.Logf("%d cuts, %d records", len(whole)+1, len(l.records))
}

// TestLogFlip flips a bit in every byte of it. A record that another says was durable is not cut away: that is damage.
// The last group is in doubt, and what comes before the flip is there.
func TestLogFlip(t *testing.T) {
	l := makeLog(t)
	places := l.flips()
	require.NoError(t, l.each(len(places), func(l *logUnderTest, i int) error {
		at := places[i]
		l.file.data[at] ^= 1 << (at % 8)
		defer func() { l.file.data[at] ^= 1 << (at % 8) }()
		before := l.before(at)
		n, err := l.recovered()
		switch {
		case errors.Is(err, ErrNewerFormat) || err != nil && !errors.Is(err, ErrCorrupt):
			return fmt.Errorf("flip at %d: %w", at, err)
		case at < segmentHeader || l.vouched(before):
			if err == nil {
				return fmt.Errorf("flip at %d, in what was durable: expected damage, got %d records", at, n)
			}
		case err != nil || n != before:
			return fmt.Errorf("flip at %d: expected %d records, got %d, %w", at, before, n, err)
		}
		return nil
	}))
	t.Logf("%d flips", len(places))
}

// flips are the places to flip: every byte of the segment's header and of the heads of the frames, and every eighth of
// the bodies. -corrupt.all takes every byte.
func (l *logUnderTest) flips() (out []int) {
	frame := int64(segmentHeader)
	for at, i := 0, 0; at < len(l.file.data); at++ {
		for l.records[i].end <= int64(at) {
			frame = l.records[i].end
			i++
		}
		if *corruptAll || int64(at) < frame+40 || at%8 == i%8 {
			out = append(out, at)
		}
	}
	return out
}

// vouched says whether a record behind the nth says that the nth was durable.
func (l *logUnderTest) vouched(n int) bool {
	for _, r := range l.records[n+1:] {
		if r.durable >= l.records[n].seq {
			return true
		}
	}
	return false
}

// TestLogFlipControl: with the checksum put right again, as if nobody looked at it, the flip is seen by the comparison.
func TestLogFlipControl(t *testing.T) {
	l := makeLog(t)
	at := bytes.LastIndex(l.file.data, []byte("held "))
	l.file.data[at] ^= 1
	_, err := l.recovered()
	require.NotErrorIs(t, err, errWrong)
	l.reseal(l.records[l.before(at)-1].end)
	_, err = l.recovered()
	require.ErrorIs(t, err, errWrong)
}

// reseal computes the checksums of the frame at off anew.
func (l *logUnderTest) reseal(off int64) {
	key := binary.LittleEndian.AppendUint64(nil, xxhash.Sum64(l.file.data[16:40]))
	frame := l.file.data[off:]
	n := binary.LittleEndian.Uint32(frame[12:])
	binary.LittleEndian.PutUint64(frame, xxhash.Sum64(append(slices.Clone(key), frame[8:40+n]...)))
}

// TestLogCutOpen opens whole databases for writing with a cut log: at every record's end, and at random places. What is
// left is sound, and can be written to and opened again.
func TestLogCutOpen(t *testing.T) {
	ctx := context.Background()
	l := makeLog(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 2 * len(l.records) {
		at := l.records[i/2].end
		if i%2 == 1 {
			at = segmentHeader + rng.Int64N(int64(len(l.file.data))-segmentHeader)
		}
		require.NoError(t, l.rig.restart(nil, image{l.im.fs.Clone(), l.im.bolt}))
		l.rig.fs.WriteFile(filepath.Join(l.file.dir, l.file.name), l.file.data[:at])
		db, err := l.rig.open()
		require.NoError(t, err, "cut at %d", at)
		problems, err := db.Check(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, problems, "cut at %d", at)
		st, err := db.Stats(ctx)
		require.NoError(t, err)
		var want loggedRecord
		if n := l.before(int(at)); n > 0 {
			want = l.records[n-1]
		}
		require.Equal(t, want.lsn, st.LSN, "cut at %d", at)
		_, err = db.Scope("acme").Put(ctx, Artefact{ID: "later", Text: "after the cut"})
		require.NoError(t, err)
		require.NoError(t, db.Close())
		db, err = l.rig.open()
		require.NoError(t, err)
		v, err := db.Scope("acme").Get(ctx, "later")
		require.NoError(t, err)
		require.Equal(t, "after the cut", v.Text)
		require.Equal(t, want.lsn+1, v.LSN)
		require.NoError(t, db.Close())
	}
}

