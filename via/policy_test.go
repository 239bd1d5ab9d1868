package via_test

import (
	"log/slog"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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

// TestDMALog logs a message on two NICs: each engine moved all of it.
func TestDMALog(t *testing.T) {
	const size = 50_000
	for name, opts := range map[string]via.Options{"in the NIC": {}, "at the host": via.Options{Policy: via.Policy{At: via.AtHost}}} {
		a, b := conform.OnMemory(t, "", opts)
		p := newPingPong(t, conform.NewWorld(t, a, b), size)
		p.bothRound(t)
		logOnce := func() (once bool) {
			for _, n := range []*via.NIC{a, b} {
				must.OK(t, n.EnableDMALog(1000))
			}
			p.bothRound(t)
			once = true
			for _, n := range []*via.NIC{a, b} {
				records := make([]via.DMARecord, 1000)
				count, err := n.ReadDMALog(records)
				if err != nil || count == 0 {
					t.Fatal(count, err)
				}
				var bytes, packets [4]int
				for _, r := range records[:count] {
					bytes[r.Engine] += r.Bytes
					packets[r.Engine] = max(packets[r.Engine], r.Packet+1)
				}
				want := [4]int{size, size, size, size}
				once = once && bytes == want && packets[0] == packets[1] && packets[2] == packets[3] && packets[0] > 1
				t.Logf("%s: %v bytes in %v packets", name, bytes, packets)
				if s, err := n.DMALog(); err != nil || !s.Enabled || s.Records != 1024 || s.Lost != 0 {
					t.Errorf("%+v, %v", s, err)
				}
				should.OK(t, n.DisableDMALog())
			}
			return once
		}
		// On a busy machine frames may be sent again, and then there are more.
		for tries := 1; !logOnce(); tries++ {
			if tries == 20 {
				t.Fatalf("%s: never does each engine move the message once", name)
			}
		}
	}
}
