package driver_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func specOf(t testing.TB, name string) *firmware.Spec {
	t.Helper()
	return must.Get(firmware.BuildShipped(name))(t)
}

func imageOf(t testing.TB, name string) load.Image {
	t.Helper()
	return must.Get(load.Flat(specOf(t, name).Link()))(t)
}

func mustLoad(t testing.TB, n *driver.NIC, img load.Image) load.Status {
	t.Helper()
	return must.Get(n.LoadProgram(contextFor(t), img, load.Options{Timeout: timeout}))(t)
}

func programOf(t testing.TB, n *driver.NIC) load.Status {
	t.Helper()
	return must.Get(n.ProgramStatus())(t)
}

var processorPairs = map[string]emulator.PairOptions{
	"inline":                    {},
	"threads":                   emulator.PairOptions{Threads: true},
	"threads, mapped doorbells": emulator.PairOptions{Threads: true, Doorbells: emulator.DoorbellsMapped},
}

// TestShippedPrograms loads each image that we ship into both NICs, and messages go
// through them.
func TestShippedPrograms(t *testing.T) {
	for kind, options := range processorPairs {
		for i, name := range firmware.ShippedNames() {
			if options.Threads && i%4 != 0 && !soak.Wanted() {
				continue // a sample where threads step the devices
			}
			t.Run(kind+", "+name, func(t *testing.T) {
				checkLeaks(t)
				_, _, a, b := newPair(t, options)
				spec, img := specOf(t, name), imageOf(t, name)
				for _, n := range []*driver.NIC{a, b} {
					s := mustLoad(t, n, img)
					if s.State != datasheet.ProcessorRunning || s.Name != name || s.Digest != spec.Digest || s.BuildID != spec.BuildID || s.Fault != nil {
						t.Errorf("%+v", s)
					}
				}
				traffic(t, a, b, 5)
				s := programOf(t, b)
				for _, v := range spec.Check() {
					h := s.Hooks[v.Hook]
					if !h.Installed || h.Runs == 0 || h.Faults != 0 || int(h.WorstCase) != v.Report.WorstCase {
						t.Errorf("%s: %+v; the checker says %+v", v.Hook, h, v.Report)
					}
				}
				if s.Fault != nil || s.State != datasheet.ProcessorRunning {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// TestReplaceUnderTraffic swaps images while messages stream both ways.
func TestReplaceUnderTraffic(t *testing.T) {
	swaps := 20
	switch {
	case soak.Wanted():
		swaps = 50
	case testing.Short():
		swaps = 10
	}
	for kind, options := range processorPairs {
		t.Run(kind, func(t *testing.T) {
			checkLeaks(t)
			_, _, a, b := newPair(t, options)
			var all []load.Image
			for _, name := range firmware.ShippedNames() {
				all = append(all, imageOf(t, name))
			}
			stream(t, a, b, func() {
				for i := range swaps {
					for _, n := range []*driver.NIC{a, b} {
						s, err := n.LoadProgram(t.Context(), all[i%len(all)], load.Options{Timeout: timeout})
						if err != nil || s.Name != all[i%len(all)].Name {
							t.Errorf("swap %d: %+v, %v", i, s, err)
							return
						}
					}
					if i%5 == 4 {
						s, err := a.RollBackProgram(t.Context(), load.Options{Timeout: timeout})
						if err != nil || s.Name != all[(i-1)%len(all)].Name {
							t.Errorf("rollback %d: %+v, %v", i, s, err)
						}
					}
					if i%7 == 6 {
						if s, err := b.UnloadProgram(); err != nil || s.State != datasheet.ProcessorBuiltIn {
							t.Errorf("unload %d: %+v, %v", i, s, err)
						}
					}
				}
			})
		})
	}
}

// TestProgramsAtOnce: everything about programs from many goroutines.
func TestProgramsAtOnce(t *testing.T) {
	checkLeaks(t)
	_, _, a, b := newPair(t, emulator.PairOptions{Threads: true})
	spec := specOf(t, "count")
	other, img := imageOf(t, "acl"), imageOf(t, "count")
	mustLoad(t, a, img)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 8 {
				var err error
				switch (g + i) % 4 {
				case 0:
					_, err = a.LoadProgram(t.Context(), other, load.Options{Timeout: timeout})
				case 1:
					_, err = a.LoadProgram(t.Context(), img, load.Options{Timeout: timeout})
				case 2:
					_, err = a.ProgramStatus()
				case 3:
					var m *driver.ProgramMap
					if m, err = a.ProgramMap(spec.Maps, 0); err == nil {
						// Whichever image runs, its map 0 has keys of 40 bytes.
						err = m.Each(func(key, _ []byte) bool { return len(key) != 40 })
					}
				}
				should.OK(t, err)
			}
		})
	}
	wg.Wait()
	should.Be(t, programOf(t, a).State, datasheet.ProcessorRunning)
	traffic(t, a, b, 1)
}

// TestProgramRefusedByNIC: what the driver does not check the NIC does, and the
// program that ran before runs on.
func TestProgramRefusedByNIC(t *testing.T) {
	_, _, a, b := newPair(t, emulator.PairOptions{})
	mustLoad(t, a, imageOf(t, "amp"))
	maps := specOf(t, "count").Maps
	should.Refuse(a.ProgramMap(maps, len(maps)))(t, load.ErrMap, "no such map")
	good := specOf(t, "count").Link()
	for at := 0; at < len(good); at += 1 + len(good)/60 {
		bad := bytes.Clone(good)
		bad[at] ^= 1 << (at % 8)
		img := imageOf(t, "count")
		img.Bytes = bad
		var failed *load.Error
		_, err := a.LoadProgram(contextFor(t), img, load.Options{Timeout: timeout})
		if !errors.As(err, &failed) || failed.Outcome != load.OutcomeRestored {
			t.Fatalf("byte %d: %v", at, err)
		}
		if s := programOf(t, a); s.Name != "amp" || s.State != datasheet.ProcessorRunning {
			t.Fatalf("byte %d: %+v", at, s)
		}
	}
	traffic(t, a, b, 1)
	m := must.Get(b.ProgramMap(maps, 0))(t)
	should.Fail(t, m.Each(func(_, _ []byte) bool { return true }), load.ErrNoProgram, "a map of no program")
	mustLoad(t, b, imageOf(t, "count"))
	should.Fail(t, m.Delete(make([]byte, m.Spec().Key)), descriptors.ErrInvalidParameter, "a key of an array was deleted")
}
