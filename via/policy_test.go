package via_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/via/viatest"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/via"
)

// TestPolicyOfOthers: a provider that moves no data by policies says so.
func TestPolicyOfOthers(t *testing.T) {
	p := &scripted{}
	n, err := via.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"set policy":      func() error { return n.SetPolicy(via.Policy{}) },
		"query policy":    func() error { _, err := n.Policy(); return err },
		"enable DMA log":  func() error { return n.EnableDMALog(16) },
		"disable DMA log": n.DisableDMALog,
		"read DMA log":    func() error { _, err := n.ReadDMALog(nil); return err },
		"query DMA log":   func() error { _, err := n.DMALog(); return err },
	}
	for op, call := range calls {
		var e *via.Error
		if err := call(); !errors.Is(err, via.ErrNotSupported) || !errors.As(err, &e) || e.Op != op || e.Device != "scripted" {
			t.Errorf("%s: %v", op, err)
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for op, call := range calls {
		if err := call(); !errors.Is(err, via.ErrClosed) {
			t.Errorf("%s after Close: %v", op, err)
		}
	}
	q := &scripted{}
	if n, err := via.New(t.Context(), q, via.WithPolicy(via.Policy{})); n != nil || !errors.Is(err, via.ErrNotSupported) || q.closed != 1 {
		t.Errorf("%v, closed %d times", err, q.closed)
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
		if n, err := via.Open(t.Context(), "emu:", via.WithPolicy(c.p)); n != nil || err == nil {
			t.Errorf("%s: opened, %v", name, err)
		}
		a, _ := onMemory(t, "")
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
		a, b := onMemory(t, options)
		p := newPingPong(t, viatest.NewPair(a, b), 30_000)
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
	for name, opts := range map[string][]via.Option{"in the NIC": nil, "at the host": {via.WithPolicy(via.Policy{At: via.AtHost})}} {
		a, b := onMemory(t, "", opts...)
		p := newPingPong(t, viatest.NewPair(a, b), size)
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
