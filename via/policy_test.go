package via_test

import (
	"log/slog"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// TestPolicyConformance runs the suite with delivery policies in both places, also
// with NICs that do not agree. TestConformance has more of them.
func TestPolicyConformance(t *testing.T) {
	// A pulse for each small frame of the largest message takes its time.
	limits := engine.DefaultLimits()
	limits.Transfer = 256 << 10
	atHost := func(name string) via.Policy { return via.Policy{Name: name, At: via.AtHost} }
	for i, c := range []struct {
		name    string
		a, b    via.Policy
		when    when
		options emulator.PairOptions
	}{
		{"store and forward in the NIC", via.Policy{Name: "store-and-forward"}, via.Policy{Name: "store-and-forward"}, always, emulator.PairOptions{}},
		{"small pulses in the NIC", via.Policy{Name: "static", MinPulseSend: 48, MinPulseReceive: 48}, via.Policy{Name: "auto"}, inSoak, emulator.PairOptions{}},
		{"auto in the NIC, threads", via.Policy{Name: "auto"}, via.Policy{Name: "auto"}, inSoak, emulator.PairOptions{Threads: true}},
		{"AMP at the host, threads", atHost(""), atHost(""), always, emulator.PairOptions{Threads: true}},
		{"store and forward at the host, small frames", atHost("store-and-forward"), via.Policy{Name: "eager", MinPulseReceive: 17, At: via.AtHost}, inSoak,
			emulator.PairOptions{MTU: datasheet.MinMTU, Limits: limits}},
		{"schedules at the host, threads, mapped doorbells", atHost("hierarchical"), atHost("table"), inSoak,
			emulator.PairOptions{Threads: true, Doorbells: emulator.DoorbellsMapped}},
		{"one at the host, one in the NIC", atHost("auto"), via.Policy{Name: "cut-through", MinPulseSend: 1000}, inSoak, emulator.PairOptions{}},
	} {
		part := c.when.part(conform.VIs(), i, false)
		if len(part) == 0 {
			continue
		}
		part.Run(t, c.name, func(t *testing.T) (a, b *via.NIC) {
			x, y := must.Two(emulator.Pair(c.options))(t)
			quiet := slog.New(slog.DiscardHandler)
			return openDevice(t, x, via.Options{Policy: c.a, Logger: quiet}), openDevice(t, y, via.Options{Policy: c.b, Logger: quiet})
		})
	}
}
