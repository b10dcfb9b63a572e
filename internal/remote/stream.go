package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A connection carries calls, one after the other. Both ends begin with a greeting, which names the
// protocol; the server sends its own when it has that of the client.
//
//	client   greeting, c (number, session, name) and the frames of the request, written as one
//	server   greeting, the frames of the answer, or n: the call was refused, and nothing was done
//
// A client that abandons a call closes the connection.

// greeting is the first that each end sends. It ends as the head of a request of HTTP does, so that
// a server made before v0.1.0, which speaks HTTP, answers at once in place of waiting for more.
const greeting = "ctxpage/1\r\n\r\n"

// isRequest reports whether a connection begins as a request of HTTP, in place of a greeting.
func isRequest(said string) bool {
	method, _, ok := strings.Cut(said, " /")
	return ok && method != "" && strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// refusedRequest is the answer to such a request.
const refusedRequest = "HTTP/1.1 409 Conflict\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 142\r\n\r\n" +
	`{"code":"skew","message":"the program that asks was made before v0.1.0, and the process that has this database was not; use a newer program"}` + "\n"

const (
	frameCall    = 'c' // what the request that follows is
	frameRefused = 'n' // the call was refused; a refusal
)

// callHead is the content of a frameCall.
type callHead struct {
	number  uint64
	session string
	name    string
}

// maxCallHead bounds it.
const maxCallHead = 512

// errHead means that a stream does not carry calls.
var errHead = errors.New("ctxpage: the stream has something else where a call begins")

// appendCall appends the frame of a head.
func appendCall(b []byte, h callHead) []byte {
	b = append(b, frameCall)
	b = binary.BigEndian.AppendUint32(b, uint32(8+1+len(h.session)+len(h.name)))
	b = binary.BigEndian.AppendUint64(b, h.number)
	b = append(append(b, byte(len(h.session))), h.session...)
	return append(b, h.name...)
}

// readCall reads the frame of a head into scratch.
func readCall(r io.Reader, scratch *[frameHeader + maxCallHead]byte) (h callHead, err error) {
	if _, err := io.ReadFull(r, scratch[:frameHeader]); err != nil {
		return h, err
	}
	n := binary.BigEndian.Uint32(scratch[1:])
	if scratch[0] != frameCall || n < 8+1 || n > maxCallHead {
		return h, fmt.Errorf("%w: a frame %q of %d bytes", errHead, scratch[0], n)
	}
	b := scratch[frameHeader : frameHeader+n]
	if _, err := io.ReadFull(r, b); err != nil {
		return h, err
	}
	h.number = binary.BigEndian.Uint64(b)
	session := int(b[8])
	if b = b[9:]; session > len(b) {
		return h, fmt.Errorf("%w: a session of %d bytes in %d", errHead, session, len(b))
	}
	h.session, h.name = string(b[:session]), string(b[session:])
	return h, nil
}

// refusalFrame is a refusal as it is sent.
func refusalFrame(no *refused) []byte {
	b, err := packFrame(frameRefused, no.refusal)
	if err != nil {
		return nil // two texts can be encoded
	}
	return b
}

// parseRefusal reads the content of a frameRefused.
func parseRefusal(b []byte) error {
	no := &refused{}
	if err := unpack(b, &no.refusal); err != nil {
		return err
	}
	return no
}
