package vi

import (
	"slices"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
)

// way is a wire that loses nothing: that of the port, or the one to a peer.
type way struct {
	core.Lossless
	seen   uint32 // its number at the last look
	users  int    // connections over it
	flight flight
	aloft  bool // it is in ways.aloft
}

// ways are those over which there are connections.
type ways struct {
	all   []*way
	aloft []*way // with messages under way
}

// flight are the messages that have left over a wire that loses nothing, oldest first:
// it takes frames in the order of their marks.
type flight struct {
	messages []flying
	first    int // the oldest of them
}

// flying is a message that has left.
type flying struct {
	ep   *core.Endpoint
	era  uint32 // of ep when it left
	psn  uint32 // behind its last frame
	mark uint32 // of the wire behind its last frame
}

// push appends a message. There are about as many as the wire has room for frames, for
// which memory is made once.
func (f *flight) push(m flying) {
	if len(f.messages) == cap(f.messages) && f.first > len(f.messages)/2 {
		f.messages, f.first = f.messages[:copy(f.messages, f.messages[f.first:])], 0
	}
	f.messages = append(f.messages, m)
}

// clear forgets the messages under way.
func (f *flight) clear() { f.messages, f.first = f.messages[:0], 0 }

// Clear forgets the wires.
func (k *Transport) Clear() { *k.wires = ways{} }

// use has one more connection use a wire, whose number is seen.
func (w *ways) use(wire core.Lossless, seen uint32) *way {
	for _, u := range w.all {
		if u.Lossless == wire {
			u.users++
			return u
		}
	}
	u := &way{Lossless: wire, seen: seen, users: 1}
	w.all = append(w.all, u)
	return u
}

// leave ends what use began.
func (w *ways) leave(u *way) {
	if u.users--; u.users == 0 {
		w.all = slices.DeleteFunc(w.all, func(other *way) bool { return other == u })
	}
}
