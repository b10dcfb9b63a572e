package format

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ctxpage/ctxpage/store"
)

// QuotaRows is the key prefix of the state rows that hold quotas, by scope. Stores read them; write
// them with ExpectState.
const QuotaRows = "quota/"

// DecodeQuota decodes the state row of a quota.
func DecodeQuota(row store.StateRow) (store.StoredQuota, error) {
	var q store.StoredQuota
	err := json.Unmarshal(row.Value, &q)
	if err == nil && q.Scope != strings.TrimPrefix(row.Key, QuotaRows) {
		err = fmt.Errorf("it is of scope %q", q.Scope)
	}
	if err == nil {
		err = q.Check()
	}
	if err != nil {
		err = &store.CorruptError{File: "state row " + row.Key, Err: err}
	}
	return q, err
}
