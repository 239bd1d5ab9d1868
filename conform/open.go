package conform

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// quiet keeps what tests provoke out of their output.
func quiet(o via.Options) via.Options {
	o.Logger = slog.New(slog.DiscardHandler)
	return o
}

// OpenNIC opens a NIC that logs nothing, and closes it when the test ends, unless the test has.
func OpenNIC(t T, address string, o via.Options) *via.NIC {
	t.Helper()
	nic := Must(via.Open(Context(t), address, quiet(o)))(t)
	closeAtEnd(t, nic)
	return nic
}

// OpenDevice is OpenNIC for a device, which is the NIC's from then on.
func OpenDevice(t T, d vfio.Device, o via.Options) *via.NIC {
	t.Helper()
	nic := Must(via.OpenDevice(Context(t), d, quiet(o)))(t)
	closeAtEnd(t, nic)
	return nic
}

var wires atomic.Uint32

// OnMemory opens two emulated NICs on a memory wire of their own, as OpenNIC does; options
// start with "&". The test imports the emulator.
func OnMemory(t T, options string, o via.Options) (a, b *via.NIC) {
	t.Helper()
	address := fmt.Sprintf("emu:?wire=mem:conform-%d%s", wires.Add(1), options)
	return OpenNIC(t, address, o), OpenNIC(t, address, o)
}
