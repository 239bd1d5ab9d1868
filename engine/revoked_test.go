package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// machines runs a test over a wire that loses nothing, and over one that might.
func machines(t *testing.T, f func(t *testing.T, options ...option)) {
	t.Run("exact", func(t *testing.T) { f(t, exactly(nil)) })
	t.Run("acknowledged", func(t *testing.T) { f(t) })
}

// TestRevokedPayloadEntry: an entry of the payload table ends with its region.
func TestRevokedPayloadEntry(t *testing.T) {
	machines(t, func(t *testing.T, options ...option) {
		w, v, p := pair(t, nil, options...)
		data := w.b.memory(0, 0)
		buf, at, _ := w.b.alloc(100)
		do(w.b, datasheet.OpSetPayload, datasheet.SetPayloadBody{Endpoint: p.id, Entry: 1, Handle: data, Address: at, Length: 100})
		steer := &scripted{t: t, demux: func(_ []byte, queue uint32) (uint32, uint32, bool) { return queue, 1, true }}
		w.b.e.Exclusive(func() { w.b.e.SetProcessor(steer, engine.HookDemultiplex.Set(), 0) })
		if sent, received, _ := message(v, p, pattern(100, 1)); sent.Failed() || received.Failed() {
			t.Fatal(sent, received)
		}
		mustEqual(t, buf, pattern(100, 1))
		clear(buf)
		deregister(w.b, data)
		sent, received, _ := message(v, p, pattern(100, 2))
		if sent&datasheet.StatusRemoteDescriptor == 0 || received&datasheet.StatusProtectionError == 0 {
			t.Errorf("%v, %v", sent, received)
		}
		mustEqual(t, buf, make([]byte, 100))
	})
}
