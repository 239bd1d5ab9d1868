package guest

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// floodType is the EtherType of frames that are not counted.
const floodType = 0x88b6

// flood makes Linux send frames as fast as it can, until it is stopped, and waits then until all
// have gone.
func (l *peer) flood(to ethernet.MAC) (stop func()) {
	l.t.Helper()
	fd := l.packets(floodType)
	var ends atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, 1514)
		for n := uint32(0); !ends.Load(); n++ {
			f := number(b, to, l.mac, n)
			binary.BigEndian.PutUint16(f[12:], floodType)
			if _, err := unix.Write(fd, f); err != nil {
				time.Sleep(time.Millisecond) // no room, or no link
			}
		}
	}()
	end := func() {
		ends.Store(true)
		<-ended
	}
	l.t.Cleanup(end)
	return func() {
		end()
		l.settled(fd)
	}
}

// loop sends back all that comes, which counts it.
func loop(t *testing.T, port ethernet.Port, l *peer) (*worker, *atomic.Uint64) {
	t.Helper()
	var n atomic.Uint64
	own := port.MAC()
	w := work(t, port.Queue(0), func(_ *ethernet.Frame, b []byte) bool {
		n.Add(1)
		copy(b, l.mac[:])
		copy(b[6:], own[:])
		return true
	})
	return w, &n
}

// more waits until a counter has grown by so many.
func more(t *testing.T, what string, n *atomic.Uint64, by uint64) {
	t.Helper()
	from := n.Load()
	waittest.Until(t, what, func() bool { return n.Load() >= from+by })
}

// TestPairFlaps pulls the cable again and again, with frames under way.
func TestPairFlaps(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		l := p.linux(t)
		port := p.open(t, ethernet.Options{})
		stop := l.flood(port.MAC())
		w, n := loop(t, port, l)
		if p.name == "packed" {
			// QEMU 11.1 counts frames that it drops of a packed ring without link as used
			// twice, until it wants to be reset: nothing is sent here meanwhile.
			must.OK(t, w.end())
			w = work(t, port.Queue(0), func(*ethernet.Frame, []byte) bool { n.Add(1); return false })
		}
		t.Cleanup(func() { monitor("set_link " + p.cable + " on") })
		isUp := func() bool {
			link := must.Get(port.Link())(t)
			return link.Up
		}
		for range 3 {
			more(t, "frames come", n, 100)
			monitor("set_link " + p.cable + " off")
			waittest.Until(t, "the link goes down", func() bool { return !isUp() })
			monitor("set_link " + p.cable + " on")
			waittest.Until(t, "the link comes up", isUp)
		}
		for range 10 { // faster than the NIC sees it
			monitor("set_link " + p.cable + " off")
			monitor("set_link " + p.cable + " on")
		}
		stop()
		// QEMU obeys in order: when the other end has lost its link all flaps are over.
		monitor("set_link " + p.end + " off")
		waittest.Until(t, "Linux's link goes down", func() bool { return !l.isUp() })
		monitor("set_link " + p.end + " on")
		waittest.Until(t, "Linux's link comes up", l.isUp)
		waittest.Until(t, "the link comes up", isUp)
		must.OK(t, w.end())
		flows(t, port, l)
		c := port.Stats()
		should.Hold(t, c.Restarts == 0 && c.Queues[0].ReceiveErrors+c.Queues[0].BadLengths+c.Queues[0].Unended == 0, "counted %+v", c)
	})
}

// TestPairReset resets our NIC under load.
func TestPairReset(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		l := p.linux(t)
		port := p.open(t, ethernet.Options{})
		stop := l.flood(port.MAC())
		w, n := loop(t, port, l)
		for range 5 {
			more(t, "frames come", n, 100)
			must.OK(t, port.Restart(within(t)))
		}
		more(t, "frames come", n, 100)
		stop()
		must.OK(t, w.end())
		must.Get(ethernet.WaitLink(within(t), port))(t)
		before := port.Stats()
		flows(t, port, l)
		c := port.Stats()
		// A frame that was taken was sent, or lost in a ring that was reset.
		should.Hold(t, c.Restarts == 5 && c.Queues[0].Restarts == 0 && c.Queues[0].Lost == before.Queues[0].Lost &&
			c.Queues[0].ReceiveErrors+c.Queues[0].BadLengths+c.Queues[0].Unended == 0, "counted %+v", c)
		t.Logf("%d frames sent back, %d lost in rings that were reset", c.Queues[0].SentFrames, c.Queues[0].Lost)
	})
}

