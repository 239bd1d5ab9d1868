package core

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

func newTestReceiver(demultiplex func(*datasheet.Header, []byte) Verdict) (*Receiver, *mailbox) {
	m := &mailbox{}
	c := &Core{link: link{Port: m, MAC: datasheet.MAC{2, 0, 0, 0, 0, 1}}}
	return &Receiver{Core: c, demultiplex: demultiplex, Raw: func(*Receiver, []byte) {}}, m
}

// TestReceive: sound frames for this NIC go to whom they are for, each with the payload
// that its header states, and all others are counted and dropped.
func TestReceive(t *testing.T) {
	var payloads []int
	rx, m := newTestReceiver(func(_ *datasheet.Header, payload []byte) Verdict {
		payloads = append(payloads, len(payload))
		return Taken
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
		frame := Aligned(datasheet.HeaderSize + 20)
		h := datasheet.HeaderAt(frame)
		*h = datasheet.Header{Destination: rx.MAC, Type: datasheet.FrameData, Length: 20}
		rx.sign(h)
		change(h)
		m.frames = append(m.frames, frame)
	}
	m.frames = append(m.frames, Aligned(datasheet.HeaderSize)[:13])
	if !rx.Receive(new(WorkQueue)) || m.released != len(m.frames) {
		t.Fatalf("%d of %d frames were released", m.released, len(m.frames))
	}
	if len(payloads) != 2 || payloads[0] != 20 || payloads[1] != 7 {
		t.Errorf("payloads of %v bytes arrived", payloads)
	}
	if got, want := rx.Own[datasheet.CounterFramesDropped], uint64(len(m.frames)-2); got != want {
		t.Errorf("%d frames were dropped, not %d", got, want)
	}
	if rx.Own[datasheet.CounterFramesReceived] != 2 || rx.Own[datasheet.CounterChecksumErrors] != 1 {
		t.Errorf("counters %v", rx.Own)
	}
	if rx.Receive(new(WorkQueue)) {
		t.Error("there was another frame")
	}
}

// TestReceiveBudget: a step takes no more frames than its budget, and none while a
// program is exchanged that was to see them.
func TestReceiveBudget(t *testing.T) {
	rx, m := newTestReceiver(nil)
	m.frames = make([][]byte, receiveBudget+1)
	for i := range m.frames {
		m.frames[i] = Aligned(1)
	}
	rx.Waiting = HookPulseReceive.Set()
	if rx.Receive(new(WorkQueue)) || m.released != 0 {
		t.Fatalf("%d frames were taken", m.released)
	}
	rx.Waiting = 0
	for _, want := range []int{receiveBudget, receiveBudget + 1} {
		if !rx.Receive(new(WorkQueue)) || m.released != want {
			t.Errorf("%d frames were taken, not %d", m.released, want)
		}
	}
}
