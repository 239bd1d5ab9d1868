package driver_test

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// beside has this process serve a socket, and returns a client of it once a NIC is open.
func beside(t *testing.T, open func()) *telemetry.Client {
	t.Helper()
	dir := t.TempDir()
	t.Setenv(telemetry.Variable, "test")
	t.Setenv("RUNTIME_DIRECTORY", dir)
	open()
	found := telemetry.Find() // other processes come and go
	i := slices.IndexFunc(found, func(path string) bool { return strings.HasPrefix(path, dir) })
	if i < 0 {
		t.Fatal("the NIC is not shown")
	}
	c, err := telemetry.Dial(contextFor(t), found[i])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestTelemetry: a program beside the owner of a NIC sees the same of it as the owner.
func TestTelemetry(t *testing.T) {
	leaktest.Check(t)
	var a, b *driver.NIC
	c := beside(t, func() { _, _, a, b = newPair(t, emulator.PairOptions{}) })
	var vis []uint64
	for range 300 {
		v, err := b.CreateVI(contextFor(t), driver.VIAttributes{MaxTransfer: 64, SendDepth: 8, RecvDepth: 4, Reliability: datasheet.ReliableDelivery}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		vis = append(vis, uint64(v.Number()))
	}
	if _, err := b.CreateCQ(contextFor(t), 32); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Alloc(contextFor(t), 5000, driver.MemoryAttributes{}); err != nil {
		t.Fatal(err)
	}
	ask := func(command string, into any) {
		t.Helper()
		if err := c.Ask(contextFor(t), command, into); err != nil {
			t.Error(err)
		}
	}
	var r telemetry.Report
	ask("/trapeze/nic,1", &r)
	want, err := b.Report(contextFor(t))
	if err != nil || r.MAC != want.MAC || r.MAC == "" || len(r.BARs) != 3 || len(r.Blocks) != len(want.Blocks) || !r.Health.Ready || r.DMA == nil ||
		r.Program == nil || r.Channels == nil || len(r.Counters) != len(want.Counters) {
		t.Errorf("%+v, want %+v, %v", r, want, err)
	}
	var got []uint64
	for from := uint64(0); ; {
		var p telemetry.Page[telemetry.Endpoint]
		ask("/trapeze/vis,1,"+strconv.FormatUint(from, 10), &p)
		for _, e := range p.Rows {
			got = append(got, e.Number)
			if e.SendDepth != 8 || e.RecvDepth != 4 || e.MaxTransfer != 64 || e.Kind != datasheet.KindVI.String() {
				t.Fatalf("%+v", e)
			}
		}
		if p.Next == nil {
			break
		}
		from = *p.Next
	}
	slices.Sort(vis)
	if !slices.Equal(got, vis) {
		t.Errorf("VIs %v, want %v", got, vis)
	}
	var s telemetry.EndpointState
	ask("/trapeze/vi,1,"+strconv.FormatUint(vis[7], 10), &s)
	if s.State != datasheet.StateIdle.String() || s.Number != vis[7] {
		t.Errorf("%+v", s)
	}
	var cqs telemetry.Page[telemetry.CQ]
	ask("/trapeze/cqs,1", &cqs)
	if len(cqs.Rows) != 1 || cqs.Rows[0].Entries != 32 {
		t.Errorf("%+v", cqs)
	}
	var regions telemetry.Page[telemetry.Region]
	ask("/trapeze/regions,1", &regions)
	if len(regions.Rows) != 1 || regions.Rows[0].Bytes < 5000 {
		t.Errorf("%+v", regions)
	}
	var any map[string]any
	for _, command := range []string{"/trapeze/wire", "/trapeze/policy", "/trapeze/program", "/trapeze/rings", "/trapeze/channels", "/ethdev/info,0"} {
		ask(command, &any)
	}
	if err := errors.Join(a.Close(), c.Ask(contextFor(t), "/trapeze/nic,1", &r)); err != nil {
		t.Error(err)
	}
	if err := c.Ask(contextFor(t), "/trapeze/nic,0", &r); !errors.Is(err, telemetry.ErrNoAnswer) {
		t.Errorf("a NIC that is closed: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Ask(contextFor(t), "/", &any); err == nil {
		t.Error("a process without a NIC answers")
	}
	c.Close()
}

// TestTelemetryGone: a NIC that is removed under a reader has no answer, and closes as ever.
func TestTelemetryGone(t *testing.T) {
	leaktest.Check(t)
	var x *emulator.Device
	var a, b *driver.NIC
	c := beside(t, func() { x, _, a, b = newPair(t, emulator.PairOptions{}) })
	x.Remove()
	var r telemetry.Report
	if err := c.Ask(contextFor(t), "/trapeze/nic", &r); !errors.Is(err, telemetry.ErrNoAnswer) {
		t.Errorf("%+v, %v", r, err)
	}
	c.Close()
	_ = a.Close()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestTelemetryLog: a program beside it takes the DMA log of a NIC, unless the program that has
// the NIC keeps one; then that goes on.
func TestTelemetryLog(t *testing.T) {
	leaktest.Check(t)
	var a, b *driver.NIC
	c := beside(t, func() { _, _, a, b = newPair(t, emulator.PairOptions{}) })
	var log telemetry.Transfers
	if err := c.Ask(contextFor(t), "/trapeze/log", &log); err != nil || len(log.Records) > 0 {
		t.Errorf("%+v, %v", log, err)
	}
	if s, err := a.DMALog(); err != nil || !s.Enabled {
		t.Errorf("%+v, %v", s, err)
	}
	traffic(t, a, b, 1)
	if err := c.Ask(contextFor(t), "/trapeze/log", &log); err != nil || len(log.Records) == 0 || log.Records[0][4] == 0 {
		t.Errorf("%+v, %v", log, err)
	}
	if err := a.EnableDMALog(64); err != nil {
		t.Fatal(err)
	}
	if err := c.Ask(contextFor(t), "/trapeze/log", &log); !errors.Is(err, telemetry.ErrNoAnswer) {
		t.Errorf("the program's own log is taken: %+v, %v", log, err)
	}
	if s, err := a.DMALog(); err != nil || !s.Enabled || s.Records != 64 {
		t.Errorf("%+v, %v", s, err)
	}
	c.Close()
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

// TestNoTelemetry: a NIC that has no telemetry is shown with others, and serves no socket of its own.
func TestNoTelemetry(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(telemetry.Variable, "test")
	t.Setenv("RUNTIME_DIRECTORY", dir)
	x, y, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	n, err := driver.New(contextFor(t), x, driver.Options{Logger: quiet, NoTelemetry: true})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}
