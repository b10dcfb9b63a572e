package foreign_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/foreign"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/store"
)

func scopeOf(t *testing.T) *ctxpage.Scope {
	t.Helper()
	db := must(ctxpage.Open(filepath.Join(t.TempDir(), "a.ctx"), ctxpage.Options{Exclusive: true}))(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db.Scope("acme/x")
}

// TestRepeatedIDs: of items with one id the last counts, a dry run says what the run does, and a second run writes nothing.
func TestRepeatedIDs(t *testing.T) {
	ctx := context.Background()
	lines := ""
	for i := range 1200 { // of more than one transaction
		lines += fmt.Sprintf(`{"key":"k%d","text":"text %d"}`+"\n", i%700, i)
	}
	for name, test := range map[string]struct {
		file          string
		opts          foreign.Options
		items, repeat int
	}{
		"observations": {`{"type":"entity","name":"Ann","entityType":"person","observations":["likes tea","works","likes tea"]}`, foreign.Options{Format: foreign.MCPMemory}, 3, 1},
		"keys":         {lines, foreign.Options{Format: foreign.JSONL, Map: map[string]string{"id": ".key", "text": ".text"}}, 1200, 500},
	} {
		t.Run(name, func(t *testing.T) {
			s := scopeOf(t)
			dry := test.opts
			dry.DryRun = true
			would := must(foreign.Import(ctx, s, strings.NewReader(test.file), dry))(t)
			require.Equal(t, test.repeat, would.Repeated)
			require.Equal(t, test.items-test.repeat, would.New)
			did := must(foreign.Import(ctx, s, strings.NewReader(test.file), test.opts))(t)
			would.DryRun = false
			require.Equal(t, would, did)
			again := must(foreign.Import(ctx, s, strings.NewReader(test.file), test.opts))(t)
			require.Zero(t, again.New+again.Changed)
			require.Equal(t, test.items-test.repeat, again.Same)
			if name == "keys" {
				v := must(s.Get(ctx, "jsonl:k499"))(t)
				require.Equal(t, "text 1199", v.Text)
			}
		})
	}
}

// TestWrongFiles: nothing of a file that is wrong is written, and the error says what it is.
func TestWrongFiles(t *testing.T) {
	ctx := context.Background()
	good := ""
	for i := range 600 { // more than one transaction
		good += fmt.Sprintf(`{"key":"k%d","text":"text"}`+"\n", i)
	}
	fields := map[string]string{"id": ".key", "text": ".text"}
	for name, test := range map[string]struct {
		file   string
		format foreign.Format
		says   string
		is     error
	}{
		"late error":  {good + `{"key":"x"}`, foreign.JSONL, "line 601, field text", store.ErrInvalid},
		"gzip":        {"\x1f\x8b\x08\x00", foreign.OpenAIChat, "compressed", store.ErrInvalid},
		"later PAM":   {`{"memories":[{"id":"a","content":"b"}],"schema_version":"2.0"}`, foreign.PAM, "version 2.0 of PAM", store.ErrNewerFormat},
		"mem0 no id":  {`{"results":[{"memory":"b"}]}`, foreign.Mem0, "no id", store.ErrInvalid},
		"wrong again": {`{"type":"entity","name":"a","observations":["b"]}` + "\n" + `{"type":"entity"}`, foreign.MCPMemory, "line 2", store.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			s := scopeOf(t)
			opts := foreign.Options{Format: test.format}
			if test.format == foreign.JSONL {
				opts.Map = fields
			}
			_, err := foreign.Import(ctx, s, strings.NewReader(test.file), opts)
			require.ErrorIs(t, err, test.is)
			require.ErrorContains(t, err, test.says)
			list := must(loop.Collect(s.Artefacts(ctx, "", ctxpage.AtMost(10, "", nil))))(t)
			require.Empty(t, list)
		})
	}
	s := scopeOf(t)
	_, err := foreign.Import(ctx, s, io.MultiReader(strings.NewReader(good+`{"key":"x"}`)), foreign.Options{Format: foreign.JSONL, Map: fields})
	require.ErrorIs(t, err, store.ErrInvalid)
	list := must(loop.Collect(s.Artefacts(ctx, "", ctxpage.AtMost(10, "", nil))))(t)
	require.NotEmpty(t, list, "control: a reader that gives its bytes once")
	for _, file := range []string{`{"schema_version":"1.1","memories":[{"id":"a","content":"b"}]}`, `{"memories":[{"id":"a","content":"b"}]}`} {
		rep := must(foreign.Import(ctx, scopeOf(t), strings.NewReader(file), foreign.Options{Format: foreign.PAM}))(t)
		require.Equal(t, 1, rep.New)
	}
	rep := must(foreign.Import(ctx, s, strings.NewReader(`{"results":[{"id":"a","memory":""},{"id":"b","memory":"tea"}]}`), foreign.Options{Format: foreign.Mem0}))(t)
	require.Equal(t, []int{1, 1}, []int{rep.New, rep.Empty})
}

// TestStrangeExports: what is no export matches ErrInvalid, as ReadHeader says, and the error says what the file is.
func TestStrangeExports(t *testing.T) {
	for begin, says := range map[string]string{
		"\x1f\x8b\x08\x00\n": "compressed", "\x1f\x8b\x08": "compressed", "\xff\xfe{\n": "UTF-16", "\xef\xbb\xbf{}\n": "byte order mark", "hello\n": "'h'", "{hello\n": "no JSON", "": "no line",
	} {
		_, err := portable.ReadHeader(bytes.NewReader([]byte(begin)))
		require.ErrorIs(t, err, store.ErrInvalid, "%q", begin)
		require.ErrorContains(t, err, says)
	}
}
