package memif_test

import (
	"os"
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

// TestNICs runs what every pair of NICs must pass over a memif: without ci/memif/run over one that is as
// memifs are by default, and of VIs only what asks much of a wire.
func TestNICs(t *testing.T) {
	for i, tt := range []struct{ name, server, client string }{
		{"interrupts", "", ""},
		{"polling", "&mode=poll&engine=thread", "&mode=poll&engine=thread"},
		{"large frames in chains, several rings", "&mtu=8256", "&mtu=8256&buffer=2048&queues=3"},
		{"large frames in one buffer", "&mtu=8256", "&mtu=8256&buffer=8320&ring=256"},
	} {
		if i > 0 && os.Getenv(required) == "" {
			continue
		}
		open := func(t *testing.T) (a, b *via.NIC) {
			wire := "&wire=memif:" + socketPath(t)
			return conform.OpenNIC(t, "emu:?role=server"+wire+tt.server, via.Options{}), conform.OpenNIC(t, "emu:?role=client"+wire+tt.client, via.Options{})
		}
		suite := conform.VIs()
		if os.Getenv(required) == "" {
			suite = slices.DeleteFunc(suite, func(c conform.Check) bool {
				return !slices.Contains([]string{"send-receive", "rdma", "reliability"}, c.Section)
			})
		}
		suite.Run(t, tt.name, open)
		conform.Channels().Run(t, tt.name, open)
	}
}
