package engine

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// mailbox is a port on which frames wait.
type mailbox struct {
	Port
	frames   [][]byte
	released int
}

func (m *mailbox) Receive() []byte {
	if m.released == len(m.frames) {
		return nil
	}
	return m.frames[m.released]
}
func (m *mailbox) Release() { m.released++ }

func newTestReceiver(demultiplex func(*datasheet.Header, []byte) verdict) (*receiver, *mailbox) {
	m := &mailbox{}
	c := &core{link: link{port: m, mac: datasheet.MAC{2, 0, 0, 0, 0, 1}}}
	return &receiver{core: c, demultiplex: demultiplex, lane: func([]byte) bool { return false }, raw: func([]byte) {}}, m
}

// TestReceive: sound frames for this NIC go to whom they are for, each with the payload
// that its header states, and all others are counted and dropped.
func TestReceive(t *testing.T) {
	var payloads []int
	rx, m := newTestReceiver(func(_ *datasheet.Header, payload []byte) verdict {
		payloads = append(payloads, len(payload))
		return taken
	})
	for _, change := range []func(h *datasheet.Header){
		func(*datasheet.Header) {},
		func(h *datasheet.Header) { h.Destination[5]++ },
		func(h *datasheet.Header) { h.Version++ },
		func(h *datasheet.Header) { h.Length = 21 },
		func(h *datasheet.Header) { h.Flags = datasheet.FrameReference }, // on a wire that lends nothing
		func(h *datasheet.Header) { h.Flags = datasheet.FrameChecksum },  // which is wrong
		func(h *datasheet.Header) { h.Length = 7 },
	} {
		frame := aligned(datasheet.HeaderSize + 20)
		h := datasheet.HeaderAt(frame)
		*h = datasheet.Header{Destination: rx.mac, Type: datasheet.FrameData, Length: 20}
		rx.sign(h)
		change(h)
		m.frames = append(m.frames, frame)
	}
	m.frames = append(m.frames, aligned(datasheet.HeaderSize)[:13])
	if !rx.receive() || m.released != len(m.frames) {
		t.Fatalf("%d of %d frames were released", m.released, len(m.frames))
	}
	if len(payloads) != 2 || payloads[0] != 20 || payloads[1] != 7 {
		t.Errorf("payloads of %v bytes arrived", payloads)
	}
	if got, want := rx.own[datasheet.CounterFramesDropped], uint64(len(m.frames)-2); got != want {
		t.Errorf("%d frames were dropped, not %d", got, want)
	}
	if rx.own[datasheet.CounterFramesReceived] != 2 || rx.own[datasheet.CounterChecksumErrors] != 1 {
		t.Errorf("counters %v", rx.own)
	}
	if rx.receive() {
		t.Error("there was another frame")
	}
}

// TestReceiveBudget: a step takes no more frames than its budget, and none while a
// program is exchanged that was to see them.
func TestReceiveBudget(t *testing.T) {
	rx, m := newTestReceiver(nil)
	m.frames = make([][]byte, receiveBudget+1)
	for i := range m.frames {
		m.frames[i] = aligned(1)
	}
	rx.waiting = HookPulseReceive.Set()
	if rx.receive() || m.released != 0 {
		t.Fatalf("%d frames were taken", m.released)
	}
	rx.waiting = 0
	for _, want := range []int{receiveBudget, receiveBudget + 1} {
		if !rx.receive() || m.released != want {
			t.Errorf("%d frames were taken, not %d", m.released, want)
		}
	}
}
