package driver_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// TestTelemetryMaps: a program beside the owner of a NIC sees the maps of the control program that
// the owner has loaded, also of the one before after a roll-back, and no more entries than there is
// room for.
func TestTelemetryMaps(t *testing.T) {
	leaktest.Check(t)
	var a, b *driver.NIC
	c := beside(t, func() { _, _, a, b = newPair(t, emulator.PairOptions{}) })
	defer func() {
		c.Close()
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	}()
	ask := func(index int) (m telemetry.ProgramMap, err error) {
		return m, c.Ask(contextFor(t), fmt.Sprintf("/trapeze/map,0,%d", index), &m)
	}
	if m, err := ask(0); !errors.Is(err, telemetry.ErrNoAnswer) {
		t.Errorf("of no program: %+v, %v", m, err)
	}
	spec := specOf(t, "flow-steer")
	mustLoad(t, a, imageOf(t, "flow-steer"))
	for i, want := range spec.Maps {
		m, err := ask(i)
		if err != nil || m.Name != want.Name || m.Type != want.Type.String() || m.KeyBytes != want.Key || m.ValueBytes != want.Value ||
			m.Room != want.Entries || m.Maps != len(spec.Maps) || m.Number != uint64(i) {
			t.Errorf("map %d: %+v, %v; want %+v", i, m, err, want)
		}
	}
	if m, err := ask(len(spec.Maps)); !errors.Is(err, telemetry.ErrNoAnswer) {
		t.Errorf("behind the last one: %+v, %v", m, err)
	}
	mustLoad(t, a, imageOf(t, "acl"))
	rules, err := a.ProgramMap(specOf(t, "acl").Maps, 0)
	if err != nil {
		t.Fatal(err)
	}
	key, value := make([]byte, rules.Spec().Key), make([]byte, rules.Spec().Value)
	for _, count := range []int{1, 100} {
		for i := range count {
			key[0] = byte(i)
			if err := rules.Update(key, value, datasheet.MailboxAny); err != nil {
				t.Fatal(err)
			}
		}
		m, err := ask(0)
		if err != nil || len(m.Entries) != min(count, 64) || m.More != (count > 64) || m.Entries[0].Value != fmt.Sprintf("%x", value) {
			t.Errorf("%d entries: %d, more %v, %v", count, len(m.Entries), m.More, err)
		}
	}
	if _, err := a.RollBackProgram(contextFor(t), load.Options{Timeout: timeout}); err != nil {
		t.Fatal(err)
	}
	if m, err := ask(0); err != nil || m.Name != spec.Maps[0].Name {
		t.Errorf("after the roll-back: %+v, %v", m, err)
	}
}
