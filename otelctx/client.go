package otelctx

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Transport is for the http.Client of a program that calls a database over its socket (dbctl serve, package serve). Each call is a client span
// with the attributes of databases and a value of db.client.operation.duration, and carries the trace on to the database. The span ends when
// the answer begins. nil is http.DefaultTransport.
func Transport(base http.RoundTripper, o Options) (http.RoundTripper, error) {
	if base == nil {
		base = http.DefaultTransport
	}
	o = o.withDefaults()
	took, err := o.Meters.Meter(library).Float64Histogram("db.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of database client operations."), metric.WithExplicitBucketBoundaries(.001, .005, .01, .05, .1, .5, 1, 5, 10))
	if err != nil {
		return nil, err
	}
	return &transport{base, o.Tracers.Tracer(library), took, o.Namespaces}, nil
}

type transport struct {
	base       http.RoundTripper
	tracer     trace.Tracer
	took       metric.Float64Histogram
	namespaces bool
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	call, is := strings.CutPrefix(r.URL.Path, "/v1/")
	if !is || len(call) > 40 {
		return t.base.RoundTrip(r)
	}
	attrs, name := []attribute.KeyValue{attribute.String("db.system.name", system), attribute.String("db.operation.name", call)}, call
	if scope := r.Header.Get("Ctxpage-Scope"); t.namespaces && scope != "" {
		attrs, name = append(attrs, attribute.String("db.namespace", scope)), call+" "+scope
	}
	began := time.Now()
	ctx, span := t.tracer.Start(r.Context(), name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	defer span.End()
	r = r.Clone(ctx)
	traceContext.Inject(ctx, propagation.HeaderCarrier(r.Header))
	res, err := t.base.RoundTrip(r)
	failed := ""
	switch {
	case err != nil:
		failed = "connection"
	case res.StatusCode >= http.StatusBadRequest:
		failed = strconv.Itoa(res.StatusCode)
		attrs = append(attrs, attribute.String("db.response.status_code", failed))
	}
	if failed != "" {
		attrs = append(attrs, attribute.String("error.type", failed))
		span.SetAttributes(attrs...)
		span.SetStatus(codes.Error, failed)
	}
	t.took.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(attrs...))
	return res, err
}
