package vfiouser_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// instead makes the fake answer one command otherwise.
func instead(c protocol.Command, payload []byte, errno unix.Errno) func(f *fakeServer) {
	return func(f *fakeServer) {
		f.answer = func(m protocol.Message) ([]byte, []int, unix.Errno, bool) {
			if m.Header.Command == c {
				return payload, nil, errno, true
			}
			return f.right(m)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	leaktest.Parallel(t)
	version := func(major, minor uint16) []byte {
		return must.Get(protocol.Version{Major: major, Minor: minor, Capabilities: protocol.DefaultCapabilities()}.Append(nil))(t)
	}
	info := func(flags, regions, irqs uint32) []byte {
		return protocol.DeviceInfo{Argsz: 16, Flags: flags, Regions: regions, IRQs: irqs}.Append(nil)
	}
	region := func(m protocol.RegionInfo) []byte { return m.Append(nil, math.MaxUint32) }
	const (
		ver = protocol.CommandVersion
		inf = protocol.CommandDeviceInfo
		reg = protocol.CommandRegionInfo
		irq = protocol.CommandIRQInfo
	)
	tests := []struct {
		name  string
		setup func(f *fakeServer)
		want  error
	}{
		{"other major version", instead(ver, version(1, 0), 0), syscall.EINVAL},
		{"newer minor version", instead(ver, version(0, 9), 0), syscall.EPROTO},
		{"version of nothing", instead(ver, nil, 0), syscall.EINVAL},
		{"busy", instead(ver, nil, unix.EBUSY), syscall.EBUSY},
		{"no PCI device", instead(inf, info(1, 9, 5), 0), syscall.EPROTO},
		{"too few regions", instead(inf, info(3, 7, 5), 0), syscall.EPROTO},
		{"too many regions", instead(inf, info(3, math.MaxUint32, 5), 0), syscall.EPROTO},
		{"too many interrupts", instead(inf, info(3, 9, math.MaxUint32), 0), syscall.EPROTO},
		{"info cut off", instead(inf, info(3, 9, 5)[:12], 0), syscall.EINVAL},
		{"another region", instead(reg, region(protocol.RegionInfo{Argsz: 32, Index: 8}), 0), syscall.EPROTO},
		{"region that wants all memory", instead(reg, region(protocol.RegionInfo{Argsz: math.MaxUint32}), 0), syscall.EPROTO},
		{"region that wants more and more", func(f *fakeServer) {
			more := uint32(1000)
			f.answer = func(m protocol.Message) ([]byte, []int, unix.Errno, bool) {
				if m.Header.Command == reg {
					more += 1000
					return region(protocol.RegionInfo{Argsz: more}), nil, 0, true
				}
				return f.right(m)
			}
		}, syscall.EPROTO},
		{"region that is refused", instead(reg, nil, unix.EPERM), syscall.EPERM},
		{"another interrupt", instead(irq, protocol.IRQInfo{Argsz: 16, Index: 4}.Append(nil), 0), syscall.EPROTO},
		{"billions of vectors", instead(irq, protocol.IRQInfo{Argsz: 16, Count: math.MaxUint32}.Append(nil), 0), syscall.EPROTO},
		{"errno that is none", instead(inf, nil, 70000), syscall.EINVAL},
		{"reply to another command", func(f *fakeServer) { f.header = func(h *protocol.Header) { h.Command = protocol.CommandDeviceReset } }, syscall.EPROTO},
		{"reply to nothing", func(f *fakeServer) { f.header = func(h *protocol.Header) { h.ID += 100 } }, os.ErrDeadlineExceeded},
		{"reply of a wrong type", func(f *fakeServer) { f.header = func(h *protocol.Header) { h.Flags = 5 } }, os.ErrDeadlineExceeded},
		{"reply that is a command", func(f *fakeServer) { f.header = func(h *protocol.Header) { h.Flags = 0 } }, os.ErrDeadlineExceeded},
		{"error without the type of a reply", func(f *fakeServer) { f.header = func(h *protocol.Header) { h.Flags = protocol.FlagError } }, os.ErrDeadlineExceeded},
		{"no reply", func(f *fakeServer) {
			f.answer = func(protocol.Message) ([]byte, []int, unix.Errno, bool) { return nil, nil, 0, false }
		}, os.ErrDeadlineExceeded},
		{"closed connection", func(f *fakeServer) {
			f.answer = func(protocol.Message) ([]byte, []int, unix.Errno, bool) {
				f.conn.Close()
				return nil, nil, 0, false
			}
		}, vfio.ErrDeviceGone},
		{"file descriptors where there are none", func(f *fakeServer) {
			f.answer = func(m protocol.Message) ([]byte, []int, unix.Errno, bool) {
				b, _, errno, ok := f.right(m)
				return b, []int{0, 0, 0}, errno, ok
			}
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := newFake(t, func(f *fakeServer) {
				if tt.want == os.ErrDeadlineExceeded {
					f.options.Timeout = short
				}
				tt.setup(f)
			})
			var e *vfio.Error
			should.Hold(t, errors.Is(err, tt.want) && (tt.want == nil || errors.As(err, &e)), "got %v, want %v", err, tt.want)
		})
	}
}

// TestUnsafeFiles: a region's file that could vanish, or is too short, is not
// mapped; the region is there all the same.
func TestUnsafeFiles(t *testing.T) {
	file := func(t *testing.T, size, seals int) int {
		fd := must.Get(unix.MemfdCreate("trapeze-region", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
		t.Cleanup(func() { _ = unix.Close(fd) })
		must.OK(t, unix.Ftruncate(fd, int64(size)))
		must.Get(unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals))(t)
		return fd
	}
	null := must.Get(os.Open(os.DevNull))(t)
	defer null.Close()
	disk := must.Get(os.Create(filepath.Join(t.TempDir(), "bar")))(t)
	defer disk.Close()
	must.OK(t, disk.Truncate(2*page))
	for _, tt := range []struct {
		name   string
		fds    []int
		offset uint64
		// wanted by default, and of a server that is trusted
		want, trusted bool
	}{
		{"sealed", []int{file(t, 2*page, unix.F_SEAL_SHRINK)}, page, true, true},
		{"that we can seal", []int{file(t, 2*page, 0)}, 0, true, true},
		{"that cannot be sealed", []int{file(t, 2*page, unix.F_SEAL_SEAL)}, 0, false, true},
		{"on a disk", []int{int(disk.Fd())}, page, false, true},
		{"too short", []int{file(t, page, unix.F_SEAL_SHRINK)}, page, false, false},
		{"too short and not sealed", []int{file(t, page, unix.F_SEAL_SEAL)}, page, false, false},
		{"no file", nil, 0, false, false},
		{"two files", []int{file(t, page, unix.F_SEAL_SHRINK), file(t, page, unix.F_SEAL_SHRINK)}, 0, false, false},
		{"device", []int{int(null.Fd())}, 0, false, false},
	} {
		test := func(t *testing.T, trust, want bool) {
			leaktest.Check(t)
			f, err := newFake(t, func(f *fakeServer) {
				f.options.MapUnsealed = trust
				f.regions[0] = make([]byte, page)
				f.answer = func(m protocol.Message) ([]byte, []int, unix.Errno, bool) {
					b, fds, errno, ok := f.right(m)
					if m.Header.Command == protocol.CommandRegionInfo {
						r, err := protocol.DecodeRegionInfoReply(b)
						should.OK(t, err)
						r.Flags |= vfio.RegionMmap
						r.Offset = tt.offset
						b, fds = r.Append(nil, 32), tt.fds
					}
					return b, fds, errno, ok
				}
			})
			must.OK(t, err)
			info, err := f.client.Region(0)
			must.Hold(t, err == nil && (info.Flags&vfio.RegionMmap != 0) == want, "%+v, %v", info, err)
			should.OK(t, f.client.WriteRegion(0, 0, []byte{1}))
			m, err := f.client.MapRegion(0, 0, page)
			if want {
				m.Bytes()[page-1] = 1
				should.OK(t, m.Close())
			} else if !errors.Is(err, vfio.ErrNotMappable) {
				t.Errorf("MapRegion: %v", err)
			} else if tt.trusted && !strings.Contains(err.Error(), "unsealed=on") {
				t.Errorf("no hint: %v", err)
			}
		}
		t.Run(tt.name, func(t *testing.T) { test(t, false, tt.want) })
		t.Run(tt.name+", trusted", func(t *testing.T) { test(t, true, tt.trusted) })
	}
}

// TestLateReplies: a reply that nobody waits for any more is no reply to anything
// else, and its descriptors are closed.
func TestLateReplies(t *testing.T) {
	leaktest.Check(t)
	var mu sync.Mutex
	var held []protocol.Header
	late := true
	ctx, cancel := context.WithCancel(context.Background())
	f, err := newFake(t, func(f *fakeServer) {
		f.regions[0] = make([]byte, page)
		f.answer = func(m protocol.Message) ([]byte, []int, unix.Errno, bool) {
			mu.Lock()
			defer mu.Unlock()
			if m.Header.Command == protocol.CommandRegionRead && late {
				held = append(held, m.Header)
				cancel()
				return nil, nil, 0, false
			}
			return f.right(m)
		}
	})
	must.OK(t, err)
	err = f.client.ReadRegionContext(ctx, 0, 0, make([]byte, 4))
	must.Hold(t, errors.Is(err, context.Canceled), "got %v", err)
	mu.Lock()
	late = false
	h := held[0]
	mu.Unlock()
	h.Flags = protocol.FlagReply
	wrong := protocol.RegionAccess{Count: 4, Data: []byte("late")}.Append(nil)
	must.OK(t, f.conn.Send(h, wrong, []int{0}, time.Now().Add(timeout)))
	var b [4]byte
	for range 3 {
		err := f.client.ReadRegion(0, 0, b[:])
		should.Hold(t, err == nil && b == [4]byte{}, "got %q, %v", b, err)
	}
	select {
	case <-f.client.Lost():
		t.Error("the connection is lost")
	default:
	}
}

// TestServerWithoutReply: a server that does not answer is given up.
func TestServerWithoutReply(t *testing.T) {
	leaktest.Parallel(t)
	leaktest.Check(t)
	event := newEvent(t)
	var f *fakeServer
	waittest.Until(t, "what is answered is answered in time", func() bool { // not at once where the machine is busy
		var err error
		f, err = newFake(t, func(f *fakeServer) {
			f.options.Timeout = short
			f.regions[0] = make([]byte, page)
			f.answer = func(m protocol.Message) ([]byte, []int, unix.Errno, bool) {
				if m.Header.Command == protocol.CommandRegionRead {
					return nil, nil, 0, false
				}
				return f.right(m)
			}
		})
		return err == nil && f.client.SetIRQs(vfio.IRQMSIX, 0, []int{event.FD()}) == nil
	})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			err := f.client.ReadRegion(0, 0, make([]byte, 4))
			should.Hold(t, errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, vfio.ErrDeviceGone), "got %v", err)
		})
	}
	all.Wait()
	<-f.client.Lost()
	signalled(t, event)
	should.Fail(t, f.client.ReadRegion(0, 0, make([]byte, 4)), vfio.ErrDeviceGone)
	should.Fail(t, f.client.Reset(context.Background()), vfio.ErrDeviceGone, "Reset without a path")
}
