package emulator_test

import (
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/wire"
)

// slowPeer is a wire whose peer takes what was sent after some looks, and which
// notes what is still there when it is closed.
type slowPeer struct {
	wire.Port
	looks atomic.Int32 // until the peer has taken it
	left  atomic.Int32 // when it was closed
}

func (s *slowPeer) Drained() bool { return s.looks.Add(-1) < 0 }

func (s *slowPeer) Close() error {
	s.left.Store(s.looks.Load())
	return s.Port.Close()
}

// TestCloseLingers: a device that is closed leaves its peer time to take what was
// sent, but not for ever.
func TestCloseLingers(t *testing.T) {
	for _, c := range []struct {
		name  string
		looks int32
		taken bool
	}{{"nothing sent", 0, true}, {"a peer that polls", 3, true}, {"a peer that does not look", 1 << 30, false}} {
		t.Run(c.name, func(t *testing.T) {
			x, y, err := wire.NewMemory(wire.MemoryOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer y.Close()
			s := &slowPeer{Port: x}
			s.looks.Store(c.looks)
			closeDevice(t, newDevice(t, func(o *emulator.Options) { o.Wire = s }))
			if taken := s.left.Load() < 0; taken != c.taken {
				t.Errorf("closed with the peer %d looks away", s.left.Load())
			}
		})
	}
}
