package serve

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// Access has three layers, and each can only lower what the layer above allows:
//
// 	connection   a unix socket is open to its user alone; over TCP a bearer token sets the highest role (granted)
// 	caller       hello binds scope, actor and role to a key, which later headers cannot change (holder)
// 	call         each call names the least role that may make it (call.least)
//
// No argument of an agent's call changes its scope, so a model cannot reach another scope by what it writes.

// Role says what a caller may do. Each role may do what the roles below it may.
type Role uint8

const (
	// Agent reads, and writes through the commit gate.
	Agent Role = iota
	// Host writes what it vouches for: pages, turns, directives, verdicts on drafts.
	Host
	// Operator reviews held batches, sees the manifests of all scopes, and can end the server.
	Operator
)

var roleNames = [...]string{"agent", "host", "operator"}

// share returns how much of a limit a role may fill, so that an agent cannot take the room in which an operator ends the server.
func (r Role) share(limit int) int {
	switch r {
	case Agent:
		return limit - limit/4
	case Host:
		return limit - limit/8
	}
	return limit
}

// room refuses one more of something limited. Callers of one scope may fill half of their role's share, so one tenant leaves room for others.
func (r Role) room(what string, taken, own, limit int, hint string) error {
	switch most := r.share(limit); {
	case taken >= most:
		return refuse("full", fmt.Sprintf("%d %s, which is the limit for the role %s", taken, what, r), hint)
	case r != Operator && own >= (most+1)/2:
		return refuse("full", fmt.Sprintf("%d %s in this scope, which is the limit for one scope", own, what), hint)
	}
	return nil
}

// String is the name of a role, as hello and headers have it.
func (r Role) String() string { return roleNames[r] }

// ParseRole reads the name of a role. ErrInvalid.
func ParseRole(name string) (Role, error) {
	for r, n := range roleNames {
		if n == name {
			return Role(r), nil
		}
	}
	return 0, store.Invalid("role", fmt.Sprintf("%.40q", name), "agent, host or operator")
}

// The headers of a caller.
const (
	headerKey     = "Ctxpage-Key"   // from hello
	headerScope   = "Ctxpage-Scope" // instead of a key: the caller of this call alone
	headerActor   = "Ctxpage-Actor"
	headerRole    = "Ctxpage-Role"
	headerTimeout = "Ctxpage-Timeout" // seconds
	headerTrace   = "traceparent"     // of the W3C; events of Options.Observer carry it
)

// caller is the identity of a call. It does not change.
type caller struct {
	key   string // "": named by headers
	scope string
	actor string
	role  Role
	s     *ctxpage.Scope
}

// key is a caller that said hello. It ends with bye, or when no call started for the lease. Guarded by Server.mu; the caller in it
// never changes, so a call uses it without a lock.
type key struct {
	caller
	timer *time.Timer
}

// granted returns the highest role of a request. Over TCP the request must name a local host: a page in a browser may have bound
// another name to this machine.
func (s *Server) granted(r *http.Request) (Role, error) {
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && strings.HasPrefix(addr.Network(), "tcp") && !localHost(r.Host) {
		return 0, refuse("host", fmt.Sprintf("host %.100q is not local", r.Host), "call 127.0.0.1 or localhost")
	}
	if len(s.opts.Tokens) == 0 {
		return s.opts.Grant, nil
	}
	scheme, given, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	ok = ok && strings.EqualFold(scheme, "Bearer") // in any case, as RFC 9110 says
	role, found := Role(0), false
	for token, most := range s.opts.Tokens { // all are compared, so that the time tells nothing
		if subtle.ConstantTimeCompare([]byte(given), []byte(token)) == 1 {
			role, found = most, true
		}
	}
	if !ok || !found {
		return 0, refuse("unauthorized", "no bearer token of this server", "send the header Authorization: Bearer TOKEN")
	}
	return role, nil
}

// localHost reports whether a name with or without a port stands for this machine.
func localHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// callerOf finds the caller: the owner of the key, or the one that the headers name.
func (s *Server) callerOf(r *http.Request, most Role) (*caller, error) {
	h := r.Header
	if id := h.Get(headerKey); id != "" {
		return s.holder(id, h, most)
	}
	if h.Get(headerScope) == "" {
		return nil, refuse("scope", "the call names no scope", "send the header "+headerKey+" from hello, or "+headerScope+" and "+headerActor)
	}
	return s.bind(helloIn{Scope: h.Get(headerScope), Actor: h.Get(headerActor), Role: h.Get(headerRole)}, most)
}

