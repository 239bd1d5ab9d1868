package vfiouser_test

import (
	"math"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// TestRefused sends messages of every type that are wrong. Each gets the
// protocol's error, and the connection lives.
func TestRefused(t *testing.T) {
	const einval = uint32(unix.EINVAL)
	r := serve(t, vfiouser.ServerOptions{})
	event := eventfd(t, 0, unix.EFD_NONBLOCK)
	mem := memfd(t, 16*page, unix.MFD_ALLOW_SEALING)
	null := must.Get(os.Open(os.DevNull))(t)
	defer null.Close()
	disk := must.Get(os.Create(t.TempDir() + "/disk"))(t)
	defer disk.Close()
	must.OK(t, disk.Truncate(page))
	version := func(text string) []byte { return pack(uint16(0), uint16(0), text) }
	irqs := func(flags, index, start, count int, rest ...any) []byte {
		return append(pack(20+len(pack(rest...)), flags, index, start, count), pack(rest...)...)
	}
	region := func(offset uint64, index, count int, data ...any) []byte {
		return append(pack(offset, index, count), pack(data...)...)
	}
	tests := []struct {
		name    string
		command int
		payload []byte
		fds     []int
		errno   uint32
	}{
		{"version again", cmdVersion, version(versionText), nil, einval},

		{"map of nothing at all", cmdDMAMap, nil, nil, einval},
		{"map cut off", cmdDMAMap, dmaMap(3, 0, 0x20000, page)[:31], []int{mem}, einval},
		{"map too long", cmdDMAMap, append(dmaMap(3, 0, 0x20000, page), 0), []int{mem}, einval},
		{"map with small argsz", cmdDMAMap, pack(16, 3, uint64(0), uint64(0x20000), uint64(page)), []int{mem}, einval},
		{"map with two files", cmdDMAMap, dmaMap(3, 0, 0x20000, page), []int{mem, mem}, einval},
		{"map without rights", cmdDMAMap, dmaMap(0, 0, 0x20000, page), []int{mem}, einval},
		{"map with unknown flags", cmdDMAMap, dmaMap(0x13, 0, 0x20000, page), []int{mem}, einval},
		{"map of no bytes", cmdDMAMap, dmaMap(3, 0, 0x20000, 0), []int{mem}, einval},
		{"map that wraps", cmdDMAMap, dmaMap(3, 0, math.MaxUint64&^(page-1), 2*page), []int{mem}, einval},
		{"map whose offset wraps", cmdDMAMap, dmaMap(3, math.MaxUint64&^(page-1), 0x20000, 2*page), []int{mem}, einval},
		{"map of half a page", cmdDMAMap, dmaMap(3, 0, 0x20000, page/2), []int{mem}, einval},
		{"map at half a page", cmdDMAMap, dmaMap(3, 0, 0x20800, page), []int{mem}, einval},
		{"map at half a page of the file", cmdDMAMap, dmaMap(3, 0x800, 0x20000, page), []int{mem}, einval},
		{"map behind the end of the file", cmdDMAMap, dmaMap(3, 16*page, 0x20000, page), []int{mem}, einval},
		{"map of more than the file", cmdDMAMap, dmaMap(3, 0, 0x20000, 17*page), []int{mem}, einval},
		{"map of all addresses", cmdDMAMap, dmaMap(3, 0, 0, math.MaxUint64&^(page-1)), []int{mem}, uint32(unix.EEXIST)},
		{"map of a device", cmdDMAMap, dmaMap(3, 0, 0x20000, page), []int{int(null.Fd())}, einval},
		{"map of an eventfd", cmdDMAMap, dmaMap(3, 0, 0x20000, page), []int{event}, einval},
		{"map of a file on a disk", cmdDMAMap, dmaMap(3, 0, 0x20000, page), []int{int(disk.Fd())}, einval},
		{"map over the start of another", cmdDMAMap, dmaMap(3, 0, 0xf000, 2*page), []int{mem}, uint32(unix.EEXIST)},
		{"map within another", cmdDMAMap, dmaMap(3, 0, 0x11000, page), []int{mem}, uint32(unix.EEXIST)},
		{"map of another's addresses with other rights", cmdDMAMap, dmaMap(1, 0, 0x10000, 2*page), []int{mem}, uint32(unix.EEXIST)},

		{"unmap cut off", cmdDMAUnmap, dmaUnmap(0, 0x10000, page)[:23], nil, einval},
		{"unmap with file", cmdDMAUnmap, dmaUnmap(0, 0x10000, 2*page), []int{mem}, einval},
		{"unmap with small argsz", cmdDMAUnmap, pack(8, 0, uint64(0x10000), uint64(2*page)), nil, einval},
		{"unmap with bitmap", cmdDMAUnmap, pack(48, 1, uint64(0x10000), uint64(2*page), uint64(page), uint64(8), uint64(0)), nil, einval},
		{"unmap of half a mapping", cmdDMAUnmap, dmaUnmap(0, 0x10000, page), nil, einval},
		{"unmap of the other half", cmdDMAUnmap, dmaUnmap(0, 0x11000, page), nil, einval},
		{"unmap that wraps", cmdDMAUnmap, dmaUnmap(0, 0x10000, math.MaxUint64&^(page-1)), nil, einval},
		{"unmap of nothing", cmdDMAUnmap, dmaUnmap(0, 0x10000, 0), nil, einval},
		{"unmap of half a page", cmdDMAUnmap, dmaUnmap(0, 0x30000, page/2), nil, einval},
		{"unmap with all flags", cmdDMAUnmap, dmaUnmap(3, 0, 0), nil, einval},
		{"unmap of all at an address", cmdDMAUnmap, dmaUnmap(2, 0x10000, 0), nil, einval},
		{"unmap of all of a range", cmdDMAUnmap, dmaUnmap(2, 0x10000, 2*page), nil, einval},

		{"device info cut off", cmdGetInfo, pack(16, 0, 0), nil, einval},
		{"device info with small argsz", cmdGetInfo, pack(8, 0, 0, 0), nil, einval},
		{"device info too long", cmdGetInfo, pack(16, 0, 0, 0, 0), nil, einval},
		{"device info with file", cmdGetInfo, pack(16, 0, 0, 0), []int{mem}, einval},
		{"region info cut off", cmdGetRegionInfo, pack(32, 0, 0), nil, einval},
		{"region info of no region", cmdGetRegionInfo, pack(32, 0, 9, 0, uint64(0), uint64(0)), nil, einval},
		{"region info of the last region", cmdGetRegionInfo, pack(32, 0, -1, 0, uint64(0), uint64(0)), nil, einval},
		{"io fds, which the server does not have", cmdGetRegionIOFDs, pack(16, 0, 0, 0), nil, einval},
		{"irq info cut off", cmdGetIRQInfo, pack(16, 0, 2), nil, einval},
		{"irq info too long", cmdGetIRQInfo, pack(16, 0, 2, 0, 0), nil, einval},
		{"region info with small argsz", cmdGetRegionInfo, pack(31, 0, 0, 0, uint64(0), uint64(0)), nil, einval},
		{"irq info of no index", cmdGetIRQInfo, pack(16, 0, 5, 0), nil, einval},

		{"irqs cut off", cmdSetIRQs, pack(20, 0x21, 2, 0), nil, einval},
		{"irqs with small argsz", cmdSetIRQs, pack(3, 0x21, 2, 0, 0), nil, einval},
		{"irqs of no index", cmdSetIRQs, irqs(0x24, 5, 0, 1), []int{event}, einval},
		{"irqs of an index without vectors", cmdSetIRQs, irqs(0x24, 0, 0, 1), []int{event}, einval},
		{"irqs with two actions", cmdSetIRQs, irqs(0x31, 2, 0, 1), nil, einval},
		{"irqs with two kinds of data", cmdSetIRQs, irqs(0x23, 2, 0, 1), nil, einval},
		{"irqs with no action", cmdSetIRQs, irqs(0x04, 2, 0, 1), []int{event}, einval},
		{"irqs with no data", cmdSetIRQs, irqs(0x20, 2, 0, 1), nil, einval},
		{"mask of no vector", cmdSetIRQs, irqs(0x09, 2, 0, 0), nil, einval},
		{"eventfds in the message", cmdSetIRQs, irqs(0x24, 2, 0, 1, 5), nil, einval},
		{"irqs with unknown flag", cmdSetIRQs, irqs(0x64, 2, 0, 1), []int{event}, einval},
		{"irqs behind the last", cmdSetIRQs, irqs(0x24, 2, 40, 1), []int{event}, einval},
		{"irqs over the last", cmdSetIRQs, irqs(0x24, 2, 39, 2), []int{event, event}, einval},
		{"irqs that wrap", cmdSetIRQs, irqs(0x24, 2, 1, -1), []int{event}, einval},
		{"fewer eventfds than vectors", cmdSetIRQs, irqs(0x24, 2, 0, 2), []int{event}, einval},
		{"more eventfds than vectors", cmdSetIRQs, irqs(0x24, 2, 0, 1), []int{event, event}, einval},
		{"more eventfds than the server takes", cmdSetIRQs, irqs(0x24, 2, 0, 17), manyOf(event, 17), einval},
		{"eventfd with no data", cmdSetIRQs, irqs(0x21, 2, 0, 1), []int{event}, einval},
		{"eventfd with bools", cmdSetIRQs, irqs(0x22, 2, 0, 1, "\x01"), []int{event}, einval},
		{"eventfd that is none", cmdSetIRQs, irqs(0x24, 2, 0, 1), []int{mem}, einval},
		{"one eventfd of two is none", cmdSetIRQs, irqs(0x24, 2, 0, 2), []int{event, int(null.Fd())}, einval},
		{"too few bools", cmdSetIRQs, irqs(0x22, 2, 0, 2, "\x01"), nil, einval},
		{"too many bools", cmdSetIRQs, irqs(0x22, 2, 0, 2, "\x01\x01\x01"), nil, einval},
		{"mask", cmdSetIRQs, irqs(0x09, 2, 0, 1), nil, einval},
		{"unmask", cmdSetIRQs, irqs(0x11, 2, 0, 1), nil, einval},
		{"mask of the error interrupt", cmdSetIRQs, irqs(0x09, 3, 0, 1), nil, einval},
		{"two request interrupts", cmdSetIRQs, irqs(0x24, 4, 0, 2), []int{event, event}, einval},
		{"disable from vector 1 on", cmdSetIRQs, irqs(0x21, 2, 1, 0), nil, einval},
		{"connect no vector", cmdSetIRQs, irqs(0x24, 2, 0, 0), nil, einval},

		{"read cut off", cmdRegionRead, region(0, 0, 4)[:15], nil, einval},
		{"read with data", cmdRegionRead, region(0, 0, 1, "x"), nil, einval},
		{"read with file", cmdRegionRead, region(0, 0, 4), []int{mem}, einval},
		{"read of no region", cmdRegionRead, region(0, 9, 4), nil, einval},
		{"read of the last region", cmdRegionRead, region(0, -1, 4), nil, einval},
		{"read of an empty region", cmdRegionRead, region(0, 1, 4), nil, einval},
		{"read over the end", cmdRegionRead, region(page-3, 0, 4), nil, einval},
		{"read behind the end", cmdRegionRead, region(page, 0, 1), nil, einval},
		{"read that wraps", cmdRegionRead, region(math.MaxUint64-1, 0, 4), nil, einval},
		{"read of more than fits a message", cmdRegionRead, region(0, 0, 1<<20+1), nil, einval},
		{"read of 4 GiB", cmdRegionRead, region(0, 0, -1), nil, einval},
		{"write without data", cmdRegionWrite, region(0, 0, 4), nil, einval},
		{"write of less than said", cmdRegionWrite, region(0, 0, 4, "xyz"), nil, einval},
		{"write of more than said", cmdRegionWrite, region(0, 0, 2, "xyz"), nil, einval},
		{"write over the end", cmdRegionWrite, region(page-3, 0, 4, "wxyz"), nil, einval},
		{"write that wraps", cmdRegionWrite, region(math.MaxUint64-1, 0, 4, "wxyz"), nil, einval},
		{"write to what can be read only", cmdRegionWrite, region(0, vfio.RegionROM, 1, "x"), nil, einval},
		{"write with file", cmdRegionWrite, region(0, 4, 1, "x"), []int{mem}, einval},

		{"DMA read", cmdDMARead, pack(uint64(0x10000), uint64(8)), nil, einval},
		{"DMA write", cmdDMAWrite, pack(uint64(0x10000), uint64(8), "12345678"), nil, einval},
		{"reset with payload", cmdReset, pack(0), nil, einval},
		{"reset with file", cmdReset, nil, []int{mem}, einval},

		{"dirty pages", 14, pack(16, 0, 0, 0), nil, einval},
		{"write multi", 15, pack(uint64(0)), nil, einval},
		{"device feature", 16, pack(8, 0x50001), nil, uint32(unix.EOPNOTSUPP)},
		{"migration data read", 17, pack(8, 8), nil, einval},
		{"migration data write", 18, pack(8, 0), nil, einval},
		{"command 0", 0, nil, nil, einval},
		{"command 19", 19, pack(0), nil, einval},
		{"command 65535", 65535, pack(0, 0, 0, 0), []int{mem}, einval},
		{"message that is too long", cmdRegionWrite, region(0, 0, 2<<20, make([]byte, 2<<20)), []int{mem}, einval},
	}
	x := connect(t, r, true)
	// A mapping and an interrupt that bad messages must not change.
	x.ok(cmdDMAMap, dmaMap(3, page, 0x10000, 2*page), mem)
	x.ok(cmdSetIRQs, irqs(0x24, 2, 0, 1), event)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x.t = t
			before := r.Stats().Errors
			a := x.ask(tt.command, tt.payload, tt.fds...)
			if a.flags != flagReply|flagError || a.errno != tt.errno {
				t.Errorf("%v, want %v", a, unix.Errno(tt.errno))
			}
			if i%2 == 0 { // the same again, without a reply
				x.send(9, tt.command, flagNoReply, tt.payload, tt.fds...)
				before++
			}
			x.alive()
			should.Be(t, r.Stats().Errors, before+1, "errors are counted")
		})
	}
	x.t = t
	s := r.Stats()
	should.Hold(t, s.Ranges == 1 && s.Files == 1 && s.Clients == 1, "afterwards: %+v", s)
	x.ok(cmdSetIRQs, irqs(0x21, 2, 0, 1))
	var count [8]byte
	_, err := unix.Read(event, count[:])
	should.Hold(t, err == nil && count[0] == 1, "the interrupt: %v, %v", count, err)
	must.OK(t, x.c.Close())
	r.stop()
	if log := r.log.String(); strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, "request failed") {
		t.Errorf("the log warns %d times", strings.Count(log, "level=WARN"))
	}
}

