package conversation

import (
	"strings"

	"github.com/ctxpage/ctxpage/store"
)

// A packet that a session received is stored as pages of the session: the packet itself, its brief, and one for each turn
// that it names. Their meta says what they came from, so that an erase of that finds them:
//
//	handoff   packet, brief, or the form in which the turn stood in the window of the sender
//	from      the session that handed on, of the packet and its brief
//	ref       the turn, of a page for a turn
const (
	packetMark = "handoff"
	packetFrom = "from"
	packetRef  = "ref"

	packetWhole = "packet"
	packetBrief = "brief"
	briefSuffix = "-brief"
)

// PacketMeta is the meta of a packet that a session handed on, and of its brief.
func PacketMeta(brief bool, from string) map[string]string {
	meta := map[string]string{packetMark: packetWhole}
	if brief {
		meta[packetMark] = packetBrief
	}
	if ref, err := store.ParseRef(from); err == nil && ref.Page == 0 && ref.Version == 0 {
		meta[packetFrom] = ref.String()
	}
	return meta
}

// BriefID is the id of the brief of a packet.
func BriefID(packet string) string { return packet + briefSuffix }

// Received tells of a page to which packet it belongs, "" if to none, and what it says that it came from.
func Received(h *store.Head) (packet string, from, turn store.Ref) {
	switch mark := h.Meta[packetMark]; {
	case mark == "" || h.Kind != store.KindScratch || h.Group == "":
		return "", from, turn
	case mark == packetWhole:
		packet = h.ID
	case mark == packetBrief:
		packet = strings.TrimSuffix(h.ID, briefSuffix)
	default:
		packet = h.ID[:max(strings.LastIndexByte(h.ID, '-'), 0)]
	}
	from, _ = store.ParseRef(h.Meta[packetFrom])
	turn, _ = store.ParseRef(h.Meta[packetRef])
	return packet, from, turn
}
