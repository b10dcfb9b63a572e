package view

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFillLists(t *testing.T) {
	type part struct {
		Names []string `json:"names"`
		More  []string `json:"more,omitempty"`
	}
	v := struct {
		Parts []part    `json:"parts"`
		One   *part     `json:"one"`
		None  *part     `json:"none"`
		Bytes []byte    `json:"bytes"`
		At    time.Time `json:"at"`
		part
	}{Parts: make([]part, 1), One: &part{}}
	FillLists(&v)
	b, err := json.Marshal(v)
	require.NoError(t, err)
	require.JSONEq(t, `{"parts":[{"names":[]}],"one":{"names":[]},"none":null,"bytes":null,"at":"0001-01-01T00:00:00Z","names":null}`, string(b), "fields of an unexported struct cannot be set")
}
