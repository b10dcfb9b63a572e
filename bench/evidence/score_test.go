package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/token/bpe"
)

// TestScore: whole turns count one, extracts by the share of their tokens; the words that an extract must hold are those that the
// turn shares with the question, and its three rarest. Adversarial questions and unknown answers count nowhere.
func TestScore(t *testing.T) {
	const long = "The heron stood by the weir. A heron came on Monday with a zander, a zander and an otter. Nothing more was seen there."
	file := filepath.Join(t.TempDir(), "data.json")
	require.NoError(t, os.WriteFile(file, []byte(`[{"conversation_id":"c","turns":[
		{"id":"a","speaker":"Ana","text":"`+long+`"},{"id":"b","speaker":"Bo","text":"The heron came by the weir on Monday; nothing more was seen there."}],
		"questions":[{"id":"q","category":"one","text":"Did the heron come on Monday?","evidence":["a","b"]},
			{"id":"r","category":"adversarial","text":"heron?","evidence":["a"]},{"id":"s","category":"one","text":"heron?","evidence":[]}]}]`), 0o600))
	scored := func(chosen, extract string) []string {
		var out bytes.Buffer
		lines := fmt.Sprintf(`{"question_id":"q","budget":512,"chosen":[%s],"extracts":[%s]}
{"question_id":"r","budget":512,"chosen":["a"]}
{"question_id":"s","budget":512,"chosen":["a"]}
{"question_id":"other","budget":512,"chosen":["a"]}`, chosen, extract)
		require.NoError(t, score(context.Background(), file, strings.NewReader(lines), &out))
		rows := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, rows, 2)
		return strings.Fields(rows[1])
	}
	part := func(text string) string {
		n, of := bpe.O200k().Count(" "+text), bpe.O200k().Count("Ana: "+long)
		return fmt.Sprintf("%.4f", (1+float64(n)/float64(of))/2)
	}
	const first, second = "The heron stood by the weir.", "A heron came on Monday with a zander, a zander and an otter."
	for _, c := range []struct {
		chosen, extract            string
		whole, part                string
		gold, shared, rarest, both string
	}{
		{`"a","b"`, ``, "1.0000", "1.0000", "0", "0.00", "0.00", "0.00"},
		{`"b"`, ``, "0.5000", "0.5000", "0", "0.00", "0.00", "0.00"},
		{`"b"`, first, "0.5000", part(first), "1", "0.00", "0.00", "0.00"},
		{`"b"`, second, "0.5000", part(second), "1", "1.00", "0.00", "0.00"},
	} {
		extract := ""
		if c.extract != "" {
			extract = `{"turn":"a","text":"[…]` + c.extract + `"}`
		}
		row := scored(c.chosen, extract)
		require.Equal(t, []string{"512", c.whole, c.part}, row[:3], "%+v", c)
		require.Equal(t, []string{c.gold, c.shared, c.rarest, c.both}, row[5:], "%+v", c)
	}
	all := scored(`"b"`, `{"turn":"a","text":"`+first+` […] `+second+`"}`)
	require.Equal(t, []string{"1", "1.00", "1.00", "1.00"}, all[5:], "stood, zander and otter are the rarest")
}
