package vfiouser_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// startCopy has the device copy n bytes, over and over.
func (x *rawClient) startCopy(from, to uint64, n int) {
	x.t.Helper()
	x.ok(cmdRegionWrite, pack(uint64(regSource), 0, 8, from))
	x.ok(cmdRegionWrite, pack(uint64(regTarget), 0, 8, to))
	x.ok(cmdRegionWrite, pack(uint64(regLength), 0, 4, n))
	x.ok(cmdRegionWrite, pack(uint64(regStart), 0, 4, 2))
	x.copies(3)
}

func (x *rawClient) register(at int) uint32 {
	x.t.Helper()
	return binary.LittleEndian.Uint32(x.ok(cmdRegionRead, pack(uint64(at), 0, 4)).payload[16:])
}

// copies waits until the device has done n more copies.
func (x *rawClient) copies(n uint32) {
	x.t.Helper()
	first := x.register(regCopies)
	waittest.Until(x.t, "copies go on", func() bool { return x.register(regCopies)-first >= n })
}

// leave ends the connection and waits until nothing is left of it.
func (x *rawClient) leave(r *running) {
	x.t.Helper()
	must.OK(x.t, x.c.Close())
	r.idle(x.t)
	r.holds(x.t, 0, 0)
}

// TestTruncation: a client cuts its memory off while the device copies it.
func TestTruncation(t *testing.T) {
	sealable := func(t *testing.T) int { return memfd(t, 64*page, unix.MFD_ALLOW_SEALING) }
	for _, tt := range []struct {
		name   string
		file   func(t *testing.T) int
		sealed bool
	}{
		{"file that can be sealed", sealable, true},
		{"file that cannot be sealed", func(t *testing.T) int { return memfd(t, 64*page, 0) }, false},
		{"file with a name", func(t *testing.T) int {
			f, err := os.CreateTemp("/dev/shm", "trapeze-test-*")
			if err != nil {
				t.Skip("there is no /dev/shm")
			}
			t.Cleanup(func() { _ = f.Close() })
			must.OK(t, errors.Join(os.Remove(f.Name()), f.Truncate(64*page)))
			return int(f.Fd())
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := serve(t, vfiouser.ServerOptions{})
			x := connect(t, r, true)
			fd := tt.file(t)
			x.ok(cmdDMAMap, dmaMap(3, 0, 0x100000, 64*page), fd)
			x.startCopy(0x100000, 0x100000+32*page, 32*page)
			err := unix.Ftruncate(fd, page)
			if tt.sealed {
				should.Fail(t, err, unix.EPERM, "truncating")
				x.copies(3)
				x.leave(r)
				return
			}
			must.OK(t, err)
			waittest.Until(t, "the device has met the hole", func() bool { return x.register(regFaults) > 0 })
			x.alive()
			// What is left can still be used, and the file cannot be mapped again.
			x.refuses(unix.EINVAL, cmdDMAMap, dmaMap(3, 0, 0x900000, 64*page), fd)
			x.ok(cmdDMAMap, dmaMap(3, 0, 0x200000, page), fd)
			x.startCopy(0x200000, 0x200000+page/2, page/2)
			// In the middle of a register access, too: the server's goroutine copies.
			must.OK(t, unix.Ftruncate(fd, 0))
			x.ok(cmdRegionWrite, pack(uint64(regStart), 0, 4, 1))
			x.alive()
			x.leave(r)
			connect(t, r, true).alive()
		})
	}
}

// TestDeathInMessage: the connection ends after each byte of a message.
func TestDeathInMessage(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	fd := memfd(t, page, 0)
	message := append(header(1, cmdDMAMap, 48, 0), dmaMap(3, 0, 0x10000, page)...)
	for n := range message {
		x := connect(t, r, true)
		x.ok(cmdDMAMap, dmaMap(3, 0, 0x20000, page), fd)
		must.OK(t, x.write(message[:n], fd))
		x.leave(r)
	}
	connect(t, r, true).alive()
}

