package embed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/ctxpage/ctxpage/internal/loop"
)

// Why an endpoint gave no vectors; every *Error matches one of these, a network error, or the end of the context.
var (
	// errRefused means that the endpoint answered with a status other than 200. Error.Message has its
	// message.
	errRefused = errors.New("refused")
	// errAnswer means that the answer does not fit the request: a wrong number, length or order of vectors, or numbers
	// that are not finite.
	errAnswer = errors.New("answered wrongly")
)

// maxAnswer bounds an answer: 64 vectors of 16,384 numbers of 20 digits are a third of it.
const maxAnswer = 64 << 20

// maxMessage bounds what is kept of the endpoint's own words.
const maxMessage = 300

// Error says what the endpoint did. It contains neither the key nor a text.
type Error struct {
	URL     string
	Status  int    // 0: no answer, or one that was 200
	Message string // the endpoint's message, shortened; it may quote what it was sent
	Err     error
	retry   bool
}

func (e *Error) Error() string {
	s := "embed: " + e.URL
	if e.Status != 0 {
		s += ": status " + strconv.Itoa(e.Status)
	}
	s += ": " + e.Err.Error()
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func (c *Client) fault(status int, err error) *Error {
	return &Error{URL: c.opts.URL, Status: status, Err: err}
}

// lost is for a request without a whole answer. It may pass, unless the caller's own time is over.
func (c *Client) lost(ctx context.Context, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // the rest repeats the URL
	}
	e := c.fault(0, err)
	e.retry = ctx.Err() == nil || errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	return e
}

func (c *Client) refused(status int, body []byte) error {
	e := c.fault(status, errRefused)
	e.retry = loop.Retryable(status)
	e.Message = c.message(body)
	if status >= 300 && status < 400 {
		e.Message = "redirects are not followed; give the URL it leads to"
	}
	return e
}

// message is the endpoint's own words, on one line, without the key.
func (c *Client) message(body []byte) string {
	var structured struct {
		Error json.RawMessage `json:"error"`
	}
	var inner struct {
		Message string `json:"message"`
	}
	s := string(body)
	if json.Unmarshal(body, &structured) == nil && len(structured.Error) > 0 {
		switch {
		case json.Unmarshal(structured.Error, &inner) == nil && inner.Message != "":
			s = inner.Message
		case json.Unmarshal(structured.Error, &s) != nil:
			s = string(structured.Error)
		}
	}
	if c.opts.Key != "" {
		s = strings.ReplaceAll(s, c.opts.Key, "(key)")
	}
	s = strings.ToValidUTF8(s, "\ufffd")
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) }), " ")
	if r := []rune(s); len(r) > maxMessage {
		s = string(r[:maxMessage]) + "…"
	}
	return s
}

type request struct {
	Model      string   `json:"model"`
	Input      []string `json:"input"`
	Encoding   string   `json:"encoding_format"`
	Dimensions int      `json:"dimensions,omitempty"`
}

func encode(o Options, batch []string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(request{o.Model, batch, "float", o.Dimensions}); err != nil {
		return nil, fmt.Errorf("embed: encode: %w", err)
	}
	return b.Bytes(), nil
}

func (c *Client) newRequest(ctx context.Context, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.opts.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range c.opts.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "ctxpage")
	}
	if c.opts.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.opts.Key)
	}
	return req, nil
}

type response struct {
	Data []struct {
		Index     *int   `json:"index"`
		Embedding vector `json:"embedding"`
	} `json:"data"`
}

// vector reads an array of numbers strictly. A plain []float32 would take null for 0.
type vector []float32

func (v *vector) UnmarshalJSON(b []byte) error {
	s := strings.TrimSpace(string(b))
	if len(s) < 2 || s[0] != '[' {
		return errors.New("an embedding that is no array of numbers")
	}
	if s = strings.TrimSpace(s[1 : len(s)-1]); s == "" {
		return errors.New("an empty embedding")
	}
	out := make(vector, 0, strings.Count(s, ",")+1)
	for field := range strings.SplitSeq(s, ",") {
		f, err := strconv.ParseFloat(strings.TrimSpace(field), 32)
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return fmt.Errorf("number %d of an embedding is no finite number", len(out))
		}
		out = append(out, float32(f))
	}
	*v = out
	return nil
}

// decode checks an answer to n texts and puts the vectors into the order of the texts, whatever the order of the answer.
func decode(b []byte, n int) ([][]float32, error) {
	var r response
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	if len(r.Data) != n {
		return nil, fmt.Errorf("%w: %d vectors for %d texts", errAnswer, len(r.Data), n)
	}
	out := make([][]float32, n)
	for _, d := range r.Data {
		switch {
		case d.Index == nil || *d.Index < 0 || *d.Index >= n:
			return nil, fmt.Errorf("%w: a vector without an index, or one outside 0 to %d", errAnswer, n-1)
		case out[*d.Index] != nil:
			return nil, fmt.Errorf("%w: two vectors for text %d", errAnswer, *d.Index)
		case len(d.Embedding) == 0:
			return nil, fmt.Errorf("%w: no vector for text %d", errAnswer, *d.Index)
		}
		out[*d.Index] = d.Embedding
	}
	return out, nil
}
