package remote

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A stream is a connection between two programs of this project that left HTTP (protocol 4): the
// same frames, without a head of fields around each call. One call is under way at a time.
//
//	client   c (number, session, name) and the frames of the request, written as one
//	server   the frames of the answer, or n: the call was refused, and nothing was done
//
// A client that gives a call up closes the stream, as it closes a connection of HTTP.
const (
	streamPath     = "/stream"
	streamProtocol = "ctxpage" // in the field Upgrade
)

const (
	frameCall    = 'c' // what the request that follows is
	frameRefused = 'n' // the call was refused; a refusal in JSON
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

// refusalFrame is a refusal on a stream.
func refusalFrame(no *refused) []byte {
	b, err := json.Marshal(no.refusal)
	if err != nil {
		b = nil // the client finds that it is no refusal
	}
	var out bytes.Buffer
	appendFrame(&out, frameRefused, b)
	return out.Bytes()
}

// parseRefusal reads the content of a frameRefused.
func parseRefusal(status int, b []byte) error {
	no := &refused{status: status}
	if err := json.Unmarshal(b, &no.refusal); err != nil || no.Code == "" {
		return fmt.Errorf("ctxpage: got status %d, expected the answer of a ctxpage server; it says %.200q", status, b)
	}
	return no
}
