package cli

import (
	"context"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/via"
)

// openPair opens two emulated NICs of this process.
func openPair(ctx context.Context, opts via.Options) (a, b *via.NIC, err error) {
	return peer.OpenPair(ctx, opts, emulator.PairOptions{})
}

// closing closes a NIC and adds its error to *err if there is none yet.
func closing(nic *via.NIC, err *error) {
	if cerr := nic.Close(); *err == nil {
		*err = cerr
	}
}
