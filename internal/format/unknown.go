package format

import (
	"fmt"

	"github.com/ctxpage/ctxpage/store"
)

// CheckUnknown refuses a batch whose places for fields of later releases have anything else: rows with them could not be
// read any more.
func CheckUnknown(b *store.Batch) error {
	err := unknown(batchFields.CheckUnknown, b.Unknown)
	for i := 0; i < len(b.Puts) && err == nil; i++ {
		if err = unknown(PutFields.CheckUnknown, b.Puts[i].Unknown); err == nil {
			err = unknown(ArtefactFields.CheckUnknown, b.Puts[i].Artefact.Unknown)
		}
	}
	for i := 0; i < len(b.Carry) && err == nil; i++ {
		if err = unknown(coldFields.CheckUnknown, b.Carry[i].Head.Unknown); err == nil {
			err = unknown(ArtefactFields.CheckUnknown, b.Carry[i].Head.Artefact.Unknown)
		}
	}
	return err
}

func unknown(check func([]byte) error, raw []byte) error {
	if len(raw) == 0 || check(raw) == nil {
		return nil
	}
	return store.Invalid("unknown", fmt.Sprintf("%d bytes that are no fields of a later release", len(raw)), "the bytes that were read with the record, unchanged")
}
