package emulator_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestIRQInfo(t *testing.T) {
	d := newDevice(t, nil)
	for index, count := range []int{0, 0, 16, 1, 1} {
		info := must.Get(d.IRQ(index))(t)
		flags := vfio.IRQEventfd
		if count == 0 {
			flags = 0
		}
		should.Be(t, info, vfio.IRQInfo{Index: index, Count: count, Flags: flags})
	}
	for _, index := range []int{-1, 5} {
		_, err := d.IRQ(index)
		wantError(t, "IRQ", err, vfio.ErrNoSuchIRQ)
		wantError(t, "SetIRQs", d.SetIRQs(index, 0, nil), vfio.ErrNoSuchIRQ)
		wantError(t, "DisableIRQs", d.DisableIRQs(index), vfio.ErrNoSuchIRQ)
	}
}

func TestSetIRQsRefuses(t *testing.T) {
	checkFiles(t)
	d := newDevice(t, nil)
	fd := newEventfd(t).FD()
	for _, a := range []struct{ index, start, n int }{
		{vfio.IRQMSIX, -1, 1}, {vfio.IRQMSIX, 16, 1}, {vfio.IRQMSIX, 15, 2}, {vfio.IRQMSIX, 17, 0},
		{vfio.IRQMSI, 0, 1}, {vfio.IRQINTx, 0, 1}, {vfio.IRQReq, 0, 2}, {5, 0, 1},
	} {
		wantError(t, "SetIRQs", d.SetIRQs(a.index, a.start, []int{fd, fd}[:a.n]), vfio.ErrNoSuchIRQ)
		f := func() { t.Error("called") }
		wantError(t, "Notify", d.Notify(a.index, a.start, []func(){f, f}[:a.n]), vfio.ErrNoSuchIRQ)
	}
	wantError(t, "a descriptor that is not open", d.SetIRQs(vfio.IRQMSIX, 0, []int{fd, 1 << 20}), unix.EBADF)
	f := must.Get(os.Create(filepath.Join(t.TempDir(), "file")))(t)
	defer f.Close()
	if err := d.SetIRQs(vfio.IRQMSIX, 0, []int{fd, int(f.Fd())}); err == nil {
		t.Error("a file was taken for an eventfd")
	}
	if c := readConfig16(t, d, configMSIXControl); c&0x8000 != 0 {
		t.Error("a call that failed enabled MSI-X")
	}
	should.OK(t, d.SetIRQs(vfio.IRQMSIX, 0, nil))
}

// raising is a device of which vector 2 is the admin queue's, so that nop
// raises it.
type raising struct {
	*adminHost
	fd    *vfio.Eventfd
	calls *atomic.Int32 // of the function that is in the eventfd's place, if one is
}

const raisedVector = 2

func newRaising(t *testing.T, function bool) raising {
	r := raising{newAdminHost(t, newDevice(t, nil)), newEventfd(t), nil}
	if function {
		r.calls = new(atomic.Int32)
	}
	r.write(datasheet.RegAdminControl, 0)
	r.enable(raisedVector)
	r.connect(true)
	return r
}

// connect connects the vector to the eventfd or the function, or to nothing.
func (r raising) connect(on bool) {
	r.t.Helper()
	var err error
	switch {
	case r.calls == nil && on:
		r.connectTo(r.fd.FD())
	case r.calls == nil:
		r.connectTo(-1)
	case on:
		err = r.d.(vfio.InProcess).Notify(vfio.IRQMSIX, raisedVector, []func(){func() { r.calls.Add(1) }})
	default:
		err = r.d.(vfio.InProcess).Notify(vfio.IRQMSIX, raisedVector, []func(){nil})
	}
	must.OK(r.t, err)
}

func (r raising) connectTo(fd int) {
	r.t.Helper()
	must.OK(r.t, r.d.SetIRQs(vfio.IRQMSIX, raisedVector, []int{fd}))
}

func (r raising) want(what string, want bool) {
	r.t.Helper()
	got := false
	if r.calls != nil {
		n := r.calls.Swap(0)
		if got = n != 0; n > 1 {
			r.t.Errorf("%s: %d calls", what, n)
		}
	} else {
		got = signalled(r.fd)
	}
	should.Be(r.t, got, want, "%s: signalled", what)
}

// pending reads the vector's pending bit.
func (r raising) pending() bool {
	return read32(r.t, r.d, datasheet.MSIXPBAOffset)&(1<<raisedVector) != 0
}

func (r raising) mask(v uint32) {
	write32(r.t, r.d, datasheet.MSIXTableOffset+raisedVector*16+12, v)
}

// TestInterrupts: an eventfd or a function in its place is signalled once for each interrupt.
func TestInterrupts(t *testing.T) {
	for name, function := range map[string]bool{"eventfd": false, "function": true} {
		t.Run(name, func(t *testing.T) {
			checkFiles(t)
			r := newRaising(t, function)
			before := counter(t, r.d, datasheet.CounterInterrupts)
			r.nop()
			r.want("connected", true)
			r.want("nothing new", false)
			should.Be(t, counter(t, r.d, datasheet.CounterInterrupts)-before, 1, "interrupts counted")

			r.mask(0xffffffff)
			should.Be(t, read32(t, r.d, datasheet.MSIXTableOffset+raisedVector*16+12), 1, "vector control is: only the mask bit is there")
			r.nop()
			r.want("vector masked", false)
			should.Be(t, r.pending(), true, "no pending bit")
			r.mask(0)
			r.want("vector unmasked", true)
			should.Be(t, r.pending(), false, "the pending bit stays")

			writeConfig16(t, r.d, configMSIXControl, 0xc000)
			r.nop()
			r.want("function masked", false)
			writeConfig16(t, r.d, configMSIXControl, 0x8000)
			r.want("function unmasked", true)

			r.connect(false)
			r.nop()
			r.want("disconnected", false)
			r.connect(true)
			r.want("connected again: what happened meanwhile", true)

			must.OK(t, r.d.DisableIRQs(vfio.IRQMSIX))
			should.Be(t, readConfig16(t, r.d, configMSIXControl)&0x8000, 0, "MSI-X is enabled after DisableIRQs")
			r.nop()
			r.connect(true)
			r.want("what happened while MSI-X was off", false)
		})
	}
	r := newRaising(t, true)
	r.connectTo(r.fd.FD())
	r.calls.Store(0) // the one that was pending
	r.nop()
	r.want("a function that an eventfd has followed", false)
	should.Be(t, signalled(r.fd), true, "an eventfd that follows a function")
}

