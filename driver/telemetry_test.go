package driver_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
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
	c := must.Get(telemetry.Dial(contextFor(t), found[i]))(t)
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
		v := must.Get(b.CreateVI(contextFor(t), driver.VIAttributes{MaxTransfer: 64, SendDepth: 8, RecvDepth: 4, Reliability: datasheet.ReliableDelivery}, nil, nil))(t)
		vis = append(vis, uint64(v.Number()))
	}
	must.Get(b.CreateCQ(contextFor(t), 32))(t)
	must.Get(b.Alloc(contextFor(t), 5000, driver.MemoryAttributes{}))(t)
	ask := func(command string, into any) {
		t.Helper()
		should.OK(t, c.Ask(contextFor(t), command, into))
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
	should.Same(t, got, vis, "VIs")
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
	for _, command := range []string{"/trapeze/wire", "/trapeze/policy", "/trapeze/program", "/ethdev/info,0"} {
		ask(command, &any)
	}
	should.OK(t, errors.Join(a.Close(), c.Ask(contextFor(t), "/trapeze/nic,1", &r)))
	should.Fail(t, c.Ask(contextFor(t), "/trapeze/nic,0", &r), telemetry.ErrNoAnswer, "a NIC that is closed")
	should.OK(t, b.Close())
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
	should.Fail(t, c.Ask(contextFor(t), "/trapeze/nic", &r), telemetry.ErrNoAnswer, "%+v", r)
	c.Close()
	_ = a.Close()
	must.OK(t, b.Close())
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
	must.OK(t, a.EnableDMALog(64))
	should.Fail(t, c.Ask(contextFor(t), "/trapeze/log", &log), telemetry.ErrNoAnswer, "the program's own log is taken: %+v", log)
	if s, err := a.DMALog(); err != nil || !s.Enabled || s.Records != 64 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestNoTelemetry: a NIC that has no telemetry is shown with others, and serves no socket of its own.
func TestNoTelemetry(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(telemetry.Variable, "test")
	t.Setenv("RUNTIME_DIRECTORY", dir)
	x, _ := devices(t, emulator.PairOptions{})
	open(t, x, driver.Options{NoTelemetry: true})
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestTelemetryMaps: a program beside the owner of a NIC sees the maps of the control program that
// the owner has loaded, also of the one before after a roll-back, and no more entries than there is
// room for.
func TestTelemetryMaps(t *testing.T) {
	leaktest.Check(t)
	var a *driver.NIC
	c := beside(t, func() { _, _, a, _ = newPair(t, emulator.PairOptions{}) })
	ask := func(index int) (m telemetry.ProgramMap, err error) {
		return m, c.Ask(contextFor(t), fmt.Sprintf("/trapeze/map,0,%d", index), &m)
	}
	should.Refuse(ask(0))(t, telemetry.ErrNoAnswer, "of no program")
	spec := specOf(t, "flow-steer")
	mustLoad(t, a, imageOf(t, "flow-steer"))
	for i, want := range spec.Maps {
		m, err := ask(i)
		if err != nil || m.Name != want.Name || m.Type != want.Type.String() || m.KeyBytes != want.Key || m.ValueBytes != want.Value ||
			m.Room != want.Entries || m.Maps != len(spec.Maps) || m.Number != uint64(i) {
			t.Errorf("map %d: %+v, %v; want %+v", i, m, err, want)
		}
	}
	should.Refuse(ask(len(spec.Maps)))(t, telemetry.ErrNoAnswer, "behind the last one")
	mustLoad(t, a, imageOf(t, "acl"))
	rules := must.Get(a.ProgramMap(specOf(t, "acl").Maps, 0))(t)
	key, value := make([]byte, rules.Spec().Key), make([]byte, rules.Spec().Value)
	for _, count := range []int{1, 100} {
		for i := range count {
			key[0] = byte(i)
			must.OK(t, rules.Update(key, value, datasheet.MailboxAny))
		}
		m, err := ask(0)
		if err != nil || len(m.Entries) != min(count, 64) || m.More != (count > 64) || m.Entries[0].Value != fmt.Sprintf("%x", value) {
			t.Errorf("%d entries: %d, more %v, %v", count, len(m.Entries), m.More, err)
		}
	}
	must.Get(a.RollBackProgram(contextFor(t), load.Options{Timeout: timeout}))(t)
	if m, err := ask(0); err != nil || m.Name != spec.Maps[0].Name {
		t.Errorf("after the roll-back: %+v, %v", m, err)
	}
}
