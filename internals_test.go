package ctxpage

// What tests outside the package may reach into.

// WithoutSync is Options without syncs: for tests that do many commits and are about answers, not about durability.
func WithoutSync(o Options) Options {
	o.noSync = true
	return o
}

// FrameBytes gives the bytes the working set believes it keeps, and the sum over the frames on its list. Without a pin
// the two are equal.
func (db *DB) FrameBytes() (counted, listed int64) {
	t := db.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.frames.list.Values() {
		listed += f.bytes
	}
	return t.frames.bytes, listed
}
