package remote

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/store"
)

// On Windows a socket is a port of the loopback interface, and a file in the socket's place that names the port and has a secret.
// Any program of the machine can connect to the port. So before anything else is sent, each end proves that it can read the file,
// which lies beside the database and is protected as the database is:
//
//	client  a random challenge, 32 bytes
//	server  a challenge of its own; HMAC-SHA256(secret, "server", both challenges)
//	client  HMAC-SHA256(secret, "client", both challenges)
//
// An end that cannot prove it is disconnected. A program that got the port after the server was killed learns nothing, because the
// secret is never sent.

// loopbackFile has the fields of the file.
type loopbackFile struct {
	Address string `json:"loopback"`
	PID     int    `json:"pid"`
	Secret  []byte `json:"secret"`
}

const (
	challengeBytes = 32
	proofTime      = 10 * time.Second       // a client that is silent for so long is disconnected
	dialPatience   = 250 * time.Millisecond // a connection whose server is silent for so long is given to the caller as it is
	maxLoopback    = 4 << 10                // bytes of the file
)

// errUnproven is of an end that did not read the file.
var errUnproven = errors.New("ctxpage: the program at the other end does not know the secret of this database's socket")

// readLoopback reads the file in a socket's place.
func readLoopback(path string) (is loopbackFile, err error) {
	f, err := system.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return is, err
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, maxLoopback)).Decode(&is); err != nil || len(is.Secret) < challengeBytes {
		return is, fmt.Errorf("ctxpage: socket: %s is no file of a socket: %w", path, errors.Join(err, errUnproven))
	}
	return is, nil
}

// listenLoopback is listen, by a port.
func listenLoopback(path string, peer func(net.Conn) (peerID, error)) (net.Listener, error) {
	if _, err := readLoopback(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, store.Invalid("socket", path+", which is another file", "no file, or a socket without a server")
	}
	is := loopbackFile{PID: os.Getpid(), Secret: make([]byte, challengeBytes)}
	if _, err := rand.Read(is.Secret); err != nil {
		return nil, fmt.Errorf("ctxpage: socket: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(background, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("ctxpage: socket: %w", err)
	}
	is.Address = l.Addr().String()
	b, err := json.Marshal(is)
	if err == nil {
		err = os.WriteFile(path, append(b, '\n'), 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ctxpage: socket: %w", err), l.Close())
	}
	return &loopbackListener{Listener: l, path: path, is: is, peer: peer}, nil
}

// loopbackListener accepts connections, and closes those of others.
type loopbackListener struct {
	net.Listener
	path string
	is   loopbackFile
	peer func(net.Conn) (peerID, error)
}

// Addr returns the path of the file, as for a socket.
func (l *loopbackListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close closes the port and removes the file. One that another process has made there since then stays.
func (l *loopbackListener) Close() error {
	err := l.Listener.Close()
	if now, rerr := readLoopback(l.path); rerr == nil && hmac.Equal(now.Secret, l.is.Secret) {
		_ = os.Remove(l.path) // a client that reads it now keeps it; the next server replaces it
	}
	return err
}

// Accept returns a connection whose other end proves itself before the first byte is read or written.
func (l *loopbackListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if who, err := l.peer(c); err == nil && who.uid == os.Geteuid() {
			return proving(c, l.path, 0, func() error {
				late := time.AfterFunc(proofTime, func() { _ = c.Close() }) // and not a deadline, which the server sets
				defer late.Stop()
				return askProof(c, l.is.Secret)
			}), nil
		}
		_ = c.Close()
	}
}

// loopbackConn is an end of a connection.
type loopbackConn struct {
	net.Conn
	path   string        // of the file
	pid    int           // of the server, at a client
	proved chan struct{} // closed when both ends have proved themselves, or err says why not
	err    error
}

// proving begins the exchange of proofs. It goes on while the caller has the connection, which may set deadlines and close it.
func proving(c net.Conn, path string, pid int, prove func() error) *loopbackConn {
	l := &loopbackConn{Conn: c, path: path, pid: pid, proved: make(chan struct{})}
	go func() {
		if l.err = prove(); l.err != nil {
			_ = c.Close()
		}
		close(l.proved)
	}()
	return l
}

// LocalAddr returns the path of the file, as for a socket: who gets through has read it, so no name of a host needs to be checked.
func (c *loopbackConn) LocalAddr() net.Addr { return &net.UnixAddr{Name: c.path, Net: "unix"} }

// Read reads what a proven end sent.
func (c *loopbackConn) Read(b []byte) (int, error) {
	if <-c.proved; c.err != nil {
		return 0, c.err
	}
	return c.Conn.Read(b)
}

// Write sends to a proven end.
func (c *loopbackConn) Write(b []byte) (int, error) {
	if <-c.proved; c.err != nil {
		return 0, c.err
	}
	return c.Conn.Write(b)
}

// CloseWrite ends what this end sends, and leaves the answer to come. A caller that ends its write early learns so what became of it.
func (c *loopbackConn) CloseWrite() error {
	select {
	case <-c.proved:
	default:
		return errUnproven // nothing was sent
	}
	half, is := c.Conn.(interface{ CloseWrite() error })
	if !is {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// askProof makes a client prove that it knows the secret.
func askProof(c net.Conn, secret []byte) error {
	both := make([]byte, 2*challengeBytes)
	if _, err := io.ReadFull(c, both[:challengeBytes]); err != nil {
		return err
	}
	if _, err := rand.Read(both[challengeBytes:]); err != nil {
		return err
	}
	if _, err := c.Write(append(both[challengeBytes:], proof(secret, "server", both)...)); err != nil {
		return err
	}
	got := make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !hmac.Equal(got, proof(secret, "client", both)) {
		return errUnproven
	}
	return nil
}

func proof(secret []byte, end string, both []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(end))
	h.Write(both)
	return h.Sum(nil)
}

// connectLoopback is connect, to a port.
func connectLoopback(ctx context.Context, path string) (net.Conn, error) {
	is, err := readLoopback(path)
	if err != nil {
		return nil, err
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", is.Address)
	if err != nil {
		return nil, err
	}
	l := proving(c, path, is.PID, func() error { return giveProof(c, is.Secret) })
	late := time.NewTimer(dialPatience)
	defer late.Stop()
	select {
	case <-l.proved:
		if errors.Is(l.err, errUnproven) {
			return nil, l.err
		} // a server that ended meanwhile: the caller notices, as at a socket, and knows which process it was
	case <-late.C: // the server is busy or stands still: the caller notices, as at a socket
	case <-ctx.Done():
		_ = c.Close()
		return nil, ctx.Err()
	}
	return l, nil
}

// giveProof proves to a server that this end knows the secret, once the server has.
func giveProof(c net.Conn, secret []byte) error {
	both := make([]byte, 2*challengeBytes, 2*challengeBytes+sha256.Size)
	if _, err := rand.Read(both[:challengeBytes]); err != nil {
		return err
	}
	if _, err := c.Write(both[:challengeBytes]); err != nil {
		return err
	}
	answer := both[challengeBytes : 2*challengeBytes+sha256.Size]
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	if !hmac.Equal(answer[challengeBytes:], proof(secret, "server", both)) {
		return errUnproven
	}
	_, err := c.Write(proof(secret, "client", both))
	return err
}
