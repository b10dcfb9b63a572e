// Package otelctx makes spans and metrics of OpenTelemetry from what a ctxpage database does, by the conventions for generative AI (release
// v0.1.0, in development there), and by those for databases in clients.
//
//	observer, err := otelctx.New(otelctx.Options{})
//	db, err := ctxpage.Open("agent.ctx", ctxpage.Options{Observer: observer})
//
// A span belongs to the trace of the caller: of the context of the call, or of the trace context that came with it over the socket (Transport
// sends it) or MCP (Traceparent in _meta). Spans and metrics have no text and no ids; a scope is a keyed digest, or its name with
// Options.ObserveScopes of the database.
package otelctx

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/ctxpage/ctxpage/ops"
)

const (
	library = "github.com/ctxpage/ctxpage/otelctx"
	system  = "ctxpage"
)

// Options say where spans and metrics go; nil: to the global providers.
type Options struct {
	Tracers trace.TracerProvider
	Meters  metric.MeterProvider
	// Namespaces has Transport put the scope that a request names in db.namespace. Scope names may be personal data.
	Namespaces bool
}

func (o Options) withDefaults() Options {
	if o.Tracers == nil {
		o.Tracers = otel.GetTracerProvider()
	}
	if o.Meters == nil {
		o.Meters = otel.GetMeterProvider()
	}
	return o
}

// Observer is an ops.Observer that makes spans and metrics. It may observe several databases.
type Observer struct {
	tracer                    trace.Tracer
	memory, took              metric.Float64Histogram
	tokens, contexts, dropped metric.Int64Counter
}

// New makes an observer.
func New(o Options) (*Observer, error) {
	o = o.withDefaults()
	m := o.Meters.Meter(library)
	out, errs := &Observer{tracer: o.Tracers.Tracer(library)}, make([]error, 5)
	// The bounds that the convention proposes begin at 10 ms, which is longer than most of these operations.
	bounds := metric.WithExplicitBucketBoundaries(.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5, 10)
	out.memory, errs[0] = m.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"), metric.WithDescription("Duration of memory operations"), bounds)
	out.took, errs[1] = m.Float64Histogram("ctxpage.operation.duration", metric.WithUnit("s"), metric.WithDescription("Duration of what a database does, by operation"), bounds)
	out.tokens, errs[2] = m.Int64Counter("ctxpage.served.tokens", metric.WithUnit("{token}"), metric.WithDescription("Tokens of what reads served"))
	out.contexts, errs[3] = m.Int64Counter("ctxpage.contexts", metric.WithUnit("{context}"), metric.WithDescription("Contexts, by tier and match"))
	out.dropped, errs[4] = m.Int64Counter("ctxpage.observer.dropped", metric.WithUnit("{event}"), metric.WithDescription("Events that were dropped, because there were too many at once"))
	return out, errors.Join(errs...)
}

// memoryOperations are the kinds of events that the convention has a name for.
var memoryOperations = map[string]string{
	"get": "search_memory", "recall": "search_memory", "search": "search_memory", "assemble": "search_memory", "export": "search_memory",
	"commit": "upsert_memory", "held": "upsert_memory", "approve": "upsert_memory", "promote": "upsert_memory", "refetch": "upsert_memory",
	"erase": "delete_memory",
}

// Observe makes a span of an event, and counts it. Memory operations always have one; what the database does for itself has one only inside
// a trace.
func (o *Observer) Observe(ctx context.Context, e ops.Event) {
	ctx = parent(ctx, e.Traceparent)
	name, memory := memoryOperations[e.Kind]
	kind := []attribute.KeyValue{attribute.String("ctxpage.operation", e.Kind)}
	if e.Error != "" {
		kind = append(kind, attribute.String("error.type", e.Error))
	}
	if memory || trace.SpanContextFromContext(ctx).IsValid() {
		if !memory {
			name = "ctxpage " + e.Kind
		}
		ctx = o.span(ctx, name, memory, kind, &e)
	}
	o.took.Record(ctx, e.Took.Seconds(), metric.WithAttributes(kind...))
	if memory {
		o.memory.Record(ctx, e.Took.Seconds(), metric.WithAttributes(append(kind, genAI(name)...)...))
	}
	if e.Tokens > 0 {
		o.tokens.Add(ctx, int64(e.Tokens), metric.WithAttributes(kind...))
	}
	if e.Kind == "assemble" && e.Error == "" {
		o.contexts.Add(ctx, 1, metric.WithAttributes(attribute.Int("ctxpage.tier", e.Tier), attribute.String("ctxpage.match", e.Match)))
	}
	if e.Dropped > 0 {
		o.dropped.Add(ctx, int64(e.Dropped))
	}
}

func genAI(operation string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("gen_ai.operation.name", operation), attribute.String("gen_ai.provider.name", system)}
}

// span makes the span of what has ended, and returns a context with it.
func (o *Observer) span(ctx context.Context, name string, memory bool, attrs []attribute.KeyValue, e *ops.Event) context.Context {
	if memory {
		attrs = append(attrs, genAI(name)...)
		attrs = append(attrs, attribute.Int("gen_ai.memory.record.count", e.Pages))
		if e.Scope != "" {
			attrs = append(attrs, attribute.String("gen_ai.memory.store.id", e.Scope))
		}
	}
	if e.Kind == "assemble" && e.Error == "" {
		left := 0
		for _, n := range e.Left {
			left += n
		}
		attrs = append(attrs, attribute.Int("ctxpage.tier", e.Tier), attribute.Int("ctxpage.budget", e.Budget), attribute.Int("ctxpage.left.pages", left))
		if e.Match != "" {
			attrs = append(attrs, attribute.String("ctxpage.match", e.Match))
		}
	}
	if e.Tokens > 0 {
		attrs = append(attrs, attribute.Int("ctxpage.tokens", e.Tokens))
	}
	if e.Bytes > 0 {
		attrs = append(attrs, attribute.Int("ctxpage.bytes", e.Bytes))
	}
	if e.LSN > 0 {
		attrs = append(attrs, attribute.Int64("ctxpage.lsn", int64(e.LSN)))
	}
	ctx, s := o.tracer.Start(ctx, name, trace.WithTimestamp(e.At.Add(-e.Took)), trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(attrs...))
	if e.Error != "" {
		s.SetStatus(codes.Error, e.Error)
	}
	s.End(trace.WithTimestamp(e.At))
	return ctx
}

var traceContext = propagation.TraceContext{}

// parent returns a context with the span of the caller: its own, or that of another process.
func parent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return traceContext.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

// Traceparent returns the trace context of a context, for "traceparent" in _meta of a call over MCP; "": it has no span.
func Traceparent(ctx context.Context) string {
	c := propagation.MapCarrier{}
	traceContext.Inject(ctx, c)
	return c["traceparent"]
}
