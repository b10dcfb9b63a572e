// Command dbctl is dbctl whose database work is told to a collector of OpenTelemetry: serve, mcp and every other verb make spans in the trace of
// their caller. OTEL_EXPORTER_OTLP_ENDPOINT and the other variables of OpenTelemetry say where they go; without them http://localhost:4318.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/ctxpage/ctxpage/internal/dbctl"
	"github.com/ctxpage/ctxpage/otelctx"
)

// flushTime bounds how long the end of the program waits for a collector.
const flushTime = 3 * time.Second

func main() { os.Exit(run()) }

func run() int {
	ctx := context.Background()
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "dbctl: OpenTelemetry:", err)
		return 2
	}
	is, err := resource.Merge(resource.NewSchemaless(attribute.String("service.name", "ctxpage")), resource.Environment())
	if err != nil {
		fmt.Fprintln(os.Stderr, "dbctl: OpenTelemetry:", err)
		return 2
	}
	spans := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(is))
	observer, err := otelctx.New(otelctx.Options{Tracers: spans})
	if err != nil {
		fmt.Fprintln(os.Stderr, "dbctl: OpenTelemetry:", err)
		return 2
	}
	code := dbctl.Tool{Observer: observer}.Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	last, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if err := spans.Shutdown(last); err != nil {
		fmt.Fprintln(os.Stderr, "dbctl: spans were not sent:", err)
	}
	return code
}
