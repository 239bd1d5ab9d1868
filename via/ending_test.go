package via_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// TestClosedAfterTheLastReceive closes a NIC, as a process that ends in order does,
// as soon as it has taken all messages: the sender is told that they were taken, and
// that its peer has disconnected.
func TestClosedAfterTheLastReceive(t *testing.T) {
	for _, wire := range []struct {
		name string
		open func(t testing.TB) (a, b *via.NIC)
	}{
		{"memory", func(t testing.TB) (a, b *via.NIC) { return conform.OnMemory(t, "", via.Options{}) }},
		{"memory, thread", func(t testing.TB) (a, b *via.NIC) { return conform.OnMemory(t, "&engine=thread", via.Options{}) }},
		{"UDP", func(t testing.TB) (a, b *via.NIC) { return onUDP(t, "", via.Options{}) }},
		{"shm", func(t testing.TB) (a, b *via.NIC) { return onSharedMemory(t, "") }},
		{"shm, shared", func(t testing.TB) (a, b *via.NIC) { return onSharedMemory(t, "&share=on") }},
		{"memif", func(t testing.TB) (a, b *via.NIC) { return onMemif(t) }},
	} {
		t.Run(wire.name, func(t *testing.T) {
			for _, n := range []int{1, 16} {
				a, b := wire.open(t)
				p := conform.NewWorld(t, a, b)
				const size = 3000
				x, y := p.Connect(conform.Setup{})
				for i := range n {
					must.OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[i], size*i, size)))
				}
				must.OK(t, x.VI.PostRecv(x.Prepare(t, x.Recv[0], 0, size)))
				done := make(chan error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), conform.Timeout)
					defer cancel()
					done <- sendAll(ctx, t, x, n, size)
				}()
				for range n {
					must.Get(y.VI.RecvWait(conform.Context(t)))(t)
				}
				should.OK(t, b.Close())
				should.OK(t, <-done)
			}
		})
	}
}

// sendAll sends n messages, which must all be taken, and waits for the peer to
// disconnect.
func sendAll(ctx context.Context, t testing.TB, x *conform.End, n, size int) error {
	for i := range n {
		if err := x.VI.PostSend(x.Prepare(t, x.Send[i], size*i, size)); err != nil {
			return err
		}
	}
	for i := range n {
		if _, err := x.VI.SendWait(ctx); err != nil {
			return fmt.Errorf("send %d: %w", i, err)
		}
	}
	if _, err := x.VI.RecvWait(ctx); !errors.Is(err, via.ErrDisconnected) {
		return fmt.Errorf("after the last message: %w", err)
	}
	return nil
}

// onSharedMemory opens two NICs on a wire in shared memory; options start with "&".
func onSharedMemory(t testing.TB, options string) (a, b *via.NIC) {
	address := "emu:?wire=shm:" + filepath.Join(t.TempDir(), "wire") + options
	return openBoth(t, address, address, via.Options{})
}

// onMemif opens two NICs on a memif.
func onMemif(t testing.TB) (a, b *via.NIC) {
	path := filepath.Join(t.TempDir(), "memif.sock")
	return openBoth(t, "emu:?wire=memif:"+path+"&role=server", "emu:?wire=memif:"+path+"&role=client", via.Options{})
}

// TestReasons: what the device says of a lost connection, as an error.
func TestReasons(t *testing.T) {
	for _, c := range []struct {
		code   via.AsyncCode
		detail uint32
		want   via.Code
	}{
		{via.AsyncConnectionLost, uint32(datasheet.ResultSuccess), via.ErrDisconnected},
		{via.AsyncConnectionLost, uint32(datasheet.ResultConnectionLost), via.ErrPeerLost},
		{via.AsyncConnectionLost, uint32(datasheet.ResultDescriptor), via.ErrConnectionBroken},
		{via.AsyncConnectionLost, uint32(datasheet.ResultRemoteDescriptor), via.ErrConnectionBroken},
		{via.AsyncConnectionLost, uint32(datasheet.ResultAborted), via.ErrConnectionBroken},
		{via.AsyncConnectionLost, uint32(datasheet.ResultResource), via.ErrConnectionBroken},
		{via.AsyncConnectionLost, 4711, via.ErrConnectionBroken},
		{via.AsyncConnectionLost, 1 << 16, via.ErrConnectionBroken},
		{via.AsyncLink, 0, 0},
	} {
		got := via.AsyncError{Code: c.code, Detail: c.detail}.Reason()
		for _, end := range []via.Code{via.ErrDisconnected, via.ErrPeerLost, via.ErrConnectionBroken} {
			should.Be(t, errors.Is(got, end), end == c.want, "%v %d: %v, want %v", c.code, c.detail, got, c.want)
		}
		if c.want == 0 && got != nil {
			t.Errorf("%v: %v", c.code, got)
		}
	}
}

// TestClosedWithMessagesLeft closes a NIC that has sent what nobody has a receive
// for: the peer gets what it could take, and is not told that this was all.
func TestClosedWithMessagesLeft(t *testing.T) {
	a, b := conform.OnMemory(t, "", via.Options{})
	p := conform.NewWorld(t, a, b)
	x, y := p.Connect(conform.Setup{})
	must.OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 100)))
	for i := range 2 {
		must.OK(t, x.VI.PostSend(x.Prepare(t, x.Send[i], 0, 100)))
	}
	p.MustTake(y.VI.RecvDone)
	should.OK(t, a.Close())
	must.OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[1], 100, 100)))
	if _, err := y.VI.RecvWait(conform.Context(t)); !errors.Is(err, via.ErrConnectionBroken) || errors.Is(err, via.ErrDisconnected) {
		t.Errorf("behind the last message: %v", err)
	}
}
