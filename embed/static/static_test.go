package static

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

type rawTensor struct {
	dtype string
	shape []int
	data  []byte
}

func floats(fs ...float32) (b []byte) {
	for _, f := range fs {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

func tensorsFile(t testing.TB, tensors map[string]rawTensor) []byte {
	header, data := map[string]any{"__metadata__": map[string]string{"format": "pt"}}, []byte{}
	for name, x := range tensors {
		header[name] = map[string]any{"dtype": x.dtype, "shape": x.shape, "data_offsets": []int{len(data), len(data) + len(x.data)}}
		data = append(data, x.data...)
	}
	b, err := json.Marshal(header)
	require.NoError(t, err)
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b...), data...)
}

const words = `{"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},
	"model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{"[UNK]":0,"cafe":1,"play":2,"##ing":3,"##s":4,"!":5,"日":6,"a":7}}}`

// write makes a folder of files.
func write(t testing.TB, files map[string][]byte) string {
	dir := t.TempDir()
	for name, body := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), body, 0o600))
	}
	return dir
}

func tableOf8(t testing.TB) []byte {
	return tensorsFile(t, map[string]rawTensor{"embeddings": {"F32", []int{8, 2}, floats(9, 9, 1, 0, 0, 1, 0, 2, 0, 3, 5, 5, -1, 0, 4, 4)}})
}

