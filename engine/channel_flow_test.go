package engine_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestChannelDrops: cells that find the receive FIFO full are dropped and counted for their
// channel, 1023 and more, and the top bit of the count sticks.
func TestChannelDrops(t *testing.T) {
	w := newChannelWorld(t, cellsOf(func(c *engine.Cells) { c.FIFO, c.Stop, c.Start, c.PerFrame, c.NeverStop = 8, 4, 2, 16, true }))
	a, b := w.pair(nil)
	for sent := uint64(0); ; {
		sent++
		a.post(datasheet.PriorityLow, 0, 1023)
		w.run("the end of a message", func() bool { return uint64(a.status().Ended[1]) == sent&0xff })
		w.settle()
		dropped := w.b.e.Counter(datasheet.CounterCellsDropped)
		want := uint16(dropped % 512)
		if dropped >= 512 {
			want |= datasheet.ChannelDropsMany
		}
		must.Be(t, b.received().Drops, want, "%d cells dropped: the count", dropped)
		if dropped > 1600 {
			break
		}
		if sent > 200 {
			t.Fatalf("%d messages, and %d cells dropped", sent, dropped)
		}
	}
	should.Be(t, w.b.e.Counter(datasheet.CounterChannelStops), 0, "the peer was told to stop")
}

// TestChannelStops: a receiver that does not keep up says stop and start, and nothing is lost.
func TestChannelStops(t *testing.T) {
	w := newChannelWorld(t, cellsOf(func(c *engine.Cells) { c.FIFO, c.Stop, c.Start, c.PerFrame = 64, 8, 2, 16 }))
	a, b := w.pair(nil)
	w.settle()
	for i := range uint8(40) {
		b.allow(0, 1023)
		message := pattern(7000, uint64(i))
		a.post(datasheet.PriorityLow, 0, a.put(0, message))
		for range 3 {
			w.a.e.Step()
		}
		w.run("a message", func() bool { return b.received().PDUs == i+1 })
		must.Be(t, b.end(i).Whole(), true, "message %d: %08x", i, b.end(i))
		mustEqual(t, b.at(0, len(message)), message)
	}
	if w.b.e.Counter(datasheet.CounterChannelStops) == 0 || w.b.e.Counter(datasheet.CounterCellsDropped) != 0 {
		t.Errorf("%d stops, %d cells dropped", w.b.e.Counter(datasheet.CounterChannelStops), w.b.e.Counter(datasheet.CounterCellsDropped))
	}
}

// tell has the second NIC say what to the first, with a header like sample.
func (w *channelWorld) tell(what datasheet.FrameType, sample *datasheet.Header) {
	frame := alignedBytes(datasheet.HeaderSize)
	h := datasheet.HeaderAt(frame)
	*h = *sample
	h.Type, h.Length = what, 0
	*w.a.port.in = append(*w.a.port.in, frame)
}

// TestChannelStoppedForEver: a start that was lost is asked for; a peer that answers with stop
// for ever, or not at all, is given up after the dead time, and others are not held up.
func TestChannelStoppedForEver(t *testing.T) {
	for name, spoil := range map[string]func(frame []byte) [][]byte{
		"start lost": nil,
		"stop for ever": func(frame []byte) [][]byte {
			if h := datasheet.HeaderAt(frame); h.Type == datasheet.FrameCellStart {
				h.Type = datasheet.FrameCellStop
			}
			return [][]byte{frame}
		},
		"silence": func(frame []byte) [][]byte {
			if datasheet.HeaderAt(frame).Type == datasheet.FrameCellStart {
				return nil
			}
			return [][]byte{frame}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newChannelWorld(t)
			a, b := w.pair(nil)
			b.allow(0, 1000)
			var sample *datasheet.Header
			w.b.port.spoil = func(frame []byte) [][]byte {
				h := *datasheet.HeaderAt(frame)
				sample = &h
				if spoil != nil {
					return spoil(frame)
				}
				return [][]byte{frame}
			}
			w.run("a frame of the peer's", func() bool { return sample != nil })
			w.tell(datasheet.FrameCellStop, sample)
			w.settle()
			a.post(datasheet.PriorityHigh, 0, 5)
			w.settle()
			must.Be(t, b.received().PDUs, 0, "it did not stop")
			if got := w.a.e.CellLevels(); got.StoppedBy != 1 || got.Transmit != [2]int{1, 0} || w.a.e.Counter(datasheet.CounterStopsTaken) == 0 {
				t.Errorf("%+v, %d stops", got, w.a.e.Counter(datasheet.CounterStopsTaken))
			}
			began := w.now
			w.run("an end", func() bool { return a.status().Ended[0] == 1 })
			took := w.now - began
			if spoil == nil {
				w.settle()
				if b.received().PDUs != 1 || took > 50*time.Millisecond {
					t.Errorf("%+v after %v", b.received(), took)
				}
				return
			}
			dead := engine.DefaultTiming().Dead
			if len(w.a.events) != 1 || w.a.events[0].Detail != uint32(datasheet.ResultConnectionLost) || took < dead || took > dead+time.Second ||
				a.received().Status&datasheet.ChannelConnected != 0 || a.status().Result[0] != datasheet.ChannelNotConnected {
				t.Errorf("%+v after %v, %+v", w.a.events, took, a.status())
			}
		})
	}
}

// TestChannelAsksBeforeRest: an engine that is not stepped for a while asks a peer for an answer, once,
// if cells of low priority wait until it has taken others.
func TestChannelAsksBeforeRest(t *testing.T) {
	w := newChannelWorld(t, exactly(nil))
	a, b := w.pair(nil)
	b.allow(0, 1000)
	w.now += time.Millisecond
	w.settle()
	w.a.e.BeforeIdle() // there is nothing to ask for
	a.post(datasheet.PriorityLow, 0, 900)
	for range 10 {
		w.a.e.Step()
	}
	out, in := w.a.port.out, w.a.port.in
	must.Be(t, len(*out), 2, "frames are under way")
	w.a.e.BeforeIdle()
	w.a.e.BeforeIdle()
	if len(*out) != 3 || datasheet.HeaderAt((*out)[2]).Type != datasheet.FrameProbe {
		t.Fatalf("it asks in %d frames", len(*out)-2)
	}
	for w.b.e.Step() {
	}
	if len(*in) == 0 {
		t.Error("there is no answer")
	}
	w.settle()
	if got := b.received(); got.PDUs != 1 || !b.end(0).Whole() {
		t.Errorf("%+v, %08x", got, b.end(0))
	}
}
