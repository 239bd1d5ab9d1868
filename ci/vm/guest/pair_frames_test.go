package guest

import (
	"encoding/binary"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// rawType is the EtherType of numbered frames, one for local experiments.
const rawType = 0x88b5

// Each direction has at most window frames under way, so that no ring of either side, and no
// queue of QEMU's, is ever full: such frames vanish, and nobody counts them. A direction in
// which nothing has moved for stall has lost what is under way. Of the time between two looks
// only longestLook counts: beyond that the guest was not run.
const (
	window      = 64
	stall       = 10 * time.Second
	longestLook = time.Second
)

// number makes a frame from its number, which is in it, and returns its length: 60 to 1514
// bytes in no regular order.
func number(b []byte, to, from ethernet.MAC, n uint32) []byte {
	b = b[:60+n*389%1455]
	copy(b, to[:])
	copy(b[6:], from[:])
	binary.BigEndian.PutUint16(b[12:], rawType)
	binary.BigEndian.PutUint32(b[14:], n)
	for i := 18; i < len(b); i++ {
		b[i] = byte(n>>3) ^ byte(i)
	}
	return b
}

// direction is one way of numbered frames.
type direction struct {
	to, from    ethernet.MAC
	count       uint32
	sent        atomic.Uint32 // how many
	next        atomic.Uint32 // number of the frame that is expected, so how many are over
	came, wrong uint32        // of the receiver
	looked      time.Time     // of the sender
	still       time.Duration // since something has moved
	before      uint32
	want        [1514]byte
}

// take looks at a frame that has come.
func (d *direction) take(b []byte) {
	if len(b) < 18 || binary.BigEndian.Uint16(b[12:]) != rawType {
		return
	}
	n, next := binary.BigEndian.Uint32(b[14:]), d.next.Load()
	if n < next || n >= d.count || string(b) != string(number(d.want[:], d.to, d.from, n)) {
		d.wrong++
		return
	}
	d.came++
	d.next.Store(n + 1)
}

// room is how many more frames may be sent now. Frames that are lost at the end, or all that
// are under way, give way after a while.
func (d *direction) room() uint32 {
	next, sent := d.next.Load(), d.sent.Load()
	now := time.Now()
	if next != d.before || d.looked.IsZero() {
		d.before, d.still = next, 0
	} else if d.still += min(now.Sub(d.looked), longestLook); d.still > stall && sent > next {
		if d.next.CompareAndSwap(next, sent) {
			d.still = 0
		}
	}
	d.looked = now
	return min(window-min(window, sent-next), d.count-sent)
}

func (d *direction) over() bool { return d.next.Load() == d.count }

// exchange sends count numbered frames each way at a time, and returns how many were lost on
// the way to us and to Linux.
func exchange(t *testing.T, port ethernet.Port, l *peer, count uint32) (toUs, toLinux uint32) {
	t.Helper()
	fd := l.packets(rawType)
	in := &direction{to: port.MAC(), from: l.mac, count: count}
	out := &direction{to: l.mac, from: port.MAC(), count: count}
	started := time.Now()
	limit := started.Add(2*time.Minute + time.Duration(count)*20*time.Millisecond)
	var ours, theirs error
	var all sync.WaitGroup
	all.Go(func() { // Linux sends
		b := make([]byte, 1514)
		for !in.over() && theirs == nil && time.Now().Before(limit) {
			if in.room() == 0 {
				time.Sleep(50 * time.Microsecond)
				continue
			}
			if _, err := unix.Write(fd, number(b, in.to, in.from, in.sent.Load())); err == nil {
				in.sent.Add(1)
			} else if !again(err) {
				theirs = err
			}
		}
	})
	all.Go(func() { // Linux receives
		b := make([]byte, 2048)
		for !out.over() && time.Now().Before(limit) {
			n, err := unix.Read(fd, b)
			if err == nil {
				out.take(b[:n])
			} else if !again(err) {
				return
			}
		}
	})
	all.Go(func() { // we do both
		ours = func() error {
			q, frames := port.Queue(0), make([]ethernet.Frame, 32)
			for (!in.over() || !out.over()) && time.Now().Before(limit) {
				n := q.Cache().Alloc(frames[:min(out.room(), uint32(len(frames)))])
				for i := range n {
					number(q.Cache().Pool().Buffer(frames[i].Buffer)[frames[i].Offset:], out.to, out.from, out.sent.Load()+uint32(i))
					frames[i].Length = uint16(60 + (out.sent.Load()+uint32(i))*389%1455)
				}
				sent, err := q.Send(frames[:n])
				out.sent.Add(uint32(sent))
				q.Cache().Free(frames[sent:n])
				if err != nil {
					return err
				}
				if n, err = q.Receive(frames); err != nil {
					return err
				}
				for _, f := range frames[:n] {
					in.take(q.Cache().Pool().Bytes(f))
				}
				q.Cache().Free(frames[:n])
				if n == 0 && sent == 0 {
					if err := q.Wait(t.Context()); err != nil {
						return err
					}
				}
			}
			return nil
		}()
	})
	all.Wait()
	if ours != nil || theirs != nil || !in.over() || !out.over() {
		t.Fatalf("%d of %d frames came to us, %d to Linux: %v, %v", in.next.Load(), count, out.next.Load(), ours, theirs)
	}
	should.Hold(t, in.wrong+out.wrong == 0, "frames that are not what was sent, or in another order: %d to us, %d to Linux", in.wrong, out.wrong)
	toUs, toLinux = count-in.came, count-out.came
	t.Logf("%d frames each way, %d and %d lost, %.0f/s each way", count, toUs, toLinux, float64(count)/time.Since(started).Seconds())
	return toUs, toLinux
}

// drain takes all that has come, up to a frame that Linux sends again until it is there: else
// what a flood has left in the ring takes the room of what follows, see window.
func drain(t *testing.T, port ethernet.Port, l *peer) {
	t.Helper()
	fd := l.packets(floodType)
	last := number(make([]byte, 1514), port.MAC(), l.mac, math.MaxUint32)
	binary.BigEndian.PutUint16(last[12:], floodType)
	q, frames, sent := port.Queue(0), make([]ethernet.Frame, 32), time.Time{}
	waittest.Until(t, "the frame after all that Linux has sent", func() bool {
		if time.Since(sent) > 100*time.Millisecond {
			sent = time.Now()
			if _, err := unix.Write(fd, last); err != nil && !again(err) {
				t.Fatal(err)
			}
		}
		n := must.Get(q.Receive(frames))(t)
		found := false
		for _, f := range frames[:n] {
			found = found || string(q.Cache().Pool().Bytes(f)) == string(last)
		}
		q.Cache().Free(frames[:n])
		return found
	})
}

// flows checks that a few frames come through both ways, none of them lost. Where Linux's link
// has gone down and come up meanwhile it tries again: see peer.settled.
func flows(t *testing.T, port ethernet.Port, l *peer) {
	t.Helper()
	for try := 1; ; try++ {
		l.settled()
		drain(t, port, l)
		before := l.linkChanges()
		in, out := exchange(t, port, l, 300)
		if in+out == 0 {
			return
		}
		if after := l.linkChanges(); after == before || try == 3 {
			t.Errorf("lost %d and %d; counted %+v, %+v; changes of Linux's link: %s, then %s", in, out,
				port.Stats(), port.Stats().Device, before, after)
			return
		}
	}
}

// TestPairFrames sends numbered frames between a NIC of ours and one of Linux's: 200,000 each
// way in a long run. As none of the rings is ever full, none may be lost.
func TestPairFrames(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		count := uint32(10_000)
		if os.Getenv(soak.Variable) != "" { // not soak.Wanted: CI's step of that name has no guest
			count = 200_000
		}
		l := p.linux(t)
		port := p.open(t, ethernet.Options{})
		in, out := exchange(t, port, l, count)
		c := port.Stats()
		q := c.Queues[0]
		if q.SentFrames != uint64(count) || q.ReceivedFrames < uint64(count-in) || q.Lost+q.Restarts+q.ReceiveErrors+q.BadLengths+q.Unended != 0 {
			t.Errorf("counted %+v", q)
		}
		if d := c.Device; d != nil && (d.SentFrames != uint64(count) || d.Missed != uint64(in)) {
			t.Errorf("the device counted %+v", d)
		}
		if in+out > 0 {
			t.Errorf("lost %d to us and %d to Linux; ours counted %+v, Linux %s", in, out, q, l.run("cat", "/proc/net/dev"))
		}
	})
}

// sequence returns n numbers from 0 on, step by step.
func sequence(n, step int) (list []int) {
	for i := 0; i <= n; i += step {
		list = append(list, i)
	}
	return list
}
