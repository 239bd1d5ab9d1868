package emulator_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestIRQInfo(t *testing.T) {
	d := newDevice(t, nil)
	for index, count := range []int{0, 0, 16, 1, 1} {
		info, err := d.IRQ(index)
		if err != nil {
			t.Fatal(err)
		}
		flags := vfio.IRQEventfd
		if count == 0 {
			flags = 0
		}
		if info != (vfio.IRQInfo{Index: index, Count: count, Flags: flags}) {
			t.Errorf("%+v", info)
		}
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
	for _, a := range []struct {
		index, start int
		fds          []int
	}{
		{vfio.IRQMSIX, -1, []int{fd}}, {vfio.IRQMSIX, 16, []int{fd}}, {vfio.IRQMSIX, 15, []int{fd, fd}},
		{vfio.IRQMSIX, 17, nil}, {vfio.IRQMSI, 0, []int{fd}}, {vfio.IRQINTx, 0, []int{fd}}, {vfio.IRQReq, 0, []int{fd, fd}},
	} {
		wantError(t, "SetIRQs", d.SetIRQs(a.index, a.start, a.fds), vfio.ErrNoSuchIRQ)
	}
	wantError(t, "a descriptor that is not open", d.SetIRQs(vfio.IRQMSIX, 0, []int{fd, 1 << 20}), unix.EBADF)
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := d.SetIRQs(vfio.IRQMSIX, 0, []int{fd, int(f.Fd())}); err == nil {
		t.Error("a file was taken for an eventfd")
	}
	if c := readConfig16(t, d, configMSIXControl); c&0x8000 != 0 {
		t.Error("a call that failed enabled MSI-X")
	}
	if err := d.SetIRQs(vfio.IRQMSIX, 0, nil); err != nil {
		t.Errorf("connecting nothing: %v", err)
	}
}

// raising is a device of which vector 2 is the admin queue's, so that nop
// raises it.
type raising struct {
	*adminHost
	fd *vfio.Eventfd
}

const raisedVector = 2

func newRaising(t *testing.T, change func(o *emulator.Options)) raising {
	d := newDevice(t, change)
	r := raising{newAdminHost(t, d), newEventfd(t)}
	r.write(datasheet.RegAdminControl, 0)
	r.enable(raisedVector)
	r.connect(r.fd.FD())
	return r
}

func (r raising) connect(fd int) {
	r.t.Helper()
	if err := r.d.SetIRQs(vfio.IRQMSIX, raisedVector, []int{fd}); err != nil {
		r.t.Fatal(err)
	}
}

func (r raising) want(what string, want bool) {
	r.t.Helper()
	if got := signalled(r.fd); got != want {
		r.t.Errorf("%s: signalled %v, want %v", what, got, want)
	}
}

// pending reads the vector's pending bit.
func (r raising) pending() bool {
	return read32(r.t, r.d, datasheet.MSIXPBAOffset)&(1<<raisedVector) != 0
}

func (r raising) mask(v uint32) {
	write32(r.t, r.d, datasheet.MSIXTableOffset+raisedVector*16+12, v)
}

func TestInterrupts(t *testing.T) {
	checkFiles(t)
	r := newRaising(t, nil)
	before := counter(t, r.d, datasheet.CounterInterrupts)
	r.nop()
	r.want("connected", true)
	r.want("nothing new", false)
	if n := counter(t, r.d, datasheet.CounterInterrupts) - before; n != 1 {
		t.Errorf("%d interrupts counted", n)
	}

	r.mask(0xffffffff)
	if v := read32(t, r.d, datasheet.MSIXTableOffset+raisedVector*16+12); v != 1 {
		t.Errorf("vector control is %#x: only the mask bit is there", v)
	}
	r.nop()
	r.want("vector masked", false)
	if !r.pending() {
		t.Error("no pending bit")
	}
	r.mask(0)
	r.want("vector unmasked", true)
	if r.pending() {
		t.Error("the pending bit stays")
	}

	writeConfig16(t, r.d, configMSIXControl, 0xc000)
	r.nop()
	r.want("function masked", false)
	writeConfig16(t, r.d, configMSIXControl, 0x8000)
	r.want("function unmasked", true)

	r.connect(-1)
	r.nop()
	r.want("disconnected", false)
	r.connect(r.fd.FD())
	r.want("connected again: what happened meanwhile", true)

	if err := r.d.DisableIRQs(vfio.IRQMSIX); err != nil {
		t.Fatal(err)
	}
	if c := readConfig16(t, r.d, configMSIXControl); c&0x8000 != 0 {
		t.Error("MSI-X is enabled after DisableIRQs")
	}
	r.nop()
	r.connect(r.fd.FD())
	r.want("what happened while MSI-X was off", false)
}

func TestInterruptsNeedBusMaster(t *testing.T) {
	r := newRaising(t, nil)
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
	r := newRaising(t, nil)
	dup, err := unix.FcntlInt(uintptr(r.fd.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.connect(dup)
	if err := unix.Close(dup); err != nil {
		t.Fatal(err)
	}
	r.nop()
	r.want("the caller closed his descriptor", true)
	r.connect(r.fd.FD())
	if r.fd.Signal() != nil || !signalled(r.fd) {
		t.Error("the device closed a descriptor of the caller")
	}
}

// TestFullEventfd has a device signal an eventfd that can count no further.
func TestFullEventfd(t *testing.T) {
	r := newRaising(t, nil)
	full, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(full)
	if _, err := unix.Write(full, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	r.connect(full)
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
		if e := entry(v); e != [4]uint32{0, 0, 0, 1} {
			t.Errorf("entry %d is %x after power-on: it must be masked", v, e)
		}
	}
	for i := range uint64(4) {
		write32(t, d, datasheet.MSIXTableOffset+16*9+4*i, 0xffffffff)
	}
	if e := entry(9); e != [4]uint32{0xfffffffc, 0xffffffff, 0xffffffff, 1} {
		t.Errorf("entry 9 is %x", e)
	}
	write(t, d, vfio.RegionBAR0, datasheet.MSIXTableOffset+16*15+8, []byte{1, 2, 3, 4, 0, 0, 0, 0})
	if e := entry(15); e != [4]uint32{0, 0, 0x04030201, 0} {
		t.Errorf("entry 15 is %x after a write of 64 bits", e)
	}
	if p := read(t, d, vfio.RegionBAR0, datasheet.MSIXTableOffset+16*15+8, 8); p[0] != 1 || p[7] != 0 {
		t.Errorf("64 bits of entry 15: % x", p)
	}
	before := counter(t, d, datasheet.CounterBadRegisterAccesses)
	write32(t, d, datasheet.MSIXPBAOffset, 0xffffffff)
	if p := read32(t, d, datasheet.MSIXPBAOffset); p != 0 {
		t.Errorf("pending bits %#x were written", p)
	}
	if n := counter(t, d, datasheet.CounterBadRegisterAccesses) - before; n != 1 {
		t.Errorf("%d bad accesses", n)
	}
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
				if err := d.SetIRQs(vfio.IRQMSIX, receiveVector, []int{fd.FD()}); err != nil {
					t.Fatal(err)
				}
				// One less than none was taken.
				word := binary.LittleEndian.AppendUint32(nil, datasheet.ArmWord(0xffffffff))
				write(t, d, vfio.RegionBAR2, datasheet.EndpointPage(h.createVI())+datasheet.DoorbellRecvArm, word)
				h.poll()
				if !signalled(fd) {
					t.Error("no interrupt")
				}
				h.poll()
				if signalled(fd) {
					t.Error("a second interrupt without arming again")
				}
			})
		}
	}
}

func TestErrorEvent(t *testing.T) {
	d := newDevice(t, nil)
	h := newAdminHost(t, d)
	failed := newEventfd(t)
	if err := d.SetIRQs(vfio.IRQErr, 0, []int{failed.FD()}); err != nil {
		t.Fatal(err)
	}
	h.write(datasheet.RegSQProducer, 1000)
	if !signalled(failed) {
		t.Error("a fault does not signal the error interrupt")
	}
	if s := deviceStatus(t, d); s&datasheet.DeviceFatal == 0 {
		t.Errorf("status %#x", s)
	}
	if err := errors.Join(d.DisableIRQs(vfio.IRQErr), d.DisableIRQs(vfio.IRQReq)); err != nil {
		t.Error(err)
	}
}
