package conform

import (
	"bytes"
	"sync"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// frame is one that crosses the wire.
type frame struct {
	*datasheet.Header
	bytes []byte
}

// extension is that of a frame of RDMA.
func (f frame) extension() *datasheet.Extension {
	return datasheet.ExtensionAt(f.bytes[datasheet.HeaderSize:])
}

// forged is a copy of the frame, of its first size bytes, in which change changes what it likes.
func (f frame) forged(size int, change func(*datasheet.Header)) []byte {
	b := bytes.Clone(f.bytes[:size])
	h := datasheet.HeaderAt(b)
	change(h)
	if h.Flags&datasheet.FrameChecksum != 0 {
		h.Checksum = datasheet.FrameChecksumOf(b)
	}
	return b
}

// probe is a probe of the connection that the frame belongs to.
func (f frame) probe() []byte {
	return f.forged(datasheet.HeaderSize, func(h *datasheet.Header) {
		h.Type, h.Flags, h.Length = datasheet.FrameProbe, h.Flags&datasheet.FrameChecksum, 0
		h.Message, h.Extent, h.Offset = 0, 0, 0
	})
}

// acknowledges reports whether the frame says that a PSN has arrived.
func (f frame) acknowledges(psn uint32) bool {
	switch f.Type {
	case datasheet.FrameData, datasheet.FrameProbe:
		return int32(f.Ack-psn) > 0
	case datasheet.FrameAck:
		have, ahead := uint64(f.Offset)<<32|uint64(f.Extent), psn-f.Ack-1
		return int32(f.Ack-psn) > 0 || ahead < 64 && have>>ahead&1 != 0
	}
	return false
}

// ends reports whether the frame is the last one of its message, or the last but one.
func (f frame) ends() (last, lastButOne bool) {
	left := f.Extent - f.Offset - uint32(f.Length)
	return left == 0, left > 0 && left <= uint32(f.Length)
}

// faultyWire is the wire at the end of the second NIC.
type faultyWire struct {
	mu    sync.Mutex
	rule  func(sent bool, f frame) [][]byte // says what crosses; nil: what was sent
	idle  func() [][]byte                   // says what is sent when nothing has come
	wrong string                            // what the rule has seen that may not be
}

func (w *faultyWire) filter(sent bool, b []byte) [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b == nil {
		if w.idle == nil {
			return nil
		}
		return w.idle()
	}
	if h := datasheet.HeaderAt(b); h != nil && w.rule != nil {
		return w.rule(sent, frame{h, b})
	}
	return [][]byte{b}
}

// set makes a rule hold from now on; nil ends it.
func (w *faultyWire) set(rule func(sent bool, f frame) [][]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rule, w.idle = rule, nil
}

// untilRule waits for what the rule of the wire notes. e is an end at that wire.
func (w *World) untilRule(e *End, what string, f func() bool) {
	w.Helper()
	w.Until(what, func() bool {
		Must(e.VI.Query(Context(w)))(w) // a NIC that sleeps looks at its wire for that
		w.wire.mu.Lock()
		defer w.wire.mu.Unlock()
		return w.wire.wrong != "" || f()
	})
	w.wire.mu.Lock()
	defer w.wire.mu.Unlock()
	if w.wire.wrong != "" {
		w.Fatal(w.wire.wrong)
	}
}
