package channeltest

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/leaktest"
	"github.com/trapeze-nic/trapeze/internal/soak"
	"github.com/trapeze-nic/trapeze/internal/via/viatest"
	"github.com/trapeze-nic/trapeze/via"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestWires runs the suite over wires that lose nothing, where nothing may be excused by
// losses, and over such as lose, double, reorder and damage frames more than those of via's
// table do.
func TestWires(t *testing.T) {
	for i, c := range []struct {
		options string
		lossy   bool
	}{
		{"", false},
		{"&loss=0&corrupt=0", false}, // with checksums
		{"&loss=0.2&seed=2", true},
		{"&engine=thread&loss=0.2&duplicate=0.1&reorder=0.1&corrupt=0.05&seed=3", true},
	} {
		if c.lossy && testing.Short() || i == 3 && !soak.Wanted() {
			continue
		}
		before := excuses.Load()
		Run(t, "emulated"+c.options, func(t *testing.T) (a, b *via.NIC) {
			address := fmt.Sprintf("emu:?wire=mem:channeltest-%d%s", i, c.options)
			open := func() *via.NIC {
				nic, err := via.Open(viatest.Context(t), address, via.WithLogger(slog.New(slog.DiscardHandler)))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := nic.Close(); err != nil && !errors.Is(err, via.ErrClosed) {
						t.Error(err)
					}
				})
				return nic
			}
			return open(), open()
		})
		if excused := excuses.Load() - before; excused > 0 != c.lossy {
			t.Errorf("%q: %d times something was excused by losses", c.options, excused)
		}
	}
}
