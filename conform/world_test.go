package conform

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// onWire opens two NICs, of which the first one has the port that around makes of its end.
func onWire(t *testing.T, around func(*wire.Memory) wire.Port) *World {
	t.Helper()
	left, right, err := wire.NewMemory(wire.MemoryOptions{})
	OK(t, err)
	open := func(w wire.Port) *via.NIC {
		return OpenDevice(t, Must(emulator.New(emulator.Options{Wire: w}))(t), via.Options{})
	}
	return NewWorld(t, open(around(left)), open(right))
}

// forgetful loses what is sent while the link is down, as a wire does that has no other end yet.
type forgetful struct {
	wire.Port
	spare []byte
	lost  int
}

func (f *forgetful) Reserve(n int) []byte {
	if f.spare = nil; f.LinkUp() {
		return f.Port.Reserve(n)
	}
	f.spare = make([]byte, n)
	return f.spare
}

func (f *forgetful) Commit() {
	if f.spare == nil {
		f.Port.Commit()
		return
	}
	f.spare = nil
	f.lost++
}

// TestLinkComesUpLater: what was sent while there was no link excuses nothing afterwards.
func TestLinkComesUpLater(t *testing.T) {
	var port *forgetful
	w := onWire(t, func(m *wire.Memory) wire.Port {
		m.SetLink(false)
		time.AfterFunc(30*time.Millisecond, func() { m.SetLink(true) })
		port = &forgetful{Port: m}
		return port
	})
	w.beginTally()
	x, y := w.channels(channel.Options{})
	w.deliver(x, y, datasheet.PriorityHigh, 0, w.words(5))
	should.Hold(t, !w.lost(), "the wire is said to have lost something: %d frames before there was a link", port.lost)
}

// jammed takes no frame for a while, then one with a cell, and for a while no other such.
type jammed struct {
	wire.Port
	until  time.Time
	passed bool
}

const oneCell = datasheet.HeaderSize + datasheet.CellSize // length of a frame

func (j *jammed) Reserve(n int) []byte {
	const jam = 40 * time.Millisecond
	switch {
	case n != oneCell:
	case j.until.IsZero():
		j.until = time.Now().Add(jam)
		return nil
	case time.Now().Before(j.until):
		return nil
	case !j.passed:
		j.passed, j.until = true, time.Now().Add(jam)
	}
	return j.Port.Reserve(n)
}

// TestCopyUnderWay: a message is sent again while the first copy is slow, over a wire that is
// taken for one that loses frames. The second copy leaves late.
func TestCopyUnderWay(t *testing.T) {
	w := onWire(t, func(m *wire.Memory) wire.Port { return &jammed{Port: m} })
	w.beginTally()
	w.losing.Store(true)
	testChannelOutOfReach(w)
}