func manyOf(fd, n int) []int {
	fds := make([]int, n)
	for i := range fds {
		fds[i] = fd
	}
	return fds
}

// TestBadHeaders: wrong sizes, types and flags.
func TestBadHeaders(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	x := connect(t, r, true)
	for _, tt := range []struct {
		name  string
		bytes []byte
		reply bool
	}{
		{"smaller than a header", header(7, cmdSetIRQs, 15, 0), true},
		{"of no size", header(7, cmdSetIRQs, 0, 0), true},
		{"longer than any message, and all there", append(header(7, cmdSetIRQs, 16+3<<20, 0), make([]byte, 3<<20)...), true},
		{"reply to nothing", header(7, cmdSetIRQs, 16, flagReply), true},
		{"reply without reply", header(7, cmdSetIRQs, 16, flagReply|flagNoReply), true},
		{"error to nothing", header(7, cmdSetIRQs, 16, flagReply|flagError), false},
		{"of type 2", append(header(7, cmdReset, 20, 2), "data"...), true},
		{"with reserved flags", append(header(7, cmdReset, 20, 0x100), "data"...), true},
		{"command with error", header(7, cmdReset, 16, flagError), true},
		{"command with error and without reply", header(7, cmdReset, 16, flagError|flagNoReply), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x.t = t
			must.OK(t, x.write(tt.bytes))
			if tt.reply {
				a, err := x.receive()
				if err != nil || a.id != 7 || a.size != 16 || a.flags != flagReply|flagError || unix.Errno(a.errno) != unix.EINVAL {
					t.Errorf("%v, %v", a, err)
				}
			}
			x.alive()
		})
	}
	r.dev.mu.Lock()
	defer r.dev.mu.Unlock()
	should.Be(t, r.dev.resets, 0, "a bad message has reset the device")
}
