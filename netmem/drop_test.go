package netmem_test

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
)

// gate holds back what comes to a NIC once so many more bytes have come, until it is opened.
type gate struct {
	mu   sync.Mutex
	shut bool
	held [][]byte
}

func (g *gate) filter(sent bool, frame []byte) [][]byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case frame == nil:
		return nil
	case sent:
		return [][]byte{frame}
	case g.shut:
		g.held = append(g.held, frame)
		return nil
	}
	all := append(g.held, frame)
	g.held = nil
	return all
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
}

// TestDropOnTheWay: a page of which the servers' answer was on the way when Drop was called is fetched again.
func TestDropOnTheWay(t *testing.T) {
	const page = 64 << 10
	leaktest.Check(t)
	var g gate
	nics, _ := onSwitch(t, 3, g.filter)
	r := &rig{TB: t, near: nics[0], far: nics[2]}
	s := r.serve(netmem.ServerOptions{Page: page, Size: 16 * page})
	c := r.open(netmem.Options{ReadAhead: -1}, s)
	w := (&rig{TB: t, near: nics[1], far: nics[2]}).open(netmem.Options{ReadAhead: -1}, s)
	r.write(w, randomBytes(1, page), page)
	r.sync(w)
	before := s.Stats().Fetches

	g.set(true)
	read := make(chan []byte, 1)
	go func() {
		b := make([]byte, 100)
		_, _ = c.ReadAt(b, page)
		read <- b
	}()
	r.until("the server to answer", func() bool { return s.Stats().Fetches == before+1 })
	want := randomBytes(2, page)
	r.write(w, want, page)
	r.sync(w)
	c.Drop()
	g.set(false)
	for _, at := range []int{0, page - 100} {
		should.Same(t, r.read(c, 100, int64(page+at)), want[at:][:100], "at %d it is as before Drop", at)
	}
	<-read
}

// TestDropInUse: pages that other calls read at the time of Drop are fetched again too.
func TestDropInUse(t *testing.T) {
	r := newRig(t, emulator.PairOptions{Threads: true})
	const page = 64 << 10
	s := r.serve(netmem.ServerOptions{Page: page, Size: 4 * page})
	c, w := r.open(netmem.Options{ReadAhead: -1}, s), r.open(netmem.Options{ReadAhead: -1}, s)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for b := make([]byte, page); ; {
				select {
				case <-stop:
					return
				default:
					_, _ = c.ReadAt(b, page)
				}
			}
		})
	}
	for n := range uint64(30) {
		b := binary.LittleEndian.AppendUint64(nil, n+1)
		r.write(w, b, page)
		r.sync(w)
		c.Drop()
		should.Be(t, binary.LittleEndian.Uint64(r.read(c, 8, page)), n+1, "a write that was acknowledged before Drop")
	}
	close(stop)
	readers.Wait()
}
