package remote

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// PROTOCOL.md names every call, every refusal and every kind of frame, and there is a call for every method of the seam.
func TestProtocolIsDocumented(t *testing.T) {
	t.Parallel()
	b := must(os.ReadFile("../../PROTOCOL.md"))(t)
	doc := string(b)
	for name := range methods {
		require.Contains(t, doc, "`"+name+"`")
	}
	for _, code := range []string{refusedSession, refusedMethod, refusedBody, refusedCall, refusedFull, refusedStop, refusedClosing} {
		require.Contains(t, doc, "| `"+code+"` |")
	}
	for _, kind := range []byte{frameEnd, framePart, frameError, frameProgress, frameCall, frameRefused} {
		require.Contains(t, doc, "| `"+string(kind)+"` |")
	}
	for _, name := range []string{"Hello", "Bye", "Status", "Stop", "Wait"} {
		require.Contains(t, doc, "`"+name+"`")
	}
	require.Contains(t, doc, strings.TrimSpace(greeting))
	here := map[string]bool{"Mark": true, "Release": true, "Close": true, "Audit": true, "Audit.DB": true} // answered by the client
	for _, face := range []struct {
		prefix string
		of     reflect.Type
	}{{"", reflect.TypeFor[store.Store]()}, {"Audit.", reflect.TypeFor[store.Audit]()}} {
		for i := range face.of.NumMethod() {
			name := face.prefix + face.of.Method(i).Name
			_, ok := methods[name]
			require.True(t, ok || here[name], "no call for %s", name)
		}
	}
}
