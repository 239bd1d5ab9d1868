package driver_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// newDMA opens a fake device with a DMA block, and closes it at the end.
func newDMA(t *testing.T, script func(*fakeDevice)) (*fakeDevice, *driver.NIC) {
	t.Helper()
	checkLeaks(t)
	d := newFake(t)
	d.addDMA()
	if script != nil {
		script(d)
	}
	return d, openFake(t, d)
}

func mustState(t *testing.T, n *driver.NIC) driver.PolicyState {
	t.Helper()
	s, err := n.Policy()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPolicyNames(t *testing.T) {
	if got := strings.Join(driver.NICPolicies(), " "); got != "store-and-forward static cut-through eager amp auto" {
		t.Errorf("the NIC has %s", got)
	}
	host := driver.HostPolicies()
	if slices.Contains(host, "optimal") || len(host) != len(pipeline.PolicyNames())-1 {
		t.Errorf("the host has %v", host)
	}
	for _, name := range host {
		if err := (driver.Policy{Name: name, At: driver.AtHost}).Check(); err != nil {
			t.Errorf("%s at the host: %v", name, err)
		}
	}
	if driver.AtHost.String() != "host" || driver.AtNIC.String() != "nic" || driver.Placement(7).String() != "placement 7" {
		t.Error("names of placements")
	}
}

func TestPolicyCheck(t *testing.T) {
	own := func() pipeline.Policy { return pipeline.StoreAndForward{} }
	for name, c := range map[string]struct {
		p    driver.Policy
		want error
		says string
	}{
		"unknown":              {driver.Policy{Name: "warp"}, pipeline.ErrUnknownPolicy, "store-and-forward, static, schedule"},
		"unknown at the host":  {driver.Policy{Name: "AMP", At: driver.AtHost}, descriptors.ErrInvalidParameter, `"AMP"`},
		"optimal at the host":  {driver.Policy{Name: "optimal", At: driver.AtHost}, descriptors.ErrInvalidParameter, "computed for one platform"},
		"optimal at the NIC":   {driver.Policy{Name: "optimal"}, descriptors.ErrInvalidParameter, "computed for one platform"},
		"schedule at the NIC":  {driver.Policy{Name: "hierarchical"}, descriptors.ErrInvalidParameter, "at the host only"},
		"nowhere":              {driver.Policy{At: 2}, descriptors.ErrInvalidParameter, "placement 2"},
		"negative size":        {driver.Policy{Name: "amp", MinPulseSend: -1}, descriptors.ErrInvalidParameter, "1 to 65536"},
		"size too large":       {driver.Policy{Name: "amp", MinPulseReceive: 65537}, descriptors.ErrInvalidParameter, "to receive, it is 1 to 65536"},
		"large at the host":    {driver.Policy{Name: "amp", At: driver.AtHost, MinPulseSend: 65537}, descriptors.ErrInvalidParameter, "65536"},
		"size of none":         {driver.Policy{Name: "auto", MinPulseSend: 64}, descriptors.ErrInvalidParameter, "auto has no minimum pulse"},
		"size without policy":  {driver.Policy{MinPulseSend: 64}, descriptors.ErrInvalidParameter, "no policy that it belongs to"},
		"deadline negative":    {driver.Policy{Deadline: -1}, descriptors.ErrInvalidParameter, "deadline"},
		"deadline too long":    {driver.Policy{Deadline: 2 * time.Hour}, descriptors.ErrInvalidParameter, "deadline"},
		"deadline too fine":    {driver.Policy{Deadline: 1500 * time.Nanosecond}, descriptors.ErrInvalidParameter, "microseconds"},
		"plan at the NIC":      {driver.Policy{Plan: &pipeline.Plan{Send: own, Receive: own}}, descriptors.ErrInvalidParameter, "at the host"},
		"plan with a name":     {driver.Policy{At: driver.AtHost, Name: "amp", Plan: &pipeline.Plan{Send: own, Receive: own}}, descriptors.ErrInvalidParameter, "neither"},
		"plan of one way only": {driver.Policy{At: driver.AtHost, Plan: &pipeline.Plan{Send: own}}, descriptors.ErrInvalidParameter, "both"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.p.Check(); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
			d, n := newDMA(t, nil)
			before := mustState(t, n)
			var e *driver.Error
			if err := n.SetPolicy(c.p); !errors.Is(err, c.want) || !errors.As(err, &e) || e.Op != "set policy" {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(before, mustState(t, n)); diff != "" || d.dmaRegister(datasheet.RegDMAControl) != 0 {
				t.Errorf("something has changed: %s", diff)
			}
		})
	}
}

func TestPolicyAtNIC(t *testing.T) {
	d, n := newDMA(t, nil)
	own := driver.PolicyState{Send: driver.DirectionPolicy{Name: "amp", MinPulse: 4096}, Receive: driver.DirectionPolicy{Name: "amp", MinPulse: 2048},
		Deadline: 10 * time.Millisecond}
	if diff := cmp.Diff(own, mustState(t, n)); diff != "" {
		t.Errorf("as opened: %s", diff)
	}
	for _, c := range []struct {
		p             driver.Policy
		policy        datasheet.DMAPolicy
		send, receive uint32
	}{
		{driver.Policy{Name: "static", MinPulseSend: 48}, datasheet.DMAPolicyStatic, 48, pipeline.DefaultPulse},
		{driver.Policy{Name: "store-and-forward"}, datasheet.DMAPolicyStoreAndForward, 48, pipeline.DefaultPulse},
		{driver.Policy{Name: "amp", MinPulseReceive: 65536}, datasheet.DMAPolicyAMP, pipeline.DefaultMinPulse, 65536},
		{driver.Policy{Name: "auto", Deadline: time.Millisecond}, datasheet.DMAPolicyAuto, pipeline.DefaultMinPulse, 65536},
		{driver.Policy{Name: "eager", MinPulseSend: 1, MinPulseReceive: 1}, datasheet.DMAPolicyEager, 1, 1},
		{driver.Policy{Name: "cut-through"}, datasheet.DMAPolicyCutThrough, pipeline.DefaultPulse, pipeline.DefaultPulse},
		{driver.Policy{}, datasheet.DMAPolicyAMP, 4096, 2048},
	} {
		if err := n.SetPolicy(c.p); err != nil {
			t.Fatal(c.p.Name, err)
		}
		for reg, want := range map[uint64]uint32{
			datasheet.RegPolicyTx: uint32(c.policy), datasheet.RegPolicyRx: uint32(c.policy),
			datasheet.RegMinPulseTx: c.send, datasheet.RegMinPulseRx: c.receive, datasheet.RegDMAControl: 0,
		} {
			if got := d.dmaRegister(reg); got != want {
				t.Errorf("%q: register %#x is %d, want %d", c.p.Name, reg, got, want)
			}
		}
		s := mustState(t, n)
		if s.At != driver.AtNIC || s.Send.Name != c.policy.String() || s.Send.MinPulse != 0 && s.Send.MinPulse != int(c.send) {
			t.Errorf("%q: %+v", c.p.Name, s)
		}
	}
	if s := mustState(t, n); s.Deadline != time.Millisecond {
		t.Errorf("deadline %v", s.Deadline)
	}
}

// TestPolicyRefused: the device does not take what it is told. What it had it
// keeps, and the error says what it does not know.
func TestPolicyRefused(t *testing.T) {
	refuse := func(reg uint64, bad uint32) func(*fakeDevice) {
		return func(d *fakeDevice) { d.block.refuses[reg] = func(v uint32) bool { return v == bad } }
	}
	host := driver.Policy{Name: "amp", At: driver.AtHost, Deadline: time.Second}
	for name, c := range map[string]struct {
		script func(*fakeDevice)
		p      driver.Policy
		says   string
	}{
		"policy to send":    {refuse(datasheet.RegPolicyTx, 6), driver.Policy{Name: "auto"}, "policy number 6"},
		"policy to receive": {refuse(datasheet.RegPolicyRx, 2), driver.Policy{Name: "static"}, "policy number 2"},
		"size":              {refuse(datasheet.RegMinPulseRx, 7), driver.Policy{Name: "amp", MinPulseReceive: 7, Deadline: time.Second}, "pulse of 7 bytes"},
		"deadline":          {refuse(datasheet.RegPulseDeadline, 1_000_000), host, "1000000 us"},
		"pulses":            {refuse(datasheet.RegDMAControl, datasheet.DMAControlHostTx|datasheet.DMAControlHostRx), host, "DMA control 0x3"},
		"progress":          {func(d *fakeDevice) { d.block.refuses[datasheet.RegProgressLow] = func(uint32) bool { return true } }, host, "progress counters"},
	} {
		t.Run(name, func(t *testing.T) {
			d, n := newDMA(t, c.script)
			before := mustState(t, n)
			if err := n.SetPolicy(c.p); !errors.Is(err, descriptors.ErrNotSupported) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(before, mustState(t, n)); diff != "" || d.dmaRegister(datasheet.RegDMAControl) != 0 {
				t.Errorf("something has changed: %s", diff)
			}
			if err := n.SetPolicy(driver.Policy{Name: "eager"}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOlderDevice has no DMA block: it says so, and works.
func TestOlderDevice(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	for name, do := range map[string]func() error{
		"policy at the NIC":  func() error { return r.n.SetPolicy(driver.Policy{Name: "amp"}) },
		"own policy":         func() error { return r.n.SetPolicy(driver.Policy{}) },
		"policy at the host": func() error { return r.n.SetPolicy(driver.Policy{At: driver.AtHost}) },
		"what policy":        func() error { _, err := r.n.Policy(); return err },
		"log":                func() error { return r.n.EnableDMALog(100) },
		"no log":             func() error { return r.n.DisableDMALog() },
		"read log":           func() error { _, err := r.n.ReadDMALog(make([]dmalog.Record, 1)); return err },
		"what log":           func() error { _, err := r.n.DMALog(); return err },
	} {
		var e *driver.Error
		if err := do(); !errors.Is(err, descriptors.ErrNotSupported) || !errors.As(err, &e) || !strings.Contains(err.Error(), "no DMA engine block") ||
			!strings.Contains(e.Hint, "older") {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := r.descriptors(t, 1)[0]
	if err := r.v.PostSend(d); err != nil {
		t.Fatal(err)
	}
	r.complete(false, 0, 64, datasheet.StatusDone)
	if got, err := r.v.SendDone(); got != d || err != nil {
		t.Error(got, err)
	}
}

// TestDMABlockOfAnotherAge: a DMA block that this driver cannot work with.
func TestDMABlockOfAnotherAge(t *testing.T) {
	for name, c := range map[string]struct {
		reg  uint64
		v    uint32
		want error
	}{
		"version 2": {datasheet.BlockRegVersion, 2 << 16, driver.ErrVersion},
		"too small": {datasheet.BlockRegSize, 0x40, driver.ErrBadRegisters},
	} {
		checkLeaks(t)
		d := newFake(t)
		d.addDMA()
		d.set(datasheet.DMAOffset+c.reg, c.v)
		if _, err := driver.New(contextFor(t), d, driver.Options{Logger: quiet}); !errors.Is(err, c.want) || !strings.Contains(err.Error(), "DMA block") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPolicyOfClosedAndGone: a NIC that is closed, and one that was pulled out.
func TestPolicyOfClosedAndGone(t *testing.T) {
	d, n := newDMA(t, nil)
	if err := errors.Join(n.SetPolicy(driver.Policy{At: driver.AtHost}), n.EnableDMALog(16)); err != nil {
		t.Fatal(err)
	}
	d.remove()
	if _, err := n.Policy(); !errors.Is(err, driver.ErrDeviceGone) {
		t.Errorf("gone: %v", err)
	}
	if err := n.SetPolicy(driver.Policy{Name: "static"}); !errors.Is(err, driver.ErrDeviceGone) {
		t.Errorf("gone: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{n.SetPolicy(driver.Policy{}), n.EnableDMALog(16), n.DisableDMALog()} {
		if !errors.Is(err, descriptors.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
	if n.Poll() {
		t.Error("a closed NIC made progress")
	}
}
