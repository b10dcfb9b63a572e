package embed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { dbtest.NoLeaks(m, func() error { return goleak.Find() }) }

const secret = "sk-very-secret-key"

// endpoint speaks the protocol: it checks what it is asked, and answers each text with a vector made of its bytes.
type endpoint struct {
	*httptest.Server
	t       testing.TB
	c       *Client
	mu      sync.Mutex
	batches [][]string
	waits   []time.Duration
	before  func(w http.ResponseWriter, r *http.Request, call int) bool // true: it answered
}

type item struct {
	Object    string    `json:"object"`
	Index     int       `json:"index"`
	Embedding []float32 `json:"embedding"`
}

const width = 8

func vectorOf(text string) []float32 {
	v := make([]float32, width)
	for i, b := range []byte(text) {
		v[i%width] += float32(b) / 7
	}
	return v
}

func newEndpoint(t testing.TB, o Options) *endpoint {
	t.Helper()
	e := &endpoint{t: t}
	e.Server = httptest.NewServer(e)
	o.URL, o.Model = e.URL+"/v1", "test-model"
	var err error
	e.c, err = New(o)
	require.NoError(t, err)
	e.c.wait = func(ctx context.Context, d time.Duration) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.waits = append(e.waits, d)
		return ctx.Err() == nil
	}
	t.Cleanup(func() { e.c.CloseIdle(); e.Close() })
	return e
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Model      string   `json:"model"`
		Input      []string `json:"input"`
		Encoding   string   `json:"encoding_format"`
		Dimensions int      `json:"dimensions"`
	}
	err := json.NewDecoder(r.Body).Decode(&q)
	if r.Method != http.MethodPost || r.URL.Path != "/v1/embeddings" || err != nil || q.Model != "test-model" || q.Encoding != "float" ||
		len(q.Input) == 0 || slices.Contains(q.Input, "") || r.Header.Get("Content-Type") != "application/json" {
		e.t.Errorf("not the protocol: %s %s %+v %v", r.Method, r.URL, q, err)
	}
	e.mu.Lock()
	e.batches = append(e.batches, q.Input)
	call := len(e.batches)
	e.mu.Unlock()
	if e.before != nil && e.before(w, r, call) {
		return
	}
	items := make([]item, len(q.Input))
	for i, text := range q.Input {
		items[len(items)-1-i] = item{"embedding", i, vectorOf(text)} // backwards: the index counts
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "model": q.Model, "data": items, "usage": map[string]int{"total_tokens": 1}})
}

func TestEmbed(t *testing.T) {
	e := newEndpoint(t, Options{BatchSize: 3, BatchBytes: 40, Key: secret})
	e.before = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		require.Equal(t, "Bearer "+secret, r.Header.Get("Authorization"))
		return false
	}
	long := strings.Repeat("long ", 20)
	texts := []string{"a", "b", "c", "d", long, "e", "a", "refunds up to $400 <b>&", strings.Repeat("x", 30)}
	vecs := must(e.c.Embed(t.Context(), texts))(t)
	for i, v := range vecs {
		require.Equal(t, vectorOf(texts[i]), v)
	}
	require.Equal(t, [][]string{{"a", "b", "c"}, {"d"}, {long}, {"e", texts[7]}, {texts[8]}}, e.batches)
	require.Equal(t, Stats{Calls: 5, Texts: 9, Hits: 1}, e.c.Stats())

	vecs[0][0] = 1e9 // the caller's own
	again := must(e.c.Embed(t.Context(), []string{"a", "new"}))(t)
	require.Equal(t, vectorOf("a"), again[0])
	require.Equal(t, []string{"new"}, e.batches[5])
	require.EqualValues(t, 6, e.c.Stats().Calls)
	none := must(e.c.Embed(t.Context(), nil))(t)
	require.Empty(t, none)
	require.EqualValues(t, 6, e.c.Stats().Calls)
}

