// Package wal is the one log of a database: numbered records in segment files, shared syncs,
// recovery. It knows nothing of pages or leaves; a record is a kind and bytes.
//
// # Use
//
// Open replays the existing records. Enqueue appends a record to a buffer and returns its number; Write hands the buffer to the operating system (survives kill -9); Sync returns when a
// record, and all before it, survive a power cut. DropBefore removes segments that are no longer
// needed. Close ends the log so that the next Open knows that nothing is missing. Scan reads beside
// a live writer.
//
// # What is promised
//
//   - Numbers have no gap and no repetition, over all records; call order is log order.
//   - After Sync returned nil for a record, every later Open finds it, or returns a codec.CorruptError.
//   - The records that Open finds are a prefix of those that were enqueued. They are durable when
//     Open returns.
//   - After a failed write or sync the log writes nothing more and promises nothing about records
//     in flight: ErrPoisoned, until the log is opened again. A sync is never retried.
//
// Assumed of the operating system: after a sync that succeeds the data is on the disk; rename is
// atomic; a directory sync makes all earlier changes of its entries durable; a write may be torn
// anywhere, but changes no byte outside its range. Only one process at a time has a log open for
// writing; the caller holds the lock for that.
//
// # Files
//
// A directory holds segments, named by their first record and their generation, a counter over all
// segments a log ever had:
//
//	00000000000000000001-00000001.wal
//
// Of two segments with the same first record, the one of the higher generation is valid and the
// other is a leftover. A segment is written under its name + ".tmp", and renamed when it is
// durable. FORMAT.md has the bytes of its header and of its frames, each of which is a record.
//
// The checksums of frames include a key of the segment, so a frame of another segment or generation
// fails its sum. A head sum protects the length of a frame: a search behind a damaged frame uses no
// length whose head sum does not match. Each frame names a record that was durable when it was written.
//
// A seal is not a record. It ends a segment that has a successor, has an empty body, and carries
// the number of the successor's first record. The last frame of the last segment is followed by
// zeros or by nothing.
//
// # What recovery does
//
//	found                                          done
//	zeros or nothing behind the last record        the end
//	a frame whose sums do not match, and           torn or never synced: cut from here
//	  nothing says it was durable
//	the same, in a segment with a later one that   codec.CorruptError, nothing is cut
//	  holds anything; or with a later frame whose
//	  durable covers it
//	sums match, but number, kind or flags cannot   codec.CorruptError: missing, repeated or exchanged records;
//	  stand there                                    no crash does this
//	a segment missing, renamed, of another log,    codec.CorruptError
//	  or without its seal; a bad segment header
//	the last segment is shorter than its header    codec.CorruptError: it was cut. Of a log that was closed
//	  says                                           only zeros can be missing, and nothing is said
//	a newer version                                ErrNewerFormat
//	the last record carries close, nothing behind  clean: that record is written once more, for its sync
//	                                                 may have failed, and the segment is appended to
//	anything else                                  the valid part of the tail is written into a new
//	                                                 generation, which is synced and gets its name before
//	                                                 the old one goes
//	an empty segment behind the tail               removed: the crash came before its first record
//	the log does not begin with record 1           Recovery.First tells; the caller judges
//
// A mark ('M') shows which records were durable by its durable field, like any other record. Its
// place shows nothing: it may share a group, and so a torn write, with records before it.
//
// Why a crash at any moment is safe:
//
//   - Append: a group is written over zeros behind the last frame. Each of its records is whole or
//     fails its sum, and none is answered before the sync.
//   - Rotation: first the new segment becomes durable (file, then name), then the last records and
//     the seal of the old one, then the first record of the new one. So any byte behind the header
//     of a segment proves that the segment before it is complete.
//   - Length: it is written without a sync of its own, once a sync has covered so many bytes. Before
//     a file is cut to a smaller length, that one is durable in its header.
//   - Rewrite: the new generation is complete before it gets its name. If both are there, the
//     higher generation is used, and it has the same records.
//   - Drop: the oldest segment goes first, and each removal is durable before the next.
//
// testdata/trace.txt pins each of these orders.
package wal
