package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAllocatorReplies(t *testing.T) {
	for _, c := range []struct{ request, reply string }{
		{`{"id":"a","op":"count","counter":{"kind":"char","chars_per_token":4},"messages":[{"role":"user","text":"hello"}]}`, `{"id":"a","tokens":2}`},
		{`{"id":"b","op":"compile","counter":{"kind":"none"},"max_tokens":5}`, `{"id":"b","error":"ErrInvalidConfig","error_is":["ErrInvalidConfig"]}`},
		{`{"id":"c","op":"compile","max_tokens":9,"counter":{"kind":"fixed","tokens_per_message":10},"blocks":[{"id":"x\"y","strategy":"strict","messages":[{"role":"u"}]}]}`,
			`{"id":"c","error":"ErrBudgetExceeded","error_is":["ErrBudgetExceeded"],"block":"x\"y"}`},
		{`{"id":"d","op":"compile","max_tokens":9,"counter":{"kind":"fixed","fail_role":"u"},"blocks":[{"id":"","strategy":"drop","messages":[{"role":"u"}]}]}`,
			`{"id":"d","error":"ErrTokenCountFailed","error_is":["CounterFailed","ErrTokenCountFailed"],"block":""}`},
		{`{"id":"e","op":"compile","max_tokens":9,"repeat":2,"counter":{"kind":"fixed"},"blocks":[{"id":"k","strategy":"drop","messages":[{"role":"u","text":"","metadata":{"n":1.0}}]}]}`,
			`{"id":"e","messages":[{"role":"u","parts":[{"type":"text"}],"metadata":{"n":1.0}}],"report":{"total_tokens_used":0,"original_tokens":0,"remaining_tokens":9,"original_tokens_per_block":{"k":0},"tokens_per_block":{"k":0},"evictions":{},"blocks_dropped":null}}`},
	} {
		var out bytes.Buffer
		require.NoError(t, allocator(strings.NewReader(c.request+"\n"), &out))
		require.Equal(t, c.reply+"\n", out.String())
	}
	require.Error(t, allocator(strings.NewReader("{"), &bytes.Buffer{}))
}