func TestBatchesKeepOrder(t *testing.T) {
	e := newEndpoint(t, Options{BatchSize: 5, BatchBytes: 64, CacheBytes: 2000})
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.StringMatching(`[a-f]{1,30}`), 0, 20).Draw(t, "texts")
		vecs := must(e.c.Embed(context.Background(), texts))(t)
		require.Len(t, vecs, len(texts))
		for i := range texts {
			require.Equal(t, vectorOf(texts[i]), vecs[i])
		}
		require.LessOrEqual(t, e.c.cache.bytes, 2000)
	})
	for _, b := range e.batches {
		require.LessOrEqual(t, len(b), 5)
		require.True(t, len(b) == 1 || len(strings.Join(b, "")) <= 64)
	}
}

func TestBadTexts(t *testing.T) {
	e := newEndpoint(t, Options{MaxTextBytes: 5})
	for _, text := range []string{"", " \n", "\xff"} {
		require.ErrorContains(t, errOf(e.c.Embed(t.Context(), []string{"good", text})), "text 1 of 2")
	}
	must(e.c.Embed(t.Context(), []string{"caféé", "short"}))(t)
	require.Equal(t, [][]string{{"café", "short"}}, e.batches)
}

func fail(code int, header, body string) func(http.ResponseWriter, *http.Request, int) bool {
	return func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		if header != "" {
			w.Header().Set("Retry-After", header)
		}
		w.WriteHeader(code)
		fmt.Fprint(w, body)
		return true
	}
}

func TestRetries(t *testing.T) {
	e := newEndpoint(t, Options{MaxRetries: 4})
	e.before = func(w http.ResponseWriter, r *http.Request, call int) bool {
		switch call {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			return fail(429, "7", "slow down")(w, r, call)
		case 3:
			return fail(503, "", "loading model")(w, r, call)
		}
		return false
	}
	vecs := must(e.c.Embed(t.Context(), []string{"a"}))(t)
	require.Equal(t, vectorOf("a"), vecs[0])
	require.Equal(t, []time.Duration{250 * time.Millisecond, 7 * time.Second, time.Second}, e.waits)
	require.Equal(t, Stats{Calls: 4, Repeats: 3, Texts: 1}, e.c.Stats())
}

func TestNoRetry(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		header string
		calls  int64
	}{
		"bad request": {400, "", 1}, "wrong key": {401, "", 1}, "no such model": {404, "", 1}, "asked to wait for an hour": {429, "3600", 1},
		"redirect": {302, "", 1}, "no end of failures": {500, "", 4},
	} {
		e := newEndpoint(t, Options{})
		e.before = fail(c.code, c.header, `{"error":{"message":"no"}}`)
		require.ErrorIs(t, errOf(e.c.Embed(t.Context(), []string{"a"})), errRefused, name)
		require.Equal(t, c.calls, e.c.Stats().Calls, name)
	}
}

func TestErrorBodies(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error"}}`: `model "x" not found, try pulling it first`,
		`{"error":"input is too large"}`:                         "input is too large",
		`{"error":{"code":500}}`:                                 `{"code":500}`,
		"plain words\n\x1b[31mred\x00":                           "plain words [31mred",
		`{"error":{"message":"wrong key ` + secret + ` given"}}`: "wrong key (key) given",
		strings.Repeat("long ", 1000):                            strings.TrimSpace(strings.Repeat("long ", 60)) + "",
		"":                                                       "",
	} {
		e := newEndpoint(t, Options{Key: secret})
		e.before = fail(400, "", body)
		_, err := e.c.Embed(t.Context(), []string{"a"})
		var got *Error
		require.ErrorAs(t, err, &got)
		require.Equal(t, 400, got.Status)
		require.True(t, strings.HasPrefix(got.Message, want), "%q", got.Message)
		require.LessOrEqual(t, len([]rune(got.Message)), maxMessage+1)
		require.NotContains(t, err.Error(), secret)
	}
}

