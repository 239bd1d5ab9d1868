package vfiouser_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// fakeServer is a server that does as it is told, right or wrong.
type fakeServer struct {
	t       testing.TB
	conn    *protocol.Conn
	client  client
	regions [9][]byte
	maxData uint32
	options vfiouser.ClientOptions
	// answer makes the reply to a command; the default is right. A nil payload
	// and false mean no reply.
	answer func(m protocol.Message) (payload []byte, fds []int, errno unix.Errno, reply bool)
	// header may change the header of a reply.
	header func(h *protocol.Header)

	mu      sync.Mutex
	replies map[uint16]protocol.Message // to the server's requests
	arrived *sync.Cond
}

// newFake starts a fake server and opens its device.
func newFake(t testing.TB, setup func(f *fakeServer)) (*fakeServer, error) {
	t.Helper()
	f := &fakeServer{t: t, maxData: 1 << 20, options: vfiouser.ClientOptions{Timeout: timeout}, replies: map[uint16]protocol.Message{}}
	f.arrived = sync.NewCond(&f.mu)
	f.answer = f.right
	f.header = func(*protocol.Header) {}
	if setup != nil {
		setup(f)
	}
	here, there := socketPair(t)
	f.conn = protocol.NewConn(here, 16<<20, 16)
	var done sync.WaitGroup
	done.Go(f.run)
	t.Cleanup(func() {
		f.conn.Close()
		done.Wait()
	})
	d, err := vfiouser.New(context.Background(), there, f.options)
	if err == nil {
		f.client = d.(client)
		t.Cleanup(func() { should.OK(t, f.client.Close()) })
	}
	return f, err
}

func (f *fakeServer) run() {
	for {
		m, err := f.conn.Receive()
		var bad *protocol.Error
		if err != nil && !errors.As(err, &bad) {
			return
		}
		passedfd.Close(m.FDs...)
		if m.Header.IsReply() {
			f.mu.Lock()
			m.Payload = append([]byte(nil), m.Payload...)
			f.replies[m.Header.ID] = m
			f.arrived.Broadcast()
			f.mu.Unlock()
			continue
		}
		payload, fds, errno, reply := f.answer(m)
		if !reply {
			continue
		}
		h := protocol.Header{ID: m.Header.ID, Command: m.Header.Command, Flags: protocol.FlagReply}
		if errno != 0 {
			h.Flags |= protocol.FlagError
			h.Errno = uint32(errno)
		}
		f.header(&h)
		if err := f.conn.Send(h, payload, fds, time.Now().Add(timeout)); err != nil {
			return
		}
	}
}

// right is what a server should say.
func (f *fakeServer) right(m protocol.Message) ([]byte, []int, unix.Errno, bool) {
	ok := func(b []byte) ([]byte, []int, unix.Errno, bool) { return b, nil, 0, true }
	switch c := m.Header.Command; c {
	case protocol.CommandVersion:
		v := protocol.Version{Capabilities: protocol.Capabilities{MaxMsgFDs: 8, MaxDataXferSize: f.maxData, MaxDMAMaps: 100, PageSizes: 4096}}
		b, err := v.Append(nil)
		should.OK(f.t, err)
		return ok(b)
	case protocol.CommandDeviceInfo:
		return ok(protocol.DeviceInfo{Argsz: 16, Flags: protocol.DevicePCI | protocol.DeviceReset, Regions: 9, IRQs: 5}.Append(nil))
	case protocol.CommandRegionInfo:
		in, err := protocol.DecodeRegionInfo(m.Payload)
		if err != nil {
			f.t.Error(err)
			return nil, nil, unix.EINVAL, true
		}
		return ok(protocol.RegionInfo{Argsz: 32, Flags: vfio.RegionRead | vfio.RegionWrite, Index: in.Index,
			Size: uint64(len(f.regions[in.Index]))}.Append(nil, 32))
	case protocol.CommandIRQInfo:
		in, err := protocol.DecodeIRQInfo(m.Payload)
		if err != nil {
			f.t.Error(err)
			return nil, nil, unix.EINVAL, true
		}
		return ok(protocol.IRQInfo{Argsz: 16, Index: in.Index, Flags: 1, Count: 4}.Append(nil))
	case protocol.CommandRegionRead, protocol.CommandRegionWrite:
		a, err := protocol.DecodeRegionAccess(c, false, m.Payload)
		if err != nil || a.Count > f.maxData {
			f.t.Errorf("%v: %v", a.Count, err)
			return nil, nil, unix.EINVAL, true
		}
		at := f.regions[a.Region][a.Offset:][:a.Count]
		if c == protocol.CommandRegionWrite {
			copy(at, a.Data)
			a.Data = nil
		} else {
			a.Data = at
		}
		return ok(a.Append(nil))
	case protocol.CommandDMAUnmap:
		return ok(append([]byte(nil), m.Payload...))
	case protocol.CommandDMAMap, protocol.CommandSetIRQs, protocol.CommandDeviceReset:
		return ok(nil)
	}
	return nil, nil, unix.ENOSYS, true
}

// request sends a request to the client and returns the reply.
func (f *fakeServer) request(id uint16, c protocol.Command, flags protocol.Flags, payload []byte, fds ...int) protocol.Message {
	f.t.Helper()
	must.OK(f.t, f.conn.Send(protocol.Header{ID: id, Command: c, Flags: flags}, payload, fds, time.Now().Add(timeout)))
	timer := time.AfterFunc(timeout, f.arrived.Broadcast)
	defer timer.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for deadline := time.Now().Add(timeout); ; f.arrived.Wait() {
		if m, ok := f.replies[id]; ok {
			delete(f.replies, id)
			return m
		}
		must.Hold(f.t, time.Now().Before(deadline), "no reply to %v", c)
	}
}
