package via_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
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
			x, y, err := emulator.Pair(c.options)
			if err != nil {
				t.Fatal(err)
			}
			quiet := slog.New(slog.DiscardHandler)
			return openDevice(t, x, via.Options{Policy: c.a, Logger: quiet}), openDevice(t, y, via.Options{Policy: c.b, Logger: quiet})
		})
	}
}

// TestPolicyRefused: what a NIC cannot have keeps it from being opened, and
// changes nothing on one that is open.
func TestPolicyRefused(t *testing.T) {
	for name, c := range map[string]struct {
		p    via.Policy
		want []error
		says string
	}{
		"unknown":  {via.Policy{Name: "warp"}, []error{via.ErrInvalidParameter, pipeline.ErrUnknownPolicy}, "hierarchical"},
		"misplace": {via.Policy{Name: "table"}, []error{via.ErrInvalidParameter}, "host only"},
		"off line": {via.Policy{Name: "optimal", At: via.AtHost}, []error{via.ErrInvalidParameter}, "one platform"},
		"size":     {via.Policy{Name: "amp", MinPulseSend: 1 << 20}, []error{via.ErrInvalidParameter}, "65536"},
	} {
		if n, err := via.Open(t.Context(), "emu:", via.Options{Policy: c.p}); n != nil || err == nil {
			t.Errorf("%s: opened, %v", name, err)
		}
		a, _ := conform.OnMemory(t, "", via.Options{})
		before, err := a.Policy()
		if err != nil {
			t.Fatal(err)
		}
		err = a.SetPolicy(c.p)
		for _, want := range c.want {
			var e *via.Error
			if !errors.Is(err, want) || !errors.As(err, &e) || e.Op != "set policy" || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if after, err := a.Policy(); after != before || err != nil {
			t.Errorf("%s: %+v, %v", name, after, err)
		}
	}
}

// TestPolicyChanges: the policy is changed, and its place, while messages flow.
func TestPolicyChanges(t *testing.T) {
	for _, options := range []string{"", "&engine=thread"} {
		a, b := conform.OnMemory(t, options, via.Options{})
		p := newPingPong(t, conform.NewWorld(t, a, b), 30_000)
		for i := range 60 {
			policies := []via.Policy{
				{}, {At: via.AtHost}, {Name: "static"}, {Name: "auto", At: via.AtHost}, {Name: "store-and-forward", At: via.AtHost}, {Name: "auto"},
			}
			if err := errors.Join(a.SetPolicy(policies[i%6]), b.SetPolicy(policies[i/6%6])); err != nil {
				t.Fatal(err)
			}
			p.bothRound(t)
		}
		for _, n := range []*via.NIC{a, b} {
			if s, err := n.Policy(); err != nil || s.Fallback != nil || s.Pump.BadProgress != 0 {
				t.Errorf("%+v, %v", s, err)
			}
		}
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
				if err := n.EnableDMALog(1000); err != nil {
					t.Fatal(err)
				}
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
				if err := n.DisableDMALog(); err != nil {
					t.Error(err)
				}
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
