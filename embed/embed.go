// Package embed is a client of the embeddings endpoint that OpenAI defined and that Ollama, vLLM, llama.cpp and others
// offer: POST …/v1/embeddings. It is not part of the root package, so only programs that import it link net/http:
//
//	e, err := embed.New(embed.Options{URL: "http://localhost:11434/v1", Model: "nomic-embed-text"})
//	db, err := ctxpage.Open("agent.ctx", ctxpage.Options{Embedder: e})
//
// Texts are sent in batches, failures that may pass are retried, and answers are checked. Vectors are kept in memory
// by the digest of their text. The key is sent to the endpoint alone: redirects are not followed, and neither errors
// nor a printed Client or Options show it.
package embed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/loop"
)

// Options configure a Client. URL and Model are needed; the rest has defaults.
type Options struct {
	// URL is the base, like http://localhost:11434/v1, or the endpoint itself, which ends in /embeddings.
	URL string
	// Model is the name the endpoint knows the model by.
	Model string
	// Key is sent as a bearer token; empty: none.
	Key string
	// Dimensions is the length of vectors to ask for, if the model can make shorter ones; 0: the
	// model's own length.
	Dimensions int
	// BatchSize and BatchBytes limit the texts of one request; 0: 64 texts, 256 KiB. A text longer than BatchBytes is
	// sent alone.
	BatchSize  int
	BatchBytes int
	// MaxTextBytes cuts longer texts, at the start of a character, for models with a short window that refuse more; 0:
	// nothing is cut.
	MaxTextBytes int
	// MaxRetries is how often a request is repeated after a failure that may pass; 0: 3, negative: never. Before a
	// retry the client waits for Backoff (0: 250 ms), doubled each time up to MaxWait (0: 20 s), or for as long as
	// the endpoint asks by Retry-After. If the endpoint asks for more than MaxWait, or the context would end first,
	// the failure is returned at once.
	MaxRetries int
	Backoff    time.Duration
	MaxWait    time.Duration
	// Timeout is for one request; 0: 30 s.
	Timeout time.Duration
	// CacheBytes bounds the vectors kept in memory; 0: 16 MiB, negative: none.
	CacheBytes int
	// HTTPClient sends the requests; nil: a new one. New copies it, and the copy refuses redirects.
	HTTPClient *http.Client
	// Header is sent with each request, for endpoints that want more than a key.
	Header http.Header
}

// Format prints the options without the key and the headers, whatever the verb.
func (o Options) Format(f fmt.State, _ rune) {
	key := "none"
	if o.Key != "" {
		key = "set"
	}
	fmt.Fprintf(f, "{URL:%s Model:%s Key:(%s)}", redacted(o.URL), o.Model, key)
}

// LogValue is for slog, which would otherwise marshal the fields.
func (o Options) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(o)) }

// MarshalText keeps the key out of JSON.
func (o Options) MarshalText() ([]byte, error) { return []byte(fmt.Sprint(o)), nil }

func redacted(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}

func (o Options) withDefaults() (Options, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return o, fmt.Errorf("embed: Options.URL: got %q, expected the base of an endpoint like http://localhost:11434/v1", redacted(o.URL))
	case u.User != nil:
		return o, fmt.Errorf("embed: Options.URL: %s carries credentials; give them as Options.Key or Options.Header", u.Redacted())
	case o.Model == "":
		return o, errors.New("embed: Options.Model: got nothing, expected the name of a model")
	case strings.ContainsFunc(o.Key, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return o, errors.New("embed: Options.Key: expected visible ASCII characters only")
	case o.Dimensions < 0 || o.BatchSize < 0 || o.BatchBytes < 0 || o.MaxTextBytes < 0 || o.Timeout < 0 || o.Backoff < 0 || o.MaxWait < 0:
		return o, errors.New("embed: negative limit in Options; expected 0 for the default, or more")
	}
	if !strings.HasSuffix(u.Path, "/embeddings") {
		u = u.JoinPath("embeddings")
	}
	o.URL = u.String()
	o.BatchSize, o.BatchBytes = or(o.BatchSize, 64), or(o.BatchBytes, 256<<10)
	o.MaxRetries, o.CacheBytes = max(or(o.MaxRetries, 3), 0), max(or(o.CacheBytes, 16<<20), 0)
	o.Backoff, o.MaxWait, o.Timeout = or(o.Backoff, 250*time.Millisecond), or(o.MaxWait, 20*time.Second), or(o.Timeout, 30*time.Second)
	o.Header = o.Header.Clone()
	return o, nil
}

