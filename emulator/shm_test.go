package emulator_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// init has the runtime open what it polls files with, which stays open: a test
// that counts descriptors is not to see it come.
func init() {
	if r, w, err := os.Pipe(); err == nil {
		_, _ = r.Close(), w.Close()
	}
}

// sharedMappings counts this process's mappings of wires' memory.
func sharedMappings(t testing.TB) int {
	t.Helper()
	b := must.Get(os.ReadFile("/proc/self/maps"))(t)
	return strings.Count(string(b), "/memfd:trapeze-shm")
}

func TestSharedFleet(t *testing.T) {
	checkFiles(t)
	path := filepath.Join(t.TempDir(), "wire")
	should.Refuse(emulator.Fleet(context.Background(), "emu:?wire=shm:"+path, []string{"a", "b"}))(t, vfio.ErrBadAddress, "two NICs")
	d := must.Get(emulator.Fleet(context.Background(), "emu:?wire=shm:"+path, []string{"a"}))(t)
	defer closeDevice(t, d[0])
	other := openAddress(t, "emu:?wire=shm:"+path)
	powerUp(t, d[0])
	powerUp(t, other)
	waitLink(t, true, d[0], other)
}

// TestSharedConformance runs the suites of VIs, rings and channels over a wire in shared memory.
func TestSharedConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("runs all of VIA's suite")
	}
	open := func(options string) func(t *testing.T) (a, b *via.NIC) {
		return func(t *testing.T) (a, b *via.NIC) {
			address := "emu:?engine=thread&wire=shm:" + filepath.Join(t.TempDir(), "w") + options
			return conform.OpenNIC(t, address, via.Options{}), conform.OpenNIC(t, address, via.Options{})
		}
	}
	part := func(s conform.Suite, i int) (part conform.Suite) {
		for j, c := range s {
			if soak.Wanted() || (i+j)%6 == 0 {
				part = append(part, c)
			}
		}
		return part
	}
	part(conform.VIs(), 0).Run(t, "shm", open(""))
	part(conform.VIs(), 1).Run(t, "shm, for writing", open("&share=write"))
	part(conform.Rings(), 0).Run(t, "shm", open(""))
	part(conform.Channels(), 0).Run(t, "shm", open(""))
}

// TestDoze sleeps until a frame comes from a device that somebody else steps.
func TestDoze(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (a, b wire.Port){
		"memory": func(t *testing.T) (a, b wire.Port) {
			x, y := must.Two(wire.NewMemory(wire.MemoryOptions{}))(t)
			return x, y
		},
		"shm": func(t *testing.T) (a, b wire.Port) {
			o := wire.SHMOptions{Path: filepath.Join(t.TempDir(), "wire")}
			x := must.Get(wire.NewSHM(t.Context(), o))(t)
			y := must.Get(wire.NewSHM(t.Context(), o))(t)
			waittest.Until(t, "both links are up", func() bool { return x.LinkUp() && y.LinkUp() })
			return x, y
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkFiles(t)
			x, y := open(t)
			defer func() {
				_ = y.Close()
				y.Reserve(0) // lets go of the memory
				y.Receive()
			}()
			d := newDevice(t, func(o *emulator.Options) { o.Wire = x })
			for range 3 {
				over := d.Idle()
				should.Be(t, d.Idle(), over, "two sleepers do not share a channel")
				d.Poll()
				select {
				case <-over:
					t.Fatal("woken before anything came")
				default:
				}
				if y.Reserve(64) == nil {
					t.Fatal("no room")
				}
				y.Commit()
				y.Flush()
				waittest.Rung(t, over)
				should.Be(t, d.Poll(), true, "woken without anything to do")
			}
			over := d.Idle()
			closeDevice(t, d)
			<-over
			<-d.Idle() // closed: no time to sleep
		})
	}
	d := newDevice(t, func(o *emulator.Options) { o.Thread = true })
	if d.Idle() != nil {
		t.Error("a device that steps itself wakes whoever does not poll")
	}
}
