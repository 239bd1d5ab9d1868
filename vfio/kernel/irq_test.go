package kernel

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

func eventfd(t *testing.T) *vfio.Eventfd {
	t.Helper()
	fd := must.Get(vfio.NewEventfd())(t)
	t.Cleanup(func() { fd.Close() })
	return fd
}

func TestIRQ(t *testing.T) {
	_, d := ready(t, backendGroup)
	should.Give(d.IRQ(vfio.IRQMSIX))(t, vfio.IRQInfo{Index: 2, Count: 16, Flags: vfio.IRQEventfd})
	for _, index := range []int{-1, 5} {
		should.Refuse(d.IRQ(index))(t, vfio.ErrNoSuchIRQ, "index %d", index)
	}
}

// TestNoErrorInterrupt: a conventional function has none.
func TestNoErrorInterrupt(t *testing.T) {
	k, h := openFake(t, machine(t))
	k.functions[nic].irqs[vfio.IRQErr] = fakeIRQ{}
	d := mustOpen(t, h, "pci:"+nic)
	should.Be(t, must.Get(d.IRQ(vfio.IRQErr))(t).Count, 0)
}

// TestSetIRQs goes through sequences of calls and looks which vectors are
// connected after each.
func TestSetIRQs(t *testing.T) {
	type step struct {
		index, start int
		fds          string // a letter each: c connect, d disconnect, x not an eventfd
		disable      bool
		err          error
		want         []int // vectors of index
	}
	const noResize = uint32(vfio.IRQEventfd | vfio.IRQNoResize)
	for _, tt := range []struct {
		name  string
		flags uint32 // of MSI-X; 0: as it is
		most  int
		made  int // vectors that the kernel has made in the end
		steps []step
	}{
		{name: "one by one", made: 8, steps: []step{
			{index: 2, start: 2, fds: "c", want: []int{2}},
			{index: 2, start: 7, fds: "c", want: []int{2, 7}},
			{index: 2, start: 0, fds: "cc", want: []int{0, 1, 2, 7}},
			{index: 2, start: 1, fds: "dd", want: []int{0, 7}},
		}},
		{name: "all made at once where they cannot be added", flags: noResize, made: 16, steps: []step{
			{index: 2, start: 3, fds: "cd", want: []int{3}},
			{index: 2, start: 15, fds: "c", want: []int{3, 15}},
		}},
		{name: "as many as there are", flags: noResize, most: 6, made: 6, steps: []step{
			{index: 2, start: 0, fds: "ccc", want: []int{0, 1, 2}},
			{index: 2, start: 5, fds: "c", want: []int{0, 1, 2, 5}},
			{index: 2, start: 6, fds: "c", err: vfio.ErrNotSupported, want: []int{0, 1, 2, 5}},
		}},
		{name: "fewer than wanted", flags: noResize, most: 2, steps: []step{{index: 2, fds: "ccc", err: unix.ENOSPC}}},
		{name: "fewer than wanted, dynamic", most: 2, steps: []step{{index: 2, fds: "ccc", err: unix.ENOSPC}}},
		{name: "nothing to connect", steps: []step{{index: 2, fds: "ddd"}, {index: 2, fds: ""}}},
		{name: "only one kind at a time", steps: []step{
			{index: 1, fds: "c", want: []int{0}},
			{index: 2, fds: "c", err: unix.EBUSY},
			{index: 0, fds: "c", err: vfio.ErrNotSupported},
			{index: 3, fds: "c", err: vfio.ErrNotSupported, want: []int{0}},
			{index: 1, disable: true},
			{index: 1, disable: true}, // a second time does nothing
		}},
		{name: "no such vector", steps: []step{
			{index: 2, start: 16, fds: "c", err: vfio.ErrNoSuchIRQ},
			{index: 2, start: 15, fds: "cc", err: vfio.ErrNoSuchIRQ},
			{index: 2, start: -1, fds: "c", err: vfio.ErrNoSuchIRQ},
			{index: 0, start: 1, fds: "d", err: vfio.ErrNoSuchIRQ},
		}},
		{name: "not an eventfd", steps: []step{
			{index: 2, fds: "x", err: unix.EBADF},
			{index: 2, fds: "c", want: []int{0}},
			{index: 2, start: 1, fds: "x", err: unix.EBADF, want: []int{0}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, d := ready(t, backendCdev)
			f := k.functions[nic]
			fd := eventfd(t)
			if tt.flags != 0 {
				f.irqs[2].flags = tt.flags
				d.irqs[2].Flags = vfio.IRQFlags(tt.flags)
			}
			f.irqs[2].most = tt.most
			for i, s := range tt.steps {
				var fds []int
				for _, c := range s.fds {
					fds = append(fds, map[rune]int{'c': fd.FD(), 'd': -1, 'x': 1 << 20}[c])
				}
				err := d.SetIRQs(s.index, s.start, fds)
				if s.disable {
					err = d.DisableIRQs(s.index)
				}
				should.Hold(t, errors.Is(err, s.err) && (err != nil) == (s.err != nil), "step %d: %v, want %v", i, err, s.err)
				should.Same(t, f.connected(k, s.index), s.want, "step %d: connected", i)
			}
			n := len(f.irqs[2].fds)
			should.Hold(t, tt.made == 0 || n == tt.made, "%d vectors were made, want %d", n, tt.made)
		})
	}
}

func TestSetIRQsNoIndex(t *testing.T) {
	_, d := ready(t, backendGroup)
	fd := eventfd(t)
	for _, index := range []int{-1, 5} {
		should.Fail(t, d.SetIRQs(index, 0, []int{fd.FD()}), vfio.ErrNoSuchIRQ, "connect %d", index)
		should.Fail(t, d.DisableIRQs(index), vfio.ErrNoSuchIRQ, "disconnect %d", index)
	}
}

// TestInterrupts: each vector signals its own eventfd.
func TestInterrupts(t *testing.T) {
	forEachBackend(t, func(t *testing.T, k *fake, d *Device) {
		a, b := eventfd(t), eventfd(t)
		must.OK(t, d.SetIRQs(vfio.IRQMSIX, 4, []int{a.FD(), b.FD()}))
		for vector, fd := range map[int]*vfio.Eventfd{4: a, 5: b} {
			must.OK(t, k.functions[nic].fire(k, vfio.IRQMSIX, vector))
			err := fd.Wait(withTimeout(t))
			should.Hold(t, err == nil, "vector %d: %v", vector, err)
		}
		// The other one was not signalled.
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		err := a.Wait(ended)
		should.Hold(t, err != nil, "a vector signalled twice")
	})
}