func or[T int | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// Client asks one model at one endpoint. It is safe for concurrent use. The caller owns the results.
type Client struct {
	opts  Options
	http  *http.Client
	cache *cache
	wait  func(context.Context, time.Duration) bool
	now   func() time.Time

	width                      atomic.Int64 // length of the vectors, once known
	calls, texts, hits, repeat atomic.Int64
}

// New makes a client. It sends nothing yet.
func New(o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{opts: o, http: &http.Client{}, cache: newCache(o.CacheBytes), wait: loop.Wait, now: time.Now}
	if o.HTTPClient != nil {
		*c.http = *o.HTTPClient
	} else {
		t := http.DefaultTransport.(*http.Transport).Clone()
		c.http.Transport = t
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// Format prints the model and the endpoint.
func (c *Client) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "embed.Client%v", c.opts) }

// Model names the vectors. Vectors of different names are never compared. It is the model's name, followed by the
// length of its vectors if Options.Dimensions is set.
func (c *Client) Model() string {
	if c.opts.Dimensions > 0 {
		return c.opts.Model + "@" + strconv.Itoa(c.opts.Dimensions)
	}
	return c.opts.Model
}

// Stats are counters since New.
type Stats struct {
	Calls   int64 `json:"calls"`   // requests sent
	Repeats int64 `json:"repeats"` // of them repetitions
	Texts   int64 `json:"texts"`   // texts asked for
	Hits    int64 `json:"hits"`    // of them answered from memory, or twice in one call
}

// Stats returns the counters.
func (c *Client) Stats() Stats {
	return Stats{Calls: c.calls.Load(), Repeats: c.repeat.Load(), Texts: c.texts.Load(), Hits: c.hits.Load()}
}

// CloseIdle closes connections that are kept for later use.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// Embed returns the vector of each text, in order, all of one length. A text must be UTF-8 and not empty. After an
// error it returns no vectors, but keeps those that it got for the next call. The error is an *Error, or names the
// text at fault.
func (c *Client) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	keys := make([]digest, len(texts))
	cut := make([]string, len(texts))
	for i, t := range texts {
		cut[i] = c.cut(t)
		if strings.TrimSpace(cut[i]) == "" || !utf8.ValidString(cut[i]) {
			return nil, fmt.Errorf("embed: text %d of %d is empty or not UTF-8", i, len(texts))
		}
		keys[i] = digestOf(cut[i])
	}
	c.texts.Add(int64(len(texts)))
	known := map[digest][]float32{}
	var ask []int
	for i, k := range keys {
		if _, repeated := known[k]; repeated {
			c.hits.Add(1)
			continue
		}
		known[k] = c.cache.get(k)
		if known[k] != nil {
			c.hits.Add(1)
		} else {
			ask = append(ask, i)
		}
	}
	for len(ask) > 0 {
		n := c.batch(cut, ask)
		if err := c.embedBatch(ctx, cut, keys, ask[:n], known); err != nil {
			return nil, err
		}
		ask = ask[n:]
	}
	out := make([][]float32, len(texts))
	for i, k := range keys {
		out[i] = append([]float32(nil), known[k]...)
	}
	return out, nil
}

func (c *Client) cut(text string) string {
	limit := c.opts.MaxTextBytes
	if limit == 0 || len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// batch says how many of the texts that are left go into the next request.
func (c *Client) batch(texts []string, ask []int) int {
	bytes := 0
	for n, i := range ask {
		if bytes += len(texts[i]); n == c.opts.BatchSize || n > 0 && bytes > c.opts.BatchBytes {
			return n
		}
	}
	return len(ask)
}

func (c *Client) embedBatch(ctx context.Context, texts []string, keys []digest, ask []int, known map[digest][]float32) error {
	batch := make([]string, len(ask))
	for j, i := range ask {
		batch[j] = texts[i]
	}
	vecs, err := c.request(ctx, batch)
	if err != nil {
		return err
	}
	for j, i := range ask {
		known[keys[i]] = vecs[j]
		c.cache.put(keys[i], vecs[j])
	}
	return nil
}

// request sends a batch, with repetitions.
func (c *Client) request(ctx context.Context, batch []string) ([][]float32, error) {
	body, err := encode(c.opts, batch)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		vecs, after, err := c.post(ctx, body, len(batch))
		if err == nil {
			return vecs, nil
		}
		var e *Error
		if !errors.As(err, &e) || !e.retry || try > c.opts.MaxRetries || ctx.Err() != nil {
			return nil, err
		}
		pause := max(loop.Backoff(c.opts.Backoff, c.opts.MaxWait, try), after)
		if pause > c.opts.MaxWait || !c.wait(ctx, pause) {
			return nil, err
		}
		c.repeat.Add(1)
	}
}

// post is one request and its answer, and how long the endpoint asks to wait before the next.
func (c *Client) post(ctx context.Context, body []byte, n int) (vecs [][]float32, after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	req, err := c.newRequest(ctx, body)
	if err != nil {
		return nil, 0, c.fault(0, err)
	}
	c.calls.Add(1)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, 0, c.lost(ctx, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, 0, c.lost(ctx, err)
	case res.StatusCode != http.StatusOK:
		after, _ = loop.RetryAfter(res.Header.Get("Retry-After"), c.now())
		return nil, after, c.refused(res.StatusCode, b)
	case len(b) > maxAnswer:
		return nil, 0, c.fault(0, fmt.Errorf("%w: more than %d bytes", errAnswer, maxAnswer))
	}
	vecs, err = decode(b, n)
	if err == nil {
		err = c.sameWidth(vecs)
	}
	if err != nil {
		return nil, 0, c.fault(0, err)
	}
	return vecs, 0, nil
}

// sameWidth holds a model to one length of vectors: others mean that a different model answers now.
func (c *Client) sameWidth(vecs [][]float32) error {
	for i, v := range vecs {
		if c.opts.Dimensions > 0 && len(v) != c.opts.Dimensions {
			return fmt.Errorf("%w: a vector of %d numbers, expected the %d of Options.Dimensions", errAnswer, len(v), c.opts.Dimensions)
		}
		c.width.CompareAndSwap(0, int64(len(v)))
		if w := c.width.Load(); int64(len(v)) != w {
			return fmt.Errorf("%w: vector %d has %d numbers, expected %d as all before; does another model answer?", errAnswer, i, len(v), w)
		}
	}
	return nil
}
