package mqnic_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/fakemqnic"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// TestStrangeEvents: events of queues that are not ours, and of no known type, wake, and do no harm.
// There are more of them than the ring has entries.
func TestStrangeEvents(t *testing.T) {
	d, _, p := rings(t, ethernet.Options{Interrupts: true})
	for i := range 300 {
		d.With(func() { d.Event(0, 0, uint16(i%2*7), 0x1234) })
		if i%50 != 49 {
			continue
		}
		want := porttest.FrameTo(own, 60+i)
		d.Arrive(0, want)
		var data [][]byte
		for len(data) == 0 {
			must.OK(t, p.Queue(0).Wait(contextFor(t)))
			_, data = porttest.ReceiveAll(t, p.Queue(0))
		}
		porttest.Same(t, [][]byte{want}, data)
	}
	c := p.Stats().Queues[0]
	should.Hold(t, c.Restarts == 0, "%+v", c)
}

// TestVectorsOfQueues has each queue woken by its own vector.
func TestVectorsOfQueues(t *testing.T) {
	d := newFake(t, fakemqnic.Options{Queues: 16})
	p := open(t, d, ethernet.Options{Interrupts: true, Queues: 16, ReceiveDescriptors: 64, Moderation: time.Millisecond})
	must.Be(t, p.Info().Vectors, 16, "vectors")
	for i := range 16 {
		waittest.Until(t, "an interrupt", func() bool {
			arrived := make(chan bool, 1)
			go func() { arrived <- d.Deliver(0, i, porttest.FrameTo(own, 60), fakemqnic.Completion{}) }()
			must.OK(t, p.Queue(i).Wait(contextFor(t)))
			<-arrived
			porttest.ReceiveAll(t, p.Queue(i))
			return p.Stats().Queues[i].Interrupts > 0
		})
	}
	d.With(func() {
		should.Be(t, d.Get(fakemqnic.IRQConfig+0x0c), 1000, "the interval is us")
	})
}

// TestRandomMAC: without an address in the options a port has a random one, for stations only.
func TestRandomMAC(t *testing.T) {
	d := newFake(t, fakemqnic.Options{})
	c := config(t, ethernet.Options{})
	c.MAC = ethernet.MAC{}
	p := must.Get(ethernet.New(contextFor(t), d, c))(t)
	defer p.Close()
	m := p.MAC()
	if !m.IsStation() || m[0]&2 == 0 || m != p.Info().MAC {
		t.Errorf("address %v of %v", m, p.Info().MAC)
	}
	d.Arrive(0, porttest.FrameTo(m, 60))
	frames, _ := porttest.ReceiveAll(t, p.Queue(0))
	should.Hold(t, len(frames) == 1, "%d frames", len(frames))
	i := p.Info()
	should.Hold(t, i.Model == "Corundum on Alveo U200" && i.Driver == "mqnic" && !i.Tested, "%+v", i)
}
