package remote

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Layout of a body:
//
//	kind     1 byte
//	length   4 bytes, big-endian, at most MaxFrame
//	content  that many bytes
//
//	progress*  part*  end       the answer to a call: any number of reports, then the message in parts
//	part*  end                  a request
//	part*  error                a call that failed; the message is the error
//
// Memory is not taken for a length that was only announced: a peer that claims a frame of 16 MiB
// and sends nothing costs at most 64 KiB.

// A body is frames: a byte that says what it is, the length in four bytes, big-endian, and that
// many bytes. A message that is longer than a frame is cut into parts, the last of which is an end.
// A body that has no end was cut on its way.
const (
	frameEnd      = 'r' // the last part of a message
	framePart     = 'd' // a part of a message, and more follow
	frameError    = 'e' // the call failed; the error is the message
	frameProgress = 'p' // how far a job has come; the message follows
)

const (
	// MaxFrame is how many bytes a frame holds.
	MaxFrame    = 16 << 20
	frameHeader = 5
	maxRequest  = 256 << 20 // bytes of a request: a transaction has at most store.MaxTxnBytes of text
	maxAnswer   = 2 << 30
	atOnceBytes = 64 << 10 // of a frame that are reserved before they came
)

// errCut means that a body ended before its message did.
var errCut = errors.New("ctxpage: the connection was cut")

// appendFrame appends one frame of at most MaxFrame bytes.
func appendFrame(b *bytes.Buffer, kind byte, part []byte) {
	var h [frameHeader]byte
	h[0] = kind
	binary.BigEndian.PutUint32(h[1:], uint32(len(part)))
	b.Write(h[:])
	b.Write(part)
}

// framed is a message in frames, the last of a kind.
func framed(kind byte, message []byte) []byte {
	var b bytes.Buffer
	b.Grow(len(message) + frameHeader*(len(message)/MaxFrame+1))
	for len(message) > MaxFrame {
		appendFrame(&b, framePart, message[:MaxFrame])
		message = message[MaxFrame:]
	}
	appendFrame(&b, kind, message)
	return b.Bytes()
}

// readMessage reads frames until a message ends, and says which kind its last frame is. Progress,
// nil: none is expected, gets what comes before. Memory is taken as bytes arrive, not as they are
// announced.
func readMessage(r io.Reader, limit int, progress func(b []byte) error) (kind byte, message []byte, err error) {
	var b bytes.Buffer
	h := make([]byte, frameHeader)
	for {
		if _, err := io.ReadFull(r, h); err != nil {
			return 0, nil, fmt.Errorf("%w: %w", errCut, err)
		}
		n := int(binary.BigEndian.Uint32(h[1:]))
		if n > MaxFrame || b.Len()+n > limit {
			return 0, nil, fmt.Errorf("ctxpage: a frame of %d bytes after %d, expected at most %d and %d in all", n, b.Len(), MaxFrame, limit)
		}
		at := b.Len()
		if n <= atOnceBytes && at == 0 && (h[0] == frameEnd || h[0] == frameError) { // most messages
			message = make([]byte, n)
			if _, err := io.ReadFull(r, message); err != nil {
				return 0, nil, fmt.Errorf("%w: %w", errCut, err)
			}
			return h[0], message, nil
		}
		if n <= atOnceBytes {
			b.Grow(n)
		}
		if _, err := io.CopyN(&b, r, int64(n)); err != nil {
			return 0, nil, fmt.Errorf("%w: %w", errCut, err)
		}
		switch h[0] {
		case framePart:
		case frameEnd, frameError, frameRefused:
			return h[0], b.Bytes(), nil
		case frameProgress:
			if progress == nil {
				return 0, nil, fmt.Errorf("ctxpage: a frame of progress that was not asked for")
			}
			if err := progress(b.Bytes()[at:]); err != nil {
				return 0, nil, err
			}
			b.Truncate(at)
		default:
			return 0, nil, fmt.Errorf("ctxpage: a frame of kind %q", h[0])
		}
	}
}
