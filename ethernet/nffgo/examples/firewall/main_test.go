//go:build nffgo

package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/testpmd"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// frames go from outside to inside, and an eighth as many back.
const frames = 2_000_000

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	m.Run()
}

// TestFirewall has frames go through the firewall both ways. Its ports are those of
// vhost-user whose back end is dpdk-testpmd, and beyond that are ports of the test's.
func TestFirewall(t *testing.T) {
	testpmd.Needs(t, "TRAPEZE_NFFGO", "ci/nffgo/run", "vhost")
	dir, err := os.MkdirTemp("", "nffgo") // short enough for sockets
	must.OK(t, err)
	defer os.RemoveAll(dir)
	o := testpmd.Options{Mode: "io", More: []string{"--disable-link-check"}} // it waits for links else
	var addresses [4]string
	for i := range addresses {
		socket := filepath.Join(dir, fmt.Sprint(i))
		addresses[i] = "vhost-user:" + socket
		o.Devices = append(o.Devices, fmt.Sprintf("net_vhost%d,iface=%s", i, socket))
	}
	pmd := testpmd.Launch(t, o) // joins 0 with 1, and 2 with 3
	command := startProcess(t, "--outside", addresses[1], "--inside", addresses[2])
	pool := must.Get(ethernet.NewPool(ethernet.PoolOptions{Buffers: 1 << 15}))(t)
	t.Cleanup(func() {
		should.OK(t, pool.Close())
	})
	outside, inside := open(t, pool, addresses[0]), open(t, pool, addresses[3])
	pmd.Linked()
	pmd.Do("start")

	filtered := &stream{from: outside, to: inside, count: frames}
	back := &stream{from: inside, to: outside, count: frames / 8, check: frameCheck{All: true}}
	started := time.Now()
	for end := started.Add(testTimeout); filtered.check.Next() < filtered.count || back.check.Next() < back.count; {
		idle := true
		for _, s := range []*stream{filtered, back} {
			n := must.Get(s.step(pool))(t)
			idle = idle && n == 0
		}
		if idle {
			if time.Sleep(nap); command.Ended() || time.Now().After(end) {
				t.Fatalf("%d frames were sent, those before %d came; back: %d and %d", filtered.sent, filtered.check.Next(), back.sent, back.check.Next())
			}
		}
	}
	t.Logf("%d frames and %d back in %v", filtered.count, back.count, time.Since(started))
	command.Interrupt(frames)
}

// open opens a port. It is closed with the test.
func open(t *testing.T, pool *ethernet.Pool, address string) ethernet.Queue {
	t.Helper()
	p, err := ethernet.Open(t.Context(), address, ethernet.Options{Pool: pool, ReceiveDescriptors: 4096, SendDescriptors: 4096,
		Logger: slog.New(slog.DiscardHandler)}) // testpmd ends before ports are closed
	must.OK(t, err)
	t.Cleanup(func() {
		should.OK(t, p.Close())
	})
	return p.Queue(0)
}

// stream is frames that go one way.
type stream struct {
	from, to    ethernet.Queue
	count, sent int
	check       frameCheck
	frames      [32]ethernet.Frame
}

// window is how many are under way, less than a receive ring holds: testpmd drops what finds
// no room.
const window = 3500

// step sends and receives what it can, and returns how many frames that were.
func (s *stream) step(pool *ethernet.Pool) (int, error) {
	room := max(0, min(len(s.frames), s.count-s.sent, window-(s.sent-s.check.Next())))
	n := s.from.Cache().Alloc(s.frames[:room])
	for i := range n {
		s.frames[i].Length = uint16(frameLength(s.sent + i))
		fillFrame(pool.Bytes(s.frames[i]), s.sent+i)
	}
	sent, err := s.from.Send(s.frames[:n])
	if err != nil {
		return 0, err
	}
	s.from.Cache().Free(s.frames[sent:n])
	s.sent += sent
	n, err = s.to.Receive(s.frames[:])
	if err != nil {
		return 0, err
	}
	for _, f := range s.frames[:n] {
		if err := s.check.Frame(pool.Bytes(f)); err != nil {
			return 0, err
		}
	}
	s.to.Cache().Free(s.frames[:n])
	return sent + n, nil
}
