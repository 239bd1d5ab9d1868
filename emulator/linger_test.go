package emulator_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/cable"
	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/emulator"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
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
	leaktest.Parallel(t)
	for _, c := range []struct {
		name  string
		looks int32
		taken bool
	}{{"nothing sent", 0, true}, {"a peer that polls", 3, true}, {"a peer that does not look", 1 << 30, false}} {
		t.Run(c.name, func(t *testing.T) {
			x, y := must.Two(wire.NewMemory(wire.MemoryOptions{}))(t)
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

// TestNICStation: the station is the NIC's address unless the address says another.
func TestNICStation(t *testing.T) {
	own := datasheet.MAC{2, 'c', 'a', 'b', 'l', 'A'}
	for options, want := range map[string]datasheet.MAC{"": own, "?mac=02:00:00:00:00:09": {2, 0, 0, 0, 0, 9}} {
		nics := must.Get(emulator.Fleet(context.Background(), "eth:cable:station"+options, []string{"served"}))(t)
		if m := nics[0].MAC(); m != want || m != cable.End("station", 0).MAC() {
			t.Errorf("%q: station %v, the NIC has %v", options, m, cable.End("station", 0).MAC())
		}
		closeDevice(t, nics[0])
	}
}

// TestNICFleet: a NIC is one end of a wire, for one NIC behind a socket.
func TestNICFleet(t *testing.T) {
	for _, address := range []string{"eth:cable:fleet", "emu:?wire=cable:fleet"} {
		if d, err := emulator.Fleet(context.Background(), address, []string{"a", "b"}); d != nil || !errors.Is(err, vfio.ErrBadAddress) || !strings.Contains(err.Error(), "a NIC as wire takes one NIC") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

const (
	// brief is how long a test waits for what must not come.
	brief = 20 * time.Millisecond
	// timeout bounds waits for what must come.
	timeout = time.Minute
)
