package vfiouser_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// TestReadReplies: data that was not asked for is not data.
func TestReadReplies(t *testing.T) {
	for name, payload := range map[string][]byte{
		"nothing":          nil,
		"too little":       protocol.RegionAccess{Count: 2, Data: []byte("ab")}.Append(nil),
		"too much":         protocol.RegionAccess{Count: 8, Data: []byte("abcdefgh")}.Append(nil),
		"less than said":   protocol.RegionAccess{Count: 4, Data: []byte("ab")}.Append(nil),
		"of another place": protocol.RegionAccess{Offset: 4, Count: 4, Data: []byte("abcd")}.Append(nil),
		"of another BAR":   protocol.RegionAccess{Region: 1, Count: 4, Data: []byte("abcd")}.Append(nil),
	} {
		t.Run(name, func(t *testing.T) {
			f := must.Get(newFake(t, func(f *fakeServer) {
				f.regions[0] = make([]byte, page)
				instead(protocol.CommandRegionRead, payload, 0)(f)
			}))(t)
			b := []byte("keep")
			var e *protocol.Error
			err := f.client.ReadRegion(0, 0, b)
			should.Hold(t, errors.As(err, &e) && string(b) == "keep", "got %q, %v", b, err)
		})
	}
}

// TestServerDMA: a server may reach memory by messages.
func TestServerDMA(t *testing.T) {
	leaktest.Check(t)
	f := must.Get(newFake(t, nil))(t)
	mem, next, readOnly := alloc(t, page), alloc(t, page), alloc(t, page)
	must.OK(t, errors.Join(f.client.MapDMA(mem, 0x10000, both), f.client.MapDMA(next, 0x11000, both),
		f.client.MapDMA(readOnly, 0x12000, vfio.DMARead)))
	access := func(address, count uint64, data string) []byte {
		return protocol.DMAAccess{Address: address, Count: count, Data: []byte(data)}.Append(nil)
	}
	const read, write = protocol.CommandDMARead, protocol.CommandDMAWrite
	m := f.request(1, write, 0, access(0x10ffc, 8, "over end"))
	should.Hold(t, m.Header.Failure() == nil && bytes.Equal(m.Payload, access(0x10ffc, 8, "")), "write: %+v", m)
	should.Be(t, string(mem.Bytes()[page-4:])+string(next.Bytes()[:4]), "over end", "the memory was not written")
	m = f.request(2, read, 0, access(0x10ffc, 8, ""))
	should.Hold(t, m.Header.Failure() == nil && bytes.Equal(m.Payload, access(0x10ffc, 8, "over end")), "read: %+v", m)
	m = f.request(3, read, 0, access(0x12000, 4, ""))
	should.OK(t, m.Header.Failure())
	for _, tt := range []struct {
		name    string
		command protocol.Command
		payload []byte
		fds     []int
		want    error
	}{
		{"nothing mapped", read, access(0x20000, 4, ""), nil, syscall.EFAULT},
		{"before the first", read, access(0xfffc, 8, ""), nil, syscall.EFAULT},
		{"over the end", read, access(0x12ffc, 8, ""), nil, syscall.EFAULT},
		{"into read-only memory", write, access(0x11ffc, 8, "12345678"), nil, syscall.EPERM},
		{"wraps", read, access(math.MaxUint64-1, 8, ""), nil, syscall.EINVAL},
		{"too much", read, access(0x10000, 1<<20+1, ""), nil, syscall.E2BIG},
		{"all there is", read, access(0, math.MaxUint64, ""), nil, syscall.E2BIG},
		{"data missing", write, access(0x10000, 8, "1234"), nil, syscall.EINVAL},
		{"cut off", read, access(0x10000, 8, "")[:8], nil, syscall.EINVAL},
		{"with file descriptor", read, access(0x10000, 8, ""), []int{0}, syscall.EINVAL},
		{"not a server's command", protocol.CommandDeviceReset, nil, nil, syscall.ENOSYS},
		{"unknown command", 99, nil, nil, syscall.ENOSYS},
	} {
		if m := f.request(9, tt.command, 0, tt.payload, tt.fds...); m.Header.Failure() != tt.want || len(m.Payload) != 0 {
			t.Errorf("%s: %+v, %v, want %v", tt.name, m, m.Header.Failure(), tt.want)
		}
	}
	should.Be(t, string(next.Bytes()[page-4:]), "\x00\x00\x00\x00", "a write that was refused has written")
	// Without a reply, and in order with what follows.
	must.OK(t, f.conn.Send(protocol.Header{ID: 5, Command: write, Flags: protocol.FlagNoReply}, access(0x10000, 2, "hi"), nil, time.Now().Add(timeout)))
	m = f.request(6, read, 0, access(0x10000, 2, ""))
	should.Hold(t, bytes.HasSuffix(m.Payload, []byte("hi")), "read: %+v", m)
	should.Be(t, f.client.Stats().Requests, 17, "requests")
	must.OK(t, f.client.UnmapDMA(0x10000, page))
	should.Be(t, f.request(7, read, 0, access(0x10000, 2, "")).Header.Failure(), error(syscall.EFAULT), "read of unmapped memory")
}

// TestServerRefuses: the errno of the server reaches the caller, and nothing has
// changed.
func TestServerRefuses(t *testing.T) {
	var errno atomic.Uint32
	f := must.Get(newFake(t, func(f *fakeServer) {
		f.regions[0] = make([]byte, page)
		f.answer = func(m protocol.Message) ([]byte, []int, unix.Errno, bool) {
			if e := unix.Errno(errno.Load()); e != 0 {
				return nil, nil, e, true
			}
			return f.right(m)
		}
	}))(t)
	d, mem, event := f.client, alloc(t, page), newEvent(t)
	must.OK(t, d.MapDMA(mem, 0x10000, both))
	other := alloc(t, page)
	for name, call := range map[string]func() error{
		"read":    func() error { return d.ReadRegion(0, 0, make([]byte, 4)) },
		"write":   func() error { return d.WriteRegion(0, 0, make([]byte, 4)) },
		"irqs":    func() error { return d.SetIRQs(vfio.IRQMSIX, 0, []int{event.FD()}) },
		"disable": func() error { return d.DisableIRQs(vfio.IRQMSIX) },
		"map":     func() error { return d.MapDMA(other, 0x20000, both) },
		"unmap":   func() error { return d.UnmapDMA(0x10000, page) },
		"reset":   func() error { return d.Reset(context.Background()) },
	} {
		errno.Store(uint32(unix.EIO))
		var refused *vfiouser.ServerError
		err := call()
		should.Hold(t, errors.As(err, &refused) && errors.Is(err, unix.EIO), "%s: %v", name, err)
	}
	errno.Store(uint32(unix.EEXIST))
	should.Fail(t, d.MapDMA(other, 0x20000, both), vfio.ErrIOVAInUse, "map what the server has")
	errno.Store(0)
	should.OK(t, errors.Join(d.MapDMA(other, 0x20000, both), d.UnmapDMA(0x10000, page)))
}
