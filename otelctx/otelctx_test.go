package otelctx

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/mcpserver"
	"github.com/ctxpage/ctxpage/internal/metrics"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/serve"
)

// collected is where spans and metrics of a test go.
type collected struct {
	t      *testing.T
	spans  *tracetest.InMemoryExporter
	reader *sdkmetric.ManualReader
	Options
}

func collect(t *testing.T) *collected {
	t.Helper()
	c := &collected{t: t, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	c.Tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(c.spans))
	c.Meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(c.reader))
	return c
}

// database opens a database with a page. Closing it waits until the observer has heard all.
func (c *collected) database() *ctxpage.DB {
	c.t.Helper()
	o, err := New(c.Options)
	require.NoError(c.t, err)
	db, err := ctxpage.Open(filepath.Join(c.t.TempDir(), "agent.ctx"), ctxpage.Options{Observer: o, NoWatch: true})
	require.NoError(c.t, err)
	_, err = db.Scope("acme/secret").Put(c.t.Context(), ctxpage.Artefact{ID: "secret-id", Text: "secret refunds take 14 days"})
	require.NoError(c.t, err)
	return db
}

// named returns the spans with an operation of ctxpage, or the name of a client span.
func (c *collected) named(name string) (out []tracetest.SpanStub) {
	for _, s := range c.spans.GetSpans() {
		if s.Name == name || attr(s.Attributes, "ctxpage.operation") == name {
			out = append(out, s)
		}
	}
	return out
}

func attr(of []attribute.KeyValue, key string) any {
	if i := slices.IndexFunc(of, func(a attribute.KeyValue) bool { return string(a.Key) == key }); i >= 0 {
		return of[i].Value.AsInterface()
	}
	return nil
}

// metrics returns the names of the metrics, and all that they say.
func (c *collected) metrics() (names []string, all string) {
	c.t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(c.t, c.reader.Collect(context.Background(), &rm))
	for _, s := range rm.ScopeMetrics {
		for _, m := range s.Metrics {
			names = append(names, m.Name)
		}
	}
	return names, fmt.Sprintf("%+v", rm)
}

// private wants no text, id or scope in anything that was collected.
func (c *collected) private() {
	c.t.Helper()
	_, all := c.metrics()
	require.NotContains(c.t, all, "secret")
	for _, s := range c.spans.GetSpans() {
		require.NotContains(c.t, fmt.Sprintf("%+v", s), "secret")
	}
}

// TestSpans: memory operations are spans of the caller's trace with the attributes of the convention.
func TestSpans(t *testing.T) {
	c := collect(t)
	db := c.database()
	ctx, agent := c.Tracers.Tracer("test").Start(t.Context(), "agent")
	s := db.Scope("acme/secret")
	a, err := s.Assemble(ctx, ctxpage.Query{Text: "secret refunds", Budget: 1000})
	require.NoError(t, err)
	_, err = s.Get(ctx, "secret-missing")
	require.Error(t, err)
	_, err = db.Admin().Checkpoint(ctx)
	require.NoError(t, err)
	agent.End()
	require.NoError(t, db.Close())
	c.private()

	got := c.named("assemble")
	require.Len(t, got, 1)
	span := got[0]
	require.Equal(t, "search_memory", span.Name)
	require.Equal(t, trace.SpanKindInternal, span.SpanKind)
	require.Equal(t, agent.SpanContext().TraceID(), span.SpanContext.TraceID())
	require.Equal(t, agent.SpanContext().SpanID(), span.Parent.SpanID())
	require.False(t, span.EndTime.Before(span.StartTime))
	for key, want := range map[string]any{
		"gen_ai.operation.name": "search_memory", "gen_ai.provider.name": "ctxpage", "gen_ai.memory.record.count": int64(1),
		"ctxpage.tokens": int64(a.Tokens), "ctxpage.budget": int64(1000), "ctxpage.tier": int64(1), "ctxpage.match": "good",
	} {
		require.Equal(t, want, attr(span.Attributes, key), key)
	}
	require.Regexp(t, "^[0-9a-f]{16}$", attr(span.Attributes, "gen_ai.memory.store.id"))
	failed := c.named("get")[0]
	require.Equal(t, []any{"search_memory", "not_found", "not_found"}, []any{failed.Name, attr(failed.Attributes, "error.type"), failed.Status.Description})
	commit := c.named("commit")[0]
	require.Equal(t, "upsert_memory", commit.Name)
	require.NotEqual(t, agent.SpanContext().TraceID(), commit.SpanContext.TraceID(), "it was put outside the trace")
	require.Empty(t, c.named("checkpoint"), "what the database does for itself is in no trace")
	names, _ := c.metrics()
	require.ElementsMatch(t, []string{"gen_ai.client.operation.duration", "ctxpage.operation.duration", "ctxpage.served.tokens", "ctxpage.contexts"}, names)
}

