package eraseplan

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// An import that was given receipts remembers what they stand for: a later import of the same old export leaves that out, too,
// whoever forgets the receipts then. The rows are of this database alone. What was asked for stands in them under the secret of
// the database that erased, as in the receipt.

// ReceiptKind says what a store must know of these rows.
func ReceiptKind() store.StateKind { return store.StateKind{Prefix: format.ReceiptRows, Stays: true} }

// ReceiptRow is the row that remembers an erase of a database.
func ReceiptRow(db string, done *store.EraseReport) (store.StateRow, error) {
	row := *done
	row.Numbers, row.Batches = nil, nil // of rows of a backup; an export has none whose key is destroyed
	value, err := json.Marshal(row)
	if err != nil {
		return store.StateRow{}, fmt.Errorf("ctxpage: encode the row of a receipt: %w", err)
	}
	return store.StateRow{Key: format.ReceiptRows + db + "/" + done.Trace, Value: value}, nil
}

// Remembered are the erases of a database whose receipts were given to imports into a store, by trace; "": of any database.
func Remembered(ctx context.Context, st store.Store, db string) (list []store.EraseReport, err error) {
	prefix := format.ReceiptRows
	if db != "" {
		prefix += db + "/"
	}
	err = format.Walk(ctx, st, prefix, func(r store.StateRow) error {
		var done store.EraseReport
		if err := json.Unmarshal(r.Value, &done); err != nil || !strings.HasSuffix(r.Key, "/"+done.Trace) {
			return &store.CorruptError{File: "state row " + r.Key, Err: fmt.Errorf("no row of a receipt: %w", err)}
		}
		list = append(list, done)
		return nil
	})
	return list, err
}