func TestAnswers(t *testing.T) {
	data := func(items ...string) string { return `{"data":[` + strings.Join(items, ",") + `]}` }
	it := func(index, vec string) string { return `{"index":` + index + `,"embedding":` + vec + `}` }
	for name, body := range map[string]string{
		"one too few":     data(it("0", "[1,2]")),
		"one too many":    data(it("0", "[1]"), it("1", "[1]"), it("2", "[1]")),
		"twice the same":  data(it("0", "[1]"), it("0", "[1]")),
		"index outside":   data(it("0", "[1]"), it("2", "[1]")),
		"index below":     data(it("0", "[1]"), it("-1", "[1]")),
		"no index":        data(it("0", "[1]"), `{"embedding":[1]}`),
		"other lengths":   data(it("0", "[1,2]"), it("1", "[1]")),
		"empty vector":    data(it("0", "[1]"), it("1", "[]")),
		"no vector":       data(it("0", "[1]"), `{"index":1}`),
		"null vector":     data(it("0", "[1]"), it("1", "null")),
		"null in it":      data(it("0", "[1]"), it("1", "[null]")),
		"infinite":        data(it("0", "[1]"), it("1", "[1e39]")),
		"NaN":             data(it("0", "[1]"), it("1", "[NaN]")),
		"words":           data(it("0", "[1]"), it("1", `["1"]`)),
		"nested":          data(it("0", "[1]"), it("1", `[[1]]`)),
		"base64":          data(it("0", "[1]"), it("1", `"AACAPw=="`)),
		"not JSON":        "<html>",
		"nothing":         "",
		"cut":             `{"data":[{"index":0,"embedding":[1,`,
		"an error as 200": `{"error":"busy"}`,
	} {
		e := newEndpoint(t, Options{})
		e.before = fail(200, "", body)
		require.ErrorIs(t, errOf(e.c.Embed(t.Context(), []string{"a", "b"})), errAnswer, name)
		require.EqualValues(t, 1, e.c.Stats().Calls, "%s: a wrong answer is not asked for again", name)
		require.Zero(t, e.c.cache.bytes, "%s: nor kept", name)
	}
	e := newEndpoint(t, Options{}) // the negative control
	e.before = fail(200, "", data(it("1", "[3, 4e-2]"), it("0", " [1,\n-2.5E3 ]")))
	vecs := must(e.c.Embed(t.Context(), []string{"a", "b"}))(t)
	require.Equal(t, [][]float32{{1, -2500}, {3, .04}}, vecs)
}

func TestWidthStaysTheSame(t *testing.T) {
	e := newEndpoint(t, Options{})
	must(e.c.Embed(t.Context(), []string{"a"}))(t)
	e.before = fail(200, "", `{"data":[{"index":0,"embedding":[1,2,3]}]}`)
	require.ErrorContains(t, errOf(e.c.Embed(t.Context(), []string{"b"})), "does another model answer?")

	e = newEndpoint(t, Options{Dimensions: width})
	must(e.c.Embed(t.Context(), []string{"a"}))(t)
	require.Equal(t, "test-model@8", e.c.Model())
	e = newEndpoint(t, Options{Dimensions: 4})
	require.ErrorContains(t, errOf(e.c.Embed(t.Context(), []string{"a"})), "expected the 4 of Options.Dimensions")
}

func TestSlow(t *testing.T) {
	e := newEndpoint(t, Options{Timeout: 30 * time.Millisecond, MaxRetries: 1})
	e.before = func(_ http.ResponseWriter, r *http.Request, _ int) bool { <-r.Context().Done(); return true }
	require.ErrorIs(t, errOf(e.c.Embed(t.Context(), []string{"a"})), context.DeadlineExceeded)
	require.EqualValues(t, 2, e.c.Stats().Calls, "one request ran out of its time; the caller has more")

	e = newEndpoint(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	e.before = func(_ http.ResponseWriter, r *http.Request, _ int) bool { cancel(); <-r.Context().Done(); return true }
	require.ErrorIs(t, errOf(e.c.Embed(ctx, []string{"a"})), context.Canceled)
	require.EqualValues(t, 1, e.c.Stats().Calls)
}

// TestKeyIsNotCarriedOn: another host never sees the key, though the endpoint sends us there.
func TestKeyIsNotCarriedOn(t *testing.T) {
	var there atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { there.Add(1) }))
	defer other.Close()
	for _, client := range []*http.Client{nil, {Transport: &http.Transport{DisableKeepAlives: true}}} {
		e := newEndpoint(t, Options{Key: secret, HTTPClient: client})
		e.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
			return true
		}
		_, err := e.c.Embed(t.Context(), []string{"a"})
		require.ErrorIs(t, err, errRefused)
		require.ErrorContains(t, err, "redirects are not followed")
	}
	require.Zero(t, there.Load())
}

