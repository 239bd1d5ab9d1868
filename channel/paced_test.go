package channel_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// paced is an end of a memory wire on which frames come no faster than a link brings them:
// each a while after the one before, by its length. Those that wait fill the memory wire.
type paced struct {
	*wire.Memory
	gbits int // per second
	start time.Time
	idle  time.Duration // since start: when the last frame had come
	due   time.Duration // when that comes which is on the link, 0 if there is none
}

func (p *paced) Receive() []byte {
	frame := p.Memory.Receive()
	if frame == nil {
		return nil
	}
	now := time.Since(p.start)
	if p.due == 0 {
		p.due = max(now, p.idle) + time.Duration(len(frame)*8/p.gbits)
	}
	if now < p.due {
		return nil
	}
	return frame
}

func (p *paced) Release() {
	p.idle, p.due = p.due, 0
	p.Memory.Release()
}

// openPaced opens two emulated NICs, engines inline, on a link of so many Gbit/s.
func openPaced(t testing.TB, gbits int) (a, b *via.NIC) {
	t.Helper()
	left, right := must.Two(wire.NewMemory(wire.MemoryOptions{}))(t)
	start := time.Now()
	open := func(w *wire.Memory, last byte) *via.NIC {
		d := must.Get(emulator.New(emulator.Options{Name: "emu:paced", Wire: &paced{Memory: w, gbits: gbits, start: start}, MAC: [6]byte{2, 'P', 0, 0, 0, last}}))(t)
		nic := must.Get(via.OpenDevice(contextFor(t), d, via.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
		closeLater(t, nic)
		return nic
	}
	return open(left, 1), open(right, 2)
}
