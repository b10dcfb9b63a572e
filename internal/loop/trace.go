package loop

import "context"

// A W3C trace context is the trace and the span that a call belongs to, as text: version 00, 32 digits of the trace, 16 of the span and
// two of flags, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.

type traceparentKey struct{}

// WithTraceparent returns a context with the trace context of a caller in another process. Text that is not well-formed is left out.
func WithTraceparent(ctx context.Context, text string) context.Context {
	if !wellFormed(text) {
		return ctx
	}
	return context.WithValue(ctx, traceparentKey{}, text)
}

// Traceparent returns the trace context that WithTraceparent set; "": none.
func Traceparent(ctx context.Context) string {
	text, _ := ctx.Value(traceparentKey{}).(string)
	return text
}

func wellFormed(text string) bool {
	const form = "00-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx"
	if len(text) != len(form) {
		return false
	}
	trace, span := byte(0), byte(0) // all zeros are no id
	for i := range form {
		c := text[i]
		if form[i] != 'x' {
			if c != form[i] {
				return false
			}
			continue
		}
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
		switch {
		case i < 35:
			trace |= c - '0'
		case i < 52:
			span |= c - '0'
		}
	}
	return trace != 0 && span != 0
}