// TestSocket: an agent's span, the client's span over the socket and the span in the process that serves are one trace.
func TestSocket(t *testing.T) {
	c := collect(t)
	db := c.database()
	srv, err := serve.New(db, serve.Options{Grant: serve.Operator})
	require.NoError(t, err)
	l, err := serve.Listen(db.Path())
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	base := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	}}
	traced, err := Transport(base, c.Options)
	require.NoError(t, err)
	ctx, agent := c.Tracers.Tracer("test").Start(t.Context(), "agent")
	post := func(rt http.RoundTripper, call string, in any) int {
		body, err := json.Marshal(in)
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://ctxpage/v1/"+call, bytes.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Ctxpage-Scope", "acme/secret")
		res, err := (&http.Client{Transport: rt}).Do(req)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Empty(t, req.Header.Get("traceparent"), "the caller's request is not changed")
		return res.StatusCode
	}
	require.Equal(t, http.StatusOK, post(traced, "assemble", map[string]any{"query": "secret refunds", "budget": 1000}))
	require.Equal(t, http.StatusNotFound, post(traced, "get", map[string]any{"id": "secret-missing"}))
	require.Equal(t, http.StatusOK, post(base, "search", map[string]any{"query": "secret refunds"}), "the control sends no trace")
	agent.End()
	require.NoError(t, srv.Close())
	require.NoError(t, <-done)
	require.NoError(t, db.Close())
	c.private()

	var client, server tracetest.SpanStub
	for _, s := range c.named("assemble") {
		if s.SpanKind == trace.SpanKindClient {
			client = s
		} else {
			server = s
		}
	}
	require.Equal(t, agent.SpanContext().TraceID(), server.SpanContext.TraceID())
	require.Equal(t, client.SpanContext.SpanID(), server.Parent.SpanID())
	require.True(t, server.Parent.IsRemote())
	require.Equal(t, agent.SpanContext().SpanID(), client.Parent.SpanID())
	require.Equal(t, []any{"ctxpage", "assemble", nil}, []any{attr(client.Attributes, "db.system.name"), attr(client.Attributes, "db.operation.name"), attr(client.Attributes, "db.namespace")})
	for _, s := range c.named("get") {
		if s.SpanKind == trace.SpanKindClient {
			require.Equal(t, []any{"404", "404"}, []any{attr(s.Attributes, "db.response.status_code"), attr(s.Attributes, "error.type")})
		}
	}
	control := c.named("search")
	require.Len(t, control, 1)
	require.NotEqual(t, agent.SpanContext().TraceID(), control[0].SpanContext.TraceID())
	names, _ := c.metrics()
	require.Contains(t, names, "db.client.operation.duration")
}

// TestMCP: a tool call with a trace context in its _meta is a span of the agent's trace.
func TestMCP(t *testing.T) {
	c := collect(t)
	db := c.database()
	s, err := mcpserver.New(mcpserver.Config{DB: db, Scope: "acme/secret"})
	require.NoError(t, err)
	there, here := mcp.NewInMemoryTransports()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.WithoutCancel(t.Context()), there) }()
	client, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	require.NoError(t, err)
	ctx, agent := c.Tracers.Tracer("test").Start(t.Context(), "agent")
	require.Empty(t, Traceparent(t.Context()))
	res, err := client.CallTool(ctx, &mcp.CallToolParams{Meta: mcp.Meta{"traceparent": Traceparent(ctx)}, Name: "assemble", Arguments: map[string]any{"query": "secret refunds"}})
	require.NoError(t, err)
	require.False(t, res.IsError)
	agent.End()
	require.NoError(t, client.Close())
	<-ended
	require.NoError(t, db.Close())
	span := c.named("assemble")[0]
	require.Equal(t, agent.SpanContext().TraceID(), span.SpanContext.TraceID())
	require.Equal(t, agent.SpanContext().SpanID(), span.Parent.SpanID())
	c.private()
}

// TestNamespaces: a scope is in a client's spans only if asked for.
func TestNamespaces(t *testing.T) {
	c := collect(t)
	c.Namespaces = true
	rt, err := Transport(refusing{}, c.Options)
	require.NoError(t, err)
	for _, path := range []string{"/v1/get", "/elsewhere", "/v1/" + strings.Repeat("x", 1<<16)} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://ctxpage"+path, nil)
		require.NoError(t, err)
		req.Header.Set("Ctxpage-Scope", "acme/support")
		_, err = rt.RoundTrip(req)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
	got := c.spans.GetSpans()
	require.Len(t, got, 1, "only calls have spans")
	require.Equal(t, []any{"get acme/support", "acme/support", "connection"}, []any{got[0].Name, attr(got[0].Attributes, "db.namespace"), attr(got[0].Attributes, "error.type")})
}

type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// TestPrometheusText: the parser and the linter of Prometheus accept the text of /metrics.
func TestPrometheusText(t *testing.T) {
	m := metrics.New(2)
	for _, e := range []ops.Event{{Kind: "get", Scope: "a", Pages: 1, Bytes: 9}, {Kind: "get", Scope: "b", Error: "not_found"}, {Kind: "assemble", Scope: "c", Tokens: 9, Budget: 10, Tier: 1, Match: "good", Left: map[string]int{"over budget": 1, "low score": 2}, Dropped: 1}} {
		m.Observe(t.Context(), e)
	}
	var out bytes.Buffer
	require.NoError(t, m.Write(&out, &metrics.State{Audit: 9, Version: "v\"\\\n\u202e"}))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(out.Bytes()))
	require.NoError(t, err)
	require.Equal(t, 1.0, families["ctxpage_operation_errors_total"].Metric[0].Counter.GetValue())
	require.Equal(t, uint64(2), families["ctxpage_operation_duration_seconds"].Metric[1].Histogram.GetSampleCount())
	require.Equal(t, "v\"\\\n\u202e", families["ctxpage_build_info"].Metric[0].Label[0].GetValue())
	problems, err := promlint.New(bytes.NewReader(out.Bytes())).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}
