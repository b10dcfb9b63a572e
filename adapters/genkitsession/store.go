// Package genkitsession keeps Genkit's sessions in a scope.
//
//	sessions := genkitsession.New[State](db.Scope("acme/sessions"))
//	s, err := session.New(ctx, session.WithID[State]("chat-1"), session.WithStore[State](sessions))
//
// A session is a page of kind tool: data of the framework, not facts. Give sessions a scope of their own. Every state that
// was saved stays as a version of its page until gc, so yesterday's state can be read again.
package genkitsession

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
	"github.com/firebase/genkit/go/core/x/session"
)

// Store keeps sessions whose state is of type S. It is safe for concurrent use, also by several processes on one database. Of
// two saves the later one wins, as in Genkit's own store.
type Store[S any] struct{ scope *ctxpage.Scope }

var _ session.Store[struct{}] = (*Store[struct{}])(nil)

// New makes a store in a scope of the host. A gated scope refuses every save with store.ErrGated.
func New[S any](scope *ctxpage.Scope) *Store[S] { return &Store[S]{scope} }

const item = "item" // the type of the part with the session as JSON

// idOf returns the id of the page of a session.
func idOf(sessionID string) string {
	name := url.PathEscape(sessionID)
	if len(name) > 100 {
		name = fmt.Sprintf("~%x", sha256.Sum256([]byte(sessionID)))
	}
	return "session/" + name
}

// Get returns a session; nil: there is none. Sessions of the scopes above are not seen.
func (s *Store[S]) Get(ctx context.Context, sessionID string) (*session.Data[S], error) {
	v, err := s.scope.Get(ctx, idOf(sessionID))
	if errors.Is(err, store.ErrNotFound) || err == nil && v.Ref.Scope != s.scope.Name() {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("genkitsession: session %q: %w", sessionID, err)
	}
	for _, p := range v.Parts {
		if p.Type == item {
			var data session.Data[S]
			if err := json.Unmarshal([]byte(p.Text), &data); err != nil {
				return nil, fmt.Errorf("genkitsession: %s has a state that is no %T: %w", v.Ref, data.State, err)
			}
			return &data, nil
		}
	}
	return nil, fmt.Errorf("genkitsession: %s is no session: another program wrote it; give sessions a scope of their own", v.Ref)
}

// Save writes a session, of at most 16 MiB as JSON; nil deletes it.
func (s *Store[S]) Save(ctx context.Context, sessionID string, data *session.Data[S]) error {
	id := idOf(sessionID)
	if data == nil {
		if err := s.scope.Delete(ctx, id); err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("genkitsession: session %q: %w", sessionID, err)
		}
		return nil
	}
	body, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("genkitsession: the state of session %q is no JSON: %w", sessionID, err)
	}
	_, err = s.scope.Put(ctx, ctxpage.Artefact{ID: id, Kind: store.KindTool, Parts: []store.Part{{Type: item, Text: string(body)}}})
	if err != nil {
		return fmt.Errorf("genkitsession: session %q: %w", sessionID, err)
	}
	return nil
}