// holder returns the caller of a key. Headers beside it must agree with it: a program that forwards a model's headers would otherwise
// let the model name its scope. A key above the connection's role counts as unknown, so nobody learns that it exists.
func (s *Server) holder(id string, h http.Header, most Role) (*caller, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[id]
	if k == nil || k.role > most {
		return nil, refuse("key", "the key is not known, or has expired", "say hello again")
	}
	for _, is := range [...]struct{ name, bound string }{{headerScope, k.scope}, {headerActor, k.actor}, {headerRole, k.role.String()}} {
		if given := h.Get(is.name); given != "" && given != is.bound {
			return nil, refuse("scope", fmt.Sprintf("%s: %.100q is not what the key is bound to", is.name, given), "leave the header out, or say hello for another key")
		}
	}
	k.timer.Reset(s.opts.Lease)
	return &k.caller, nil
}

type helloIn struct {
	Scope string `json:"scope" jsonschema:"the scope to work in; its ancestors can be read too"`
	Actor string `json:"actor,omitempty" jsonschema:"name of the caller, for manifests and reviews; default: the scope"`
	Role  string `json:"role,omitempty" jsonschema:"agent (default), host or operator"`
}

type helloOut struct {
	Key     string `json:"key" jsonschema:"send it as the header Ctxpage-Key with each call"`
	Scope   string `json:"scope"`
	Actor   string `json:"actor"`
	Role    string `json:"role"`
	Version int    `json:"version" jsonschema:"of the calls"`
	Lease   int    `json:"lease_s" jsonschema:"seconds without a call after which the key ends"`
}

// bind makes a caller. It is the only place where a role becomes rights: an agent gets a gated Scope, so its writes pass the gate
// whatever call it makes.
func (s *Server) bind(in helloIn, most Role) (*caller, error) {
	role, err := Agent, error(nil)
	if in.Role != "" {
		if role, err = ParseRole(in.Role); err != nil {
			return nil, err
		}
	}
	if err := store.CheckScope(in.Scope); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Scope) != in.Scope { // a header cannot name it
		return nil, refuse("scope", fmt.Sprintf("scope %.100q begins or ends with a space", in.Scope), "a name that a header can carry, or name it from a Go program")
	}
	if w := s.opts.Within; w != "" && in.Scope != w && !strings.HasPrefix(in.Scope, w+"/") {
		return nil, refuse("scope", fmt.Sprintf("scope %.100q is not served", in.Scope), "name "+w+" or a scope below it")
	}
	if role > most {
		return nil, refuse("role", fmt.Sprintf("role %s is not granted to this caller, only %s", role, most), "ask for less, or connect where the role is granted")
	}
	actor := in.Actor
	if actor == "" {
		actor = in.Scope
	}
	opts := []ctxpage.ScopeOption{ctxpage.WithActor(actor)}
	if role == Agent {
		opts = append(opts, ctxpage.Gated())
		if s.opts.Evaluator != nil {
			opts = append(opts, ctxpage.JudgedBy(s.opts.Evaluator))
		}
	}
	return &caller{scope: in.Scope, actor: actor, role: role, s: s.db.Scope(in.Scope, opts...)}, nil
}

// hello makes a key for a caller: 128 random bits. Whoever shows the key is the caller.
func (s *Server) hello(in helloIn, most Role) (helloOut, error) {
	c, err := s.bind(in, most)
	if err != nil {
		return helloOut{}, err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	c.key = hex.EncodeToString(id[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	own := 0
	for _, k := range s.keys {
		if k.scope == c.scope {
			own++
		}
	}
	if err := c.role.room("keys are in use", len(s.keys), own, maxKeys, "say bye when a key is no longer needed"); err != nil {
		return helloOut{}, err
	}
	s.keys[c.key] = &key{caller: *c, timer: time.AfterFunc(s.opts.Lease, func() { s.bye(c.key) })}
	return helloOut{c.key, c.scope, c.actor, c.role.String(), Version, int(s.opts.Lease / time.Second)}, nil
}

// bye ends a key and rolls back its open transactions. A begin that runs meanwhile may keep its transaction until its lease ends.
func (s *Server) bye(id string) {
	s.mu.Lock()
	k := s.keys[id]
	delete(s.keys, id)
	var open []*openTxn
	for name, t := range s.txns {
		if name.key == id && k != nil {
			open = append(open, t)
			delete(s.txns, name)
		}
	}
	s.mu.Unlock()
	if k != nil {
		k.timer.Stop()
	}
	for _, t := range open {
		t.drop()
	}
}

// dropKeys ends all keys and transactions.
func (s *Server) dropKeys() {
	s.mu.Lock()
	keys, open := s.keys, s.txns
	s.keys, s.txns = map[string]*key{}, map[txnName]*openTxn{}
	s.mu.Unlock()
	for _, k := range keys {
		k.timer.Stop()
	}
	for _, t := range open {
		t.drop()
	}
}
