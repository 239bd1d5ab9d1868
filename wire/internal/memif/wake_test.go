package memif_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
)

// sleeper receives as an engine's thread does: it looks some times in vain and
// then sleeps until it is woken.
type sleeper struct {
	port  *memif.Port
	woken <-chan struct{}
	looks int
}

func newSleeper(p *memif.Port, looks int) *sleeper {
	wake, woken := waittest.Bell()
	p.SetWake(wake)
	return &sleeper{p, woken, looks}
}

// receive returns the length of the next frame, -1 if nobody wakes it.
func (s *sleeper) receive() int {
	timeout := time.NewTimer(timeout)
	defer timeout.Stop()
	for {
		for range s.looks {
			if f := s.port.Receive(); f != nil {
				n := len(f)
				s.port.Release()
				return n
			}
		}
		select {
		case <-s.woken:
		case <-timeout.C:
			return -1
		}
	}
}

// TestWake sends frames one by one to somebody who sleeps in between: no frame
// may be slept through.
func TestWake(t *testing.T) {
	for _, looks := range []int{1, 96, 300} {
		for _, k := range kinds[:3] {
			for _, polling := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, polling %v, %d looks", k.name, polling, looks), func(t *testing.T) {
					leaktest.Check(t)
					k.b.Polling = polling
					a, b := connected(t, k.a, k.b)
					s := newSleeper(b, looks)
					rounds := 100
					if polling {
						rounds = 20 // each takes a millisecond, or more
					}
					turn := make(chan int, 1)
					go func() {
						for i := range turn {
							send(a, pattern(i, 10+i))
						}
					}()
					defer close(turn)
					for i := range rounds {
						turn <- i
						if n := s.receive(); n != 10+i {
							t.Fatalf("frame %d of %d bytes: received %d, stats %+v", i, 10+i, n, b.Stats())
						}
					}
					if sent := a.Stats().InterruptsSent; polling && sent != 0 {
						t.Errorf("a polling port was interrupted %d times", sent)
					}
				})
			}
		}
	}
}

// TestWakeForWhatIsThere: frames that are there already when the function to
// wake is set.
func TestWakeForWhatIsThere(t *testing.T) {
	for _, polling := range []bool{false, true} {
		a, b := connected(t, memif.Options{}, memif.Options{Polling: polling})
		send(a, pattern(0, 33))
		s := newSleeper(b, 1)
		waittest.Rung(t, s.woken)
		should.Be(t, s.receive(), 33, "received bytes")
	}
}

// TestNobodyToWake: without a function to wake, or with one but with frames all
// the time, the peer makes no system calls for interrupts.
func TestNobodyToWake(t *testing.T) {
	for _, k := range kinds[:2] {
		a, b := connected(t, k.a, k.b)
		for i := range 500 {
			send(a, pattern(i, 64))
			receive(b)
			for range 200 {
				b.Receive()
			}
		}
		should.Be(t, a.Stats().InterruptsSent, 0, "interrupts sent")
		b.SetWake(func() {})
		waittest.Until(t, "interrupts are asked for", func() bool {
			send(a, pattern(1, 64))
			receive(b)
			return a.Stats().InterruptsSent > 0
		})
		b.SetWake(nil)
		// Once the port has noticed, it asks for none again.
		waittest.Until(t, "no more interrupts", func() bool {
			before := a.Stats().InterruptsSent
			for i := range 100 {
				send(a, pattern(i, 64))
				receive(b)
			}
			return a.Stats().InterruptsSent == before
		})
	}
}