func TestKeyIsNotPrinted(t *testing.T) {
	o := Options{URL: "http://localhost:1/v1", Model: "m", Key: secret, MaxRetries: -1, Header: http.Header{"X-Key": {secret}}}
	c := must(New(o))(t)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "opts", o, "client", c)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "opts", o, "client", c)
	b := must(json.Marshal(o))(t)
	_, err := c.Embed(t.Context(), []string{"a"})
	require.Error(t, err)
	all := fmt.Sprintf("%v %+v %#v %s %q %d %v %+v %#v %s", o, o, o, o, o, o, c, c, c, c) + log.String() + string(b) + err.Error()
	require.NotContains(t, all, secret)
	require.NotContains(t, all, fmt.Sprintf("%x", secret))
	require.Contains(t, all, "Key:(set)")
}

func TestOptions(t *testing.T) {
	good := Options{URL: "https://api.example/v1/", Model: "m"}
	c := must(New(good))(t)
	require.Equal(t, "https://api.example/v1/embeddings", c.opts.URL)
	require.Equal(t, "m", c.Model())
	for name, change := range map[string]func(*Options){
		"no URL": func(o *Options) { o.URL = "" }, "scheme": func(o *Options) { o.URL = "ftp://x" }, "no host": func(o *Options) { o.URL = "http:///v1" },
		"credentials": func(o *Options) { o.URL = "http://me:" + secret + "@host/v1" }, "no model": func(o *Options) { o.Model = "" },
		"key with a line": func(o *Options) { o.Key = "a\nb" }, "negative": func(o *Options) { o.BatchSize = -1 },
	} {
		o := good
		change(&o)
		_, err := New(o)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), secret)
	}
}

func TestCache(t *testing.T) {
	c := newCache(3 * size(make([]float32, 10)))
	for i := range 4 {
		c.put(digestOf(fmt.Sprint(i)), make([]float32, 10))
		c.get(digestOf("0"))
	}
	require.NotNil(t, c.get(digestOf("0")), "used last")
	require.Nil(t, c.get(digestOf("1")), "the oldest went")
	require.Equal(t, c.limit, c.bytes)
	c.put(digestOf("large"), make([]float32, 10000))
	require.Nil(t, c.get(digestOf("large")))
	c = newCache(0)
	c.put(digestOf("0"), nil)
	require.Zero(t, c.bytes)
}

func TestConcurrent(t *testing.T) {
	e := newEndpoint(t, Options{CacheBytes: 1000})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				text := fmt.Sprint("text ", (g+i)%13)
				v, err := e.c.Embed(context.Background(), []string{text})
				if err != nil || !slices.Equal(v[0], vectorOf(text)) {
					t.Errorf("%v %v", v, err)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":[3,4]}]}`))
	f.Add([]byte(`{"data":[{"index":0,"embedding":[null]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		vecs, err := decode(b, 2)
		if err != nil {
			require.ErrorIs(t, err, errAnswer)
			return
		}
		require.Len(t, vecs, 2)
		for _, v := range vecs {
			require.NotEmpty(t, v)
			for _, x := range v {
				require.False(t, math.IsNaN(float64(x)) || math.IsInf(float64(x), 0))
			}
		}
	})
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call whose value does not matter.
func errOf[T any](_ T, err error) error { return err }
