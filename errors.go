package ctxpage

import (
	"github.com/ctxpage/ctxpage/session"
)

// ErrHeadroom is matched by the *session.HeadroomError of a commit that would leave more in a session's window than
// its usable part, although everything that may be compacted was: one turn alone, or what is protected, is too much.
var ErrHeadroom = session.ErrHeadroom