// TestManyRanges: as many as the protocol allows.
func TestManyRanges(t *testing.T) {
	o, most := vfiouser.ServerOptions{}, uint64(soak.Count(2000, 65535))
	if !soak.Wanted() { // otherwise the default
		o.Limits.Ranges = int(most)
	}
	r := serve(t, o)
	x := connect(t, r, true)
	fd := memfd(t, int64(most*page), 0)
	for i := range most {
		x.send(uint16(i), cmdDMAMap, flagNoReply, dmaMap(3, i*page, i*page, page), fd)
	}
	x.alive()
	s := r.Stats()
	should.Hold(t, s.Ranges == int(most) && s.Files == 1 && s.Errors == 0, "%+v", s)
	x.refuses(unix.ENOSPC, cmdDMAMap, dmaMap(3, 0, 1<<40, page), fd)
	should.Same(t, x.ok(cmdDMAUnmap, dmaUnmap(0, 0, page)).payload, dmaUnmap(0, 0, page))
	x.ok(cmdDMAMap, dmaMap(3, 0, 1<<40, page), fd)
	x.leave(r)
}

// TestUnmapDuringDMA: when the reply has come, the device keeps its hands off.
func TestUnmapDuringDMA(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	x := connect(t, r, true)
	source, target := memfd(t, 64*page, 0), memfd(t, 64*page, 0)
	mine := must.Get(unix.Mmap(target, 0, 64*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	defer unix.Munmap(mine)
	must.Get(unix.Pwrite(source, bytes.Repeat([]byte{0xaa}, 64*page), 0))(t)
	x.ok(cmdDMAMap, dmaMap(1, 0, 0x100000, 64*page), source)
	for range 50 {
		x.ok(cmdDMAMap, dmaMap(3, 0, 0x200000, 64*page), target)
		x.startCopy(0x100000, 0x200000, 64*page)
		x.ok(cmdDMAUnmap, dmaUnmap(0, 0x200000, 64*page))
		clear(mine)
		time.Sleep(200 * time.Microsecond)
		i := bytes.IndexByte(mine, 0xaa)
		must.Hold(t, i < 0, "byte %d is written after the memory was unmapped", i)
	}
	should.Hold(t, x.register(regFaults) != 0, "the device has met no unmapped memory")
	// And going away while it runs.
	x.ok(cmdDMAMap, dmaMap(3, 0, 0x200000, 64*page), target)
	x.startCopy(0x100000, 0x200000, 64*page)
	x.leave(r)
}

// TestFloods: doorbells by message and by memory.
func TestFloods(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	x := connect(t, r, true)
	for range 20000 {
		x.send(0, cmdRegionWrite, flagNoReply, pack(uint64(doorbell), 4, 4, 5))
	}
	a := x.ok(cmdGetRegionInfo, pack(32, 0, 4, 0, uint64(0), uint64(0)))
	bar := must.Get(unix.Mmap(a.fds[0], 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	defer unix.Munmap(bar)
	for i := range 100000 {
		bar[doorbell+1] = byte(i)
	}
	x.alive()
	x.leave(r)
}

// TestStubbornEventfd: an eventfd that blocks its writer does not hold up the
// device for ever.
func TestStubbornEventfd(t *testing.T) {
	leaktest.Parallel(t)
	r := serve(t, vfiouser.ServerOptions{})
	x := connect(t, r, true)
	fd := eventfd(t, 0, unix.EFD_NONBLOCK)
	must.Get(unix.Write(fd, binary.NativeEndian.AppendUint64(nil, math.MaxUint64-1)))(t)
	x.ok(cmdSetIRQs, pack(20, 0x24, 2, 0, 1), fd)
	x.ok(cmdSetIRQs, pack(20, 0x24, 4, 0, 1), fd)
	// The server has seen to it that it does not block; the client undoes that.
	must.OK(t, unix.SetNonblock(fd, false))
	x.ok(cmdSetIRQs, pack(20, 0x21, 2, 0, 1)) // the server itself would wait
	x.send(0, cmdRegionWrite, 0, pack(uint64(regStart), 0, 4, 1))
	_, err := x.receive()
	should.OK(t, err)
	x.leave(r)
	connect(t, r, true).alive()
}
