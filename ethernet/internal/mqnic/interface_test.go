package mqnic_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/fakemqnic"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// boards are the devices at addresses of scheme fake-mqnic, by path.
var boards sync.Map

func init() {
	vfio.Register("fake-mqnic", func(_ context.Context, a vfio.Address) (vfio.Device, error) {
		d, ok := boards.LoadAndDelete(a.Path)
		if !ok {
			return nil, vfio.ErrDeviceGone
		}
		return d.(vfio.Device), nil
	})
}

// openAt opens a port at an address and closes it at the end of the test.
func openAt(t testing.TB, address string, c ethernet.Options) ethernet.Port {
	t.Helper()
	p := must.Get(ethernet.Open(contextFor(t), address, config(t, c)))(t)
	t.Cleanup(func() {
		should.OK(t, p.Close())
	})
	return p
}

// TestInterfaces makes the interfaces of one board be ports of their own: frames, interrupts and filters
// do not mix, and one goes on when the other is closed.
func TestInterfaces(t *testing.T) {
	d := newFake(t, fakemqnic.Options{Interfaces: 2})
	boards.Store("two", d)
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	mac := ethernet.MAC{2, 0, 0, 0, 0, 2}
	a := openAt(t, "fake-mqnic:two?interface=0", ethernet.Options{Pool: pool, Interrupts: true, Queues: 2})
	b := openAt(t, "fake-mqnic:two?interface=1", ethernet.Options{Pool: pool, Interrupts: true, Queues: 2, MAC: mac})
	should.Hold(t, a.Info().Vectors == 2 && b.Info().Vectors == 2 && b.Info().Device == "fake-mqnic:two?interface=1",
		"%+v and %+v", a.Info(), b.Info())
	var sent [2]int
	d.With(func() { d.OnSend = func(s fakemqnic.Sent) { sent[s.Interface]++ } })
	ports := [2]ethernet.Port{a, b}
	exchange := func(k int) {
		t.Helper()
		p := ports[k]
		before := sent[k]
		porttest.SendOne(t, p.Queue(0), porttest.FrameTo(own, 60))
		should.Be(t, sent[k], before+1, "interface %d has sent %d", k, sent[k]-before)
		interrupts := p.Stats().Queues[0].Interrupts
		waittest.Until(t, "an interrupt", func() bool {
			var arrival sync.WaitGroup
			arrival.Go(func() {
				time.Sleep(time.Millisecond)
				d.Arrive(k, porttest.FrameTo(p.MAC(), 60+k))
			})
			must.OK(t, p.Queue(0).Wait(contextFor(t)))
			arrival.Wait()
			frames, _ := porttest.ReceiveAll(t, p.Queue(0))
			return len(frames) == 1 && frames[0].Length == uint16(60+k) && p.Stats().Queues[0].Interrupts > interrupts
		})
	}
	exchange(0)
	exchange(1)
	must.OK(t, a.Close())
	exchange(1)
	must.OK(t, b.Restart(contextFor(t)))
	exchange(1)
	// The interface that was closed can be opened again.
	ports[0] = openAt(t, "fake-mqnic:two?interface=0", ethernet.Options{Pool: pool, Interrupts: true})
	exchange(0)
	exchange(1)
	_, err := ethernet.Open(contextFor(t), "fake-mqnic:two?interface=1", config(t, ethernet.Options{}))
	should.Fail(t, err, ethernet.ErrInUse, "opened twice")
}

// TestNoSuchInterface: the error says which there are.
func TestNoSuchInterface(t *testing.T) {
	boards.Store("one", newFake(t, fakemqnic.Options{}))
	for address, tt := range map[string]struct {
		want error
		says string
	}{
		"fake-mqnic:one?interface=1":   {ethernet.ErrConfig, "0 to 0"},
		"fake-mqnic:one?interface=8":   {vfio.ErrBadAddress, "0 to 7"},
		"fake-mqnic:one?interface=-1":  {vfio.ErrBadAddress, "0 to 7"},
		"fake-mqnic:one?interface=two": {vfio.ErrBadAddress, `"two"`},
	} {
		p, err := ethernet.Open(contextFor(t), address, config(t, ethernet.Options{}))
		should.Hold(t, p == nil && errors.Is(err, tt.want) && strings.Contains(err.Error(), tt.says), "%s: %v", address, err)
	}
}

// TestVFIOUser drives a device in the way of a simulation of gates: a server of vfio-user, where each
// access to a register is a message, and queues take their time to end.
func TestVFIOUser(t *testing.T) {
	d := must.Get(fakemqnic.New(fakemqnic.Options{Queues: 4}))(t)
	slow := 0
	d.OnRead = func(offset uint64, v uint32) uint32 {
		if offset == d.RX(0, 0)+8 && slow < 10 && v&1 == 0 {
			slow++
			v |= 1 << 3
		}
		return v
	}
	d.OnSend = func(s fakemqnic.Sent) { go d.Arrive(0, s.Bytes) } // a loop on the wire
	path := serve(t, d)
	for range 2 { // the second finds what the first has left
		p := must.Get(ethernet.Open(contextFor(t), "vfio-user:"+path, config(t, ethernet.Options{Interrupts: true})))(t)
		q := p.Queue(0)
		for i := range 100 {
			want := porttest.FrameTo(own, 60+i)
			porttest.SendOne(t, q, want)
			var data [][]byte
			for len(data) == 0 {
				must.OK(t, q.Wait(contextFor(t)))
				_, data = porttest.ReceiveAll(t, q)
			}
			porttest.Same(t, [][]byte{want}, data)
		}
		must.OK(t, p.Close())
	}
	should.Be(t, slow, 10, "reads of a queue that was to end")
}