func TestInterruptsNeedBusMaster(t *testing.T) {
	r := newRaising(t, false)
	r.mask(1)
	r.nop()
	writeConfig16(t, r.d, configCommand, commandMemory)
	r.mask(0)
	r.want("unmasked without bus mastering", false)
	powerUp(t, r.d)
	r.want("bus mastering back on", true)
}

// TestEventfdStaysOurs closes and replaces descriptors behind the device's back.
func TestEventfdStaysOurs(t *testing.T) {
	r := newRaising(t, false)
	dup := must.Get(unix.FcntlInt(uintptr(r.fd.FD()), unix.F_DUPFD_CLOEXEC, 0))(t)
	r.connectTo(dup)
	must.OK(t, unix.Close(dup))
	r.nop()
	r.want("the caller closed his descriptor", true)
	r.connect(true)
	if r.fd.Signal() != nil || !signalled(r.fd) {
		t.Error("the device closed a descriptor of the caller")
	}
}

// TestFullEventfd has a device signal an eventfd that can count no further.
func TestFullEventfd(t *testing.T) {
	r := newRaising(t, false)
	full := must.Get(unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK))(t)
	defer unix.Close(full)
	must.Get(unix.Write(full, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}))(t)
	r.connectTo(full)
	r.nop()
	r.nop()
}

func TestMSIXTable(t *testing.T) {
	d := newDevice(t, nil)
	powerUp(t, d)
	entry := func(v uint64) (e [4]uint32) {
		for i := range e {
			e[i] = read32(t, d, datasheet.MSIXTableOffset+16*v+4*uint64(i))
		}
		return e
	}
	for v := range uint64(16) {
		should.Be(t, entry(v), [4]uint32{0, 0, 0, 1}, "entry %d is after power-on: it must be masked", v)
	}
	for i := range uint64(4) {
		write32(t, d, datasheet.MSIXTableOffset+16*9+4*i, 0xffffffff)
	}
	should.Be(t, entry(9), [4]uint32{0xfffffffc, 0xffffffff, 0xffffffff, 1}, "entry 9")
	write(t, d, vfio.RegionBAR0, datasheet.MSIXTableOffset+16*15+8, []byte{1, 2, 3, 4, 0, 0, 0, 0})
	should.Be(t, entry(15), [4]uint32{0, 0, 0x04030201, 0}, "entry 15 is after a write of 64 bits")
	if p := read(t, d, vfio.RegionBAR0, datasheet.MSIXTableOffset+16*15+8, 8); p[0] != 1 || p[7] != 0 {
		t.Errorf("64 bits of entry 15: % x", p)
	}
	before := counter(t, d, datasheet.CounterBadRegisterAccesses)
	write32(t, d, datasheet.MSIXPBAOffset, 0xffffffff)
	should.Be(t, read32(t, d, datasheet.MSIXPBAOffset), 0, "pending bits were written")
	should.Be(t, counter(t, d, datasheet.CounterBadRegisterAccesses)-before, 1, "bad accesses")
}

// TestArmedQueueInterrupts arms a queue that owes an interrupt, so that the
// engine raises the queue's own vector.
func TestArmedQueueInterrupts(t *testing.T) {
	for name, mode := range map[string]emulator.DoorbellMode{"mapped": emulator.DoorbellsMapped, "trapped": emulator.DoorbellsTrapped} {
		for thread, run := range map[string]bool{"inline": false, "thread": true} {
			t.Run(name+", "+thread, func(t *testing.T) {
				d := newDevice(t, func(o *emulator.Options) { o.Doorbells, o.Thread = mode, run })
				h := newAdminHost(t, d)
				h.thread = run
				fd := newEventfd(t)
				must.OK(t, d.SetIRQs(vfio.IRQMSIX, receiveVector, []int{fd.FD()}))
				// One less than none was taken.
				word := binary.LittleEndian.AppendUint32(nil, datasheet.ArmWord(0xffffffff))
				write(t, d, vfio.RegionBAR2, datasheet.EndpointPage(h.createVI())+datasheet.DoorbellRecvArm, word)
				h.poll()
				should.Be(t, signalled(fd), true, "no interrupt")
				h.poll()
				should.Be(t, signalled(fd), false, "a second interrupt without arming again")
			})
		}
	}
}

func TestErrorEvent(t *testing.T) {
	d := newDevice(t, nil)
	h := newAdminHost(t, d)
	failed := newEventfd(t)
	must.OK(t, d.SetIRQs(vfio.IRQErr, 0, []int{failed.FD()}))
	h.write(datasheet.RegSQProducer, 1000)
	should.Be(t, signalled(failed), true, "a fault does not signal the error interrupt")
	if s := deviceStatus(t, d); s&datasheet.DeviceFatal == 0 {
		t.Errorf("status %#x", s)
	}
	should.OK(t, errors.Join(d.DisableIRQs(vfio.IRQErr), d.DisableIRQs(vfio.IRQReq)))
}
