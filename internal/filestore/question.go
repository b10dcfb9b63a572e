package filestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// A reader of the audit that has not opened the database finds the text of a question in the log or
// in the file. The log is asked first: it has the questions that no checkpoint moved yet, and the
// erases that no checkpoint carried out. A question that the log erases is not looked for in the
// file.
//
// The file is opened with bbolt's lock shared, and only for one row. A damaged page can make bbolt
// panic or fault; that is an error of this one question.

// questionWait bounds the wait of a reader of the audit for the lock of the file.
const questionWait = 50 * time.Millisecond

// questionIn returns the text that a leaf was asked, for readers of the audit that have not opened
// the database: from the log, or from the file. A process that has the file open for writing keeps
// it for itself: LockedError.
func questionIn(ctx context.Context, path string, ring *Ring, leaf *manifest.Record) (string, error) {
	row, erased, err := questionInLog(ctx, path, ring, leaf.Index)
	if err == nil && row == nil && !erased {
		row, err = questionInFile(path, ring, leaf.Index)
	}
	switch {
	case err != nil:
		return "", err
	case row == nil:
		return "", manifest.ErrNoQuestion
	}
	text, err := format.QuestionOf(leaf, row)
	if err != nil {
		err = &store.CorruptError{File: path, Err: fmt.Errorf("question of leaf %d: %w", leaf.Index, err), Hint: store.HintSalvage}
	}
	return text, err
}

// questionInLog looks for the row of a question in the log. erased: a later record of the log
// erases it. Records come in their order, so an erase that follows the question in the log is met
// later and wins.
func questionInLog(ctx context.Context, path string, ring *Ring, leaf uint64) (row []byte, erased bool, err error) {
	_, err = wal.Scan(ctx, path+"-wal", nil, func(r wal.Record) error {
		r, err := openRecord(ring, r)
		if err != nil {
			return err
		}
		switch r.Kind {
		case wal.KindAudit:
			index, _, question, err := format.DecodeLeaf(r.Body)
			if err == nil && index == leaf {
				row = bytes.Clone(question)
			}
			return err
		case wal.KindCommit:
			gone, err := format.ErasedQuestion(r.Body, leaf)
			if gone {
				row, erased = nil, true
			}
			return err
		}
		return nil
	})
	return row, erased, LogError(err)
}

// questionInFile reads the row of a question from the file of the database; nil: it has none. It
// opens the file for this one row. A reader waits questionWait for the lock at most, so that
// listing the audit beside a writer does not stand still for each question.
func questionInFile(path string, ring *Ring, leaf uint64) (row []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &store.CorruptError{File: path, Err: fmt.Errorf("%v", r), Hint: store.HintSalvage}
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if _, err := os.Lstat(path); err != nil { // bbolt would make the file
		return nil, fmt.Errorf("ctxpage: the questions are in the file of the database: %w", err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: questionWait, OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
		return system.OpenFile(name, flag, perm)
	}})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, questionLocked(path)
	case err != nil:
		return nil, fmt.Errorf("ctxpage: open %s: %w", path, err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketAsked)
		if b == nil {
			return nil
		}
		key := binary.BigEndian.AppendUint64(nil, leaf)
		v := b.Get(key)
		if v == nil {
			return nil
		}
		r, err := codec.Unseal('q', key, unsealRow(ring, engine.TableQuestion, key, v))
		if errors.Is(err, codec.ErrDestroyed) {
			return nil
		}
		row = bytes.Clone(r)
		return err
	})
	if err != nil {
		err = &store.CorruptError{File: path, Err: fmt.Errorf("question of leaf %d: %w", leaf, err), Hint: store.HintSalvage}
	}
	return row, err
}

// questionLocked returns the error that names the process that has the file.
func questionLocked(path string) error {
	f, err := system.OpenFile(path+".lock", os.O_RDONLY, 0)
	if err != nil {
		return &store.LockedError{Path: path}
	}
	defer f.Close()
	return holderOf(path, f, true)
}