// goes waits for the end of a port whose device is being taken away, and closes it.
func goes(t *testing.T, port ethernet.Port, w *worker) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- w.wait() }()
	var err error
	select {
	case err = <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the queue goes on")
	}
	check := func(what string, err error) {
		t.Helper()
		var e *ethernet.Error
		should.Hold(t, errors.Is(err, ethernet.ErrDeviceGone) && errors.As(err, &e), "%s: %v", what, err)
	}
	check("the queue", err)
	t.Log(err)
	_, err = port.Link()
	check("link", err)
	check("wait", port.Queue(0).Wait(within(t)))
	_, err = port.Queue(0).Receive(make([]ethernet.Frame, 1))
	check("receive", err)
	c := port.Stats()
	should.Hold(t, c.Queues[0].ReceivedFrames != 0 && c.Device == nil, "counted %+v", c)
	should.OK(t, port.Close())
}

// anew calls add until our NIC is there again, and has it work.
func (p pair) anew(t *testing.T, l *peer, add func()) {
	t.Helper()
	want := len(find(t, p.id)) + 1
	added := time.Time{}
	waittest.Until(t, "the NIC is there again", func() bool {
		if time.Since(added) > time.Second {
			added = time.Now()
			add()
		}
		return len(find(t, p.id)) == want
	})
	flows(t, p.open(t, ethernet.Options{}), l)
}

// TestPairRemoved: our NIC is pulled out. Nobody is told; its registers are all ones.
func TestPairRemoved(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		l := p.linux(t)
		function := p.ours(t)
		slot := slotOf(t, function)
		// Else Linux waits a minute for what is gone to answer after a reset.
		write(t, "\n", pciDevices, function, "reset_method")
		t.Run("under load", func(t *testing.T) {
			port := p.open(t, ethernet.Options{})
			l := l.in(t)
			l.flood(port.MAC())
			w, n := loop(t, port, l)
			more(t, "frames come", n, 100)
			slot.set(t, slotOff)
			goes(t, port, w)
		})
		// Linux still believes that it is there.
		bind(t, function, "none")
		write(t, "1", pciDevices, function, "remove")
		slot.set(t, slotOn)
		p.anew(t, l, func() { write(t, "1", "/sys/bus/pci/rescan") })
	})
}

// TestPairUnplug: QEMU takes our NIC away in good order. Linux asks for it, and the port
// ends with that as the reason.
func TestPairUnplug(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		l := p.linux(t)
		function := p.ours(t)
		t.Run("under load", func(t *testing.T) {
			port := p.open(t, ethernet.Options{})
			l := l.in(t)
			l.flood(port.MAC())
			w, n := loop(t, port, l)
			more(t, "frames come", n, 100)
			monitor("device_del " + p.cable)
			goes(t, port, w)
			waittest.Until(t, "it is gone", func() bool {
				_, err := os.Stat(filepath.Join(pciDevices, function))
				return errors.Is(err, os.ErrNotExist)
			})
		})
		// QEMU lets go of the old one when Linux has, which takes a moment.
		p.anew(t, l, func() { monitor("device_add " + p.again) })
	})
}

// Slot Control of a root port (PCI Express Base Specification, Slot Control Register): power
// and its indicator, on and off.
const (
	slotControl = 0x18 // in the Express capability
	slotOn      = 0x0100
	slotOff     = 0x0700
)

// portSlot is the slot of a root port: its configuration space, and where its control is.
type portSlot struct {
	name string
	at   int64
}

// slotOf returns the slot that a function is in.
func slotOf(t *testing.T, function string) portSlot {
	t.Helper()
	target := must.Get(os.Readlink(filepath.Join(pciDevices, function)))(t)
	name := filepath.Join(pciDevices, filepath.Base(filepath.Dir(target)), "config")
	space := must.Get(os.ReadFile(name))(t)
	at := int(space[0x34])
	for range 48 {
		if at == 0 || space[at] == 0x10 {
			break
		}
		at = int(space[at+1])
	}
	return portSlot{name, int64(at + slotControl)}
}

func (s portSlot) set(t *testing.T, value uint16) {
	t.Helper()
	f := must.Get(os.OpenFile(s.name, os.O_WRONLY, 0))(t)
	defer f.Close()
	must.Get(f.WriteAt(binary.LittleEndian.AppendUint16(nil, value), s.at))(t)
}