func TestEmbed(t *testing.T) {
	dir := write(t, map[string][]byte{"model.safetensors": tableOf8(t), "tokenizer.json": []byte(words), "config.json": []byte(`{"normalize": false}`)})
	m, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, 2, m.Dimensions())
	got, err := m.Embed(context.Background(), []string{"Café", "PLAYING\u00a0plays", "playing quux", "", "日日", "nothing known", "caf\u00e9\x00"})
	require.NoError(t, err)
	require.Equal(t, [][]float32{{1, 0}, {0, 7. / 4}, {0, 1.5}, {0, 0}, {-1, 0}, {0, 0}, {1, 0}}, got)

	again, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, m.Model(), again.Model())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"normalize": true}`), 0o600))
	unit, err := Load(dir)
	require.NoError(t, err)
	require.NotEqual(t, m.Model(), unit.Model(), "other vectors have another name")
	got, err = unit.Embed(context.Background(), []string{"cafe play", ""})
	require.NoError(t, err)
	require.InDelta(t, math.Sqrt(.5), got[0][0], 1e-6)
	require.Equal(t, []float32{0, 0}, got[1])
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = m.Embed(ended, []string{"cafe"})
	require.ErrorIs(t, err, context.Canceled)
}

// TestWeightsAndRows: some models share rows between tokens and weigh tokens apart; numbers come in several types.
func TestWeightsAndRows(t *testing.T) {
	dir := write(t, map[string][]byte{"tokenizer.json": []byte(words), "config.json": []byte(`{"normalize": false}`), "model.safetensors": tensorsFile(t, map[string]rawTensor{
		"embeddings": {"F16", []int{2, 2}, []byte{0, 0x3c, 0, 0xc0, 1, 0, 0, 0x40}}, // 1, -2; the smallest above 0, 2
		"mapping":    {"I64", []int{8}, binary.LittleEndian.AppendUint64(make([]byte, 56), 1)},
		"weights":    {"F64", []int{8}, append(binary.LittleEndian.AppendUint64(make([]byte, 8), math.Float64bits(.5)), make([]byte, 48)...)},
	})})
	m, err := Load(dir)
	require.NoError(t, err)
	got, err := m.Embed(context.Background(), []string{"cafe"})
	require.NoError(t, err)
	require.Equal(t, [][]float32{{.5, -1}}, got)
	require.EqualValues(t, math.Ldexp(1, -24), half(1))
	require.True(t, math.IsInf(float64(half(0xfc00)), -1))
}

func TestNoModel(t *testing.T) {
	table := tableOf8(t)
	for name, c := range map[string]struct {
		tensors, tokens, config string
		says                    string
	}{
		"no tensors":       {"x", words, "", "expected a safetensors file"},
		"long header":      {"\xff\xff\xff\xff\xff\xff\xff\xffx", words, "", "expected a safetensors file"},
		"a transformer":    {string(tensorsFile(t, map[string]rawTensor{"encoder.layer.0": {"F32", []int{1}, floats(1)}})), words, "", "a transformer needs a server"},
		"numbers missing":  {string(table[:len(table)-1]), words, "", "embeddings"},
		"not finite":       {string(tensorsFile(t, map[string]rawTensor{"embeddings": {"F32", []int{8, 1}, floats(1, 2, 3, 4, 5, 6, float32(math.NaN()), 8)}})), words, "", "row 6 is not finite"},
		"fewer rows":       {string(tensorsFile(t, map[string]rawTensor{"embeddings": {"F32", []int{2, 1}, floats(1, 2)}})), words, "", "has vectors of 2 tokens"},
		"forged shape":     {string(tensorsFile(t, map[string]rawTensor{"embeddings": {"F32", []int{1 << 40, 1 << 40}, floats(1, 2)}})), words, "", "does not fit"},
		"row out of range": {string(tensorsFile(t, map[string]rawTensor{"embeddings": {"F32", []int{8, 1}, make([]byte, 32)}, "mapping": {"I32", []int{8}, append(make([]byte, 28), 9, 0, 0, 0)}})), words, "", "mapped to row 9"},
		"another kind":     {string(table), `{"model":{"type":"BPE","vocab":{}}}`, "", `type "BPE", expected WordPiece`},
		"no vocabulary":    {string(table), `{"model":{"type":"WordPiece"}}`, "", "vocabulary is empty"},
		"another cut":      {string(table), `{"pre_tokenizer":{"type":"Metaspace"},"model":{"type":"WordPiece","vocab":{"a":1}}}`, "", "Metaspace"},
		"no JSON":          {string(table), "{", "", "expected a JSON object"},
		"config":           {string(table), words, "[]", "config.json"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string][]byte{"model.safetensors": []byte(c.tensors), "tokenizer.json": []byte(c.tokens)}
			if c.config != "" {
				files["config.json"] = []byte(c.config)
			}
			_, err := Load(write(t, files))
			require.ErrorIs(t, err, ErrModel)
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := Load(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "a model is a folder with")
}

func FuzzTensors(f *testing.F) {
	f.Add(tableOf8(f))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tensors, err := parseTensors(b)
		if err == nil {
			(&Model{tokens: tokenizer{}}).take(tensors)
		}
	})
}

func FuzzTokens(f *testing.F) {
	f.Add("Café playings 日a!\u0301")
	f.Fuzz(func(t *testing.T, text string) {
		tk, _, err := newTokenizer([]byte(words))
		require.NoError(t, err)
		tk.each(text, func(token int) bool {
			require.Less(t, token, 8)
			return true
		})
	})
}

// TestTokensOfReal compares with what the tokenizers library gives: STATIC_MODEL names a folder, in which tokens.jsonl has
// {"text", "ids"} a line.
func TestTokensOfReal(t *testing.T) {
	dir := os.Getenv("STATIC_MODEL")
	if dir == "" {
		t.Skip("STATIC_MODEL names no model")
	}
	body, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	require.NoError(t, err)
	tk, _, err := newTokenizer(body)
	require.NoError(t, err)
	file, err := os.Open(filepath.Join(dir, "tokens.jsonl"))
	require.NoError(t, err)
	defer file.Close()
	n := 0
	for d := json.NewDecoder(file); d.More(); n++ {
		var want struct {
			Text string
			IDs  []int `json:"ids"`
		}
		require.NoError(t, d.Decode(&want))
		got := []int{}
		tk.each(want.Text, func(token int) bool { got = append(got, token); return true })
		require.Equal(t, want.IDs, got, "%q", want.Text)
	}
	t.Logf("%d texts", n)
}
