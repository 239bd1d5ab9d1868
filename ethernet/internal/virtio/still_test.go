package virtio_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// TestPackedIsNotOffered: who asks for packed queues gets them, or an error.
func TestPackedIsNotOffered(t *testing.T) {
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	for _, tt := range []struct {
		ring    string
		without uint64 // features that the back end has not
		want    error
	}{
		{"?ring=packed", 1 << 34, ethernet.ErrNotSupported},
		{"?ring=packed", 0, nil},
		{"?ring=split", 0, nil},
		{"?ring=split", 1 << 34, nil},
		{"", 1 << 34, nil},
		{"", 0, nil},
	} {
		b := newBack(t)
		b.features &^= tt.without
		p, err := ethernet.Open(t.Context(), b.serve().address()+tt.ring, ethernet.Options{Pool: pool})
		should.Hold(t, errors.Is(err, tt.want) && (err == nil || strings.Contains(err.Error(), "VIRTIO_F_RING_PACKED")),
			"%q without %#x: %v, want %v", tt.ring, tt.without, err, tt.want)
		if err != nil {
			continue
		}
		porttest.Exchange(t, p.Queue(0), p.Queue(0), 10, 10)
		should.OK(t, p.Close())
		should.Be(t, b.agreed&(1<<34) != 0, (tt.ring != "?ring=split" && tt.without == 0), "%q without %#x: packed", tt.ring, tt.without)
	}
}

// TestMoreQueuesThanServed: the error has both numbers, whatever the back end says them by.
func TestMoreQueuesThanServed(t *testing.T) {
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	const mq, config = 1 << 22, 1 << 9
	for name, tt := range map[string]struct {
		features, protocol, pairs uint64
		space                     byte // the number in the configuration space
		says                      string
	}{
		"by the protocol":        {defaultFeatures | mq, defaultProtocol, 2, 0, "3 are asked for, the device serves 2"},
		"by the configuration":   {defaultFeatures | mq, defaultProtocol | config, 8, 2, "3 are asked for, the device serves 2"},
		"the configuration lies": {defaultFeatures | mq, defaultProtocol | config, 2, 8, "3 are asked for, the device serves 2"},
		"no VIRTIO_NET_F_MQ":     {defaultFeatures, defaultProtocol, 8, 0, "3 are asked for, the device serves 1"},
		"no protocol feature MQ": {defaultFeatures | mq, defaultProtocol &^ 1, 8, 0, "3 are asked for, the device serves 1"},
	} {
		b := newBack(t)
		b.features, b.protocol, b.pairs, b.config[8] = tt.features, tt.protocol, tt.pairs, tt.space
		_, err := ethernet.Open(t.Context(), b.serve().address(), ethernet.Options{Pool: pool, Queues: 3, ReceiveDescriptors: 64})
		if !errors.Is(err, ethernet.ErrNotSupported) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "queues=3") {
			t.Errorf("%s: %v, want one that says %q", name, err, tt.says)
		}
	}
}

// lines is what a logger has said.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// count is how many lines have all of these words.
func (l *lines) count(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for line := range strings.Lines(l.b.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		n++
	}
	return n
}

// fill sends frames until the ring is full, and returns how many.
func fill(t *testing.T, q ethernet.Queue) (sent int) {
	t.Helper()
	for vain := 0; vain < 200; vain++ { // Send does not look each time for what has been sent
		more := porttest.Send(t, q, sent, 1)
		if sent += more; more > 0 {
			vain = 0
		}
	}
	return sent
}

// TestBackEndStandsStill: a back end that is stopped for many times Options.Timeout is waited
// for. No frame is lost, nothing is restarted, and the link is up all the time.
func TestBackEndStandsStill(t *testing.T) {
	leaktest.Check(t)
	tests := map[string]func(*testing.T){}
	for name, protocol := range map[string]uint64{"no configuration": defaultProtocol, "configuration": defaultProtocol | 1<<9} {
		tests[name] = func(t *testing.T) {
			b := newBack(t)
			b.protocol, b.config[6] = protocol, 1
			b.features |= 1 << 16
			if protocol&(1<<9) == 0 {
				b.features &^= 1 << 16
			}
			said := &lines{}
			const timeout = 50 * time.Millisecond
			p, err := ethernet.Open(t.Context(), b.serve().address(), ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{}),
				SendDescriptors: 64, Timeout: timeout, Logger: slog.New(slog.NewTextHandler(said, nil))})
			must.OK(t, err)
			porttest.CloseAtEnd(t, p)
			q := p.Queue(0)
			for round := range 2 {
				porttest.Exchange(t, q, q, 100, 32)
				b.still.Store(true)
				waittest.Until(t, "the back end stands", b.stands.Load)
				sent := fill(t, q)
				for end := time.Now().Add(20 * timeout); time.Now().Before(end); time.Sleep(timeout / 10) {
					must.Be(t, must.Get(p.Link())(t).Up, true)
					must.Get(q.Send(nil))(t)
				}
				waittest.Until(t, "it is said", func() bool { return said.count("a queue stands still", "queue=0", "stopped") == round+1 })
				b.still.Store(false)
				received := 0
				waittest.Until(t, "all frames come", func() bool {
					received += porttest.Receive(t, q, received)
					return received == sent
				})
				should.Hold(t, sent >= 64, "%d frames were under way", sent)
			}
			c := p.Stats()
			should.Hold(t, c.Restarts == 0 && c.Queues[0].Restarts == 0 && c.Queues[0].Lost == 0, "%+v", c)
		}
	}
	waittest.Together(t, tests)
}

// TestQueueIsNotServed: a queue that the back end does not start is named, once, and the
// others go on.
func TestQueueIsNotServed(t *testing.T) {
	leaktest.Check(t)
	b := newBack(t)
	b.features |= 1 << 22
	b.idle = func(queue int) bool { return queue == 3 }
	said := &lines{}
	p, err := ethernet.Open(t.Context(), b.serve().address(), ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{Buffers: 4096}),
		Queues: 2, Timeout: 50 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(said, nil))})
	must.OK(t, err)
	porttest.CloseAtEnd(t, p)
	porttest.Send(t, p.Queue(1), 0, 1) // far less than the ring has room for
	waittest.Until(t, "the queue is named", func() bool { return said.count("a queue stands still", "queue=1", "fewer queues") > 0 })
	porttest.Exchange(t, p.Queue(0), p.Queue(0), 300, 64)
	should.Be(t, said.count("a queue stands still"), 1, "said times")
	c := p.Stats().Queues[1]
	should.Hold(t, c.Restarts == 0 && c.SentFrames == 1, "%+v", c)
}

// TestDeviceStandsStill: a device whose send ring is full and stands still is reset.
func TestDeviceStandsStill(t *testing.T) {
	leaktest.Check(t)
	p, err := ethernet.New(t.Context(), newFakePCI(), ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{}), SendDescriptors: 64,
		Timeout: 50 * time.Millisecond, Logger: mute})
	must.OK(t, err)
	porttest.CloseAtEnd(t, p)
	must.OK(t, provoke(t, p, func(c ethernet.QueueStats) bool { return c.Lost >= 128 }))
	c := p.Stats()
	n := c.Restarts + c.Queues[0].Restarts
	should.Hold(t, n >= 2 && c.Queues[0].Lost == 64*n, "%+v", c)
}
