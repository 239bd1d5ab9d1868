package memif_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire"
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
)

// echoVariable, if set, makes the test program send back what it receives until
// it is killed: it holds role and socket.
const echoVariable = "TRAPEZE_TEST_ECHO"

func echo(arguments string) error {
	var o memif.Options
	if _, err := fmt.Sscan(arguments, &o.Role, &o.Socket); err != nil {
		return err
	}
	o.MTU, o.Queues = 4096, 2
	p, err := memif.New(o)
	if err != nil {
		return err
	}
	wake, woken := waittest.Bell()
	p.SetWake(wake)
	for idle := 0; ; {
		f := p.Receive()
		if f == nil {
			if idle++; idle > 200 {
				select {
				case <-woken:
				case <-time.After(timeout):
					return errors.New("nobody sends anything")
				}
				idle = 0
			}
			continue
		}
		q := p.Reserve(len(f))
		for q == nil {
			runtime.Gosched()
			q = p.Reserve(len(f))
		}
		copy(q, f)
		p.Commit()
		p.Flush()
		p.Release()
	}
}

// startEcho starts the other process. The function kills it.
func startEcho(t *testing.T, role memif.Role, socket string) (kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", echoVariable, role, socket))
	cmd.Stderr = os.Stderr
	must.OK(t, cmd.Start())
	return func() {
		should.OK(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	}
}

// TestOtherProcess makes a process send back frames of all sizes, and dies with
// frames on their way, again and again.
func TestOtherProcess(t *testing.T) {
	rounds := uint64(soak.Count(2, 8))
	for _, role := range []memif.Role{memif.Client, memif.Server} {
		t.Run("we are the "+role.String(), func(t *testing.T) {
			leaktest.Check(t)
			socket := socketPath(t)
			p := newPort(t, memif.Options{Socket: socket, Role: role, MTU: 4096, Queues: 2})
			wake, woken := waittest.Bell()
			p.SetWake(wake)
			for round := range rounds {
				kill := startEcho(t, memif.Client+memif.Server-role, socket)
				waittest.Until(t, "link up", p.LinkUp)
				const frames, window = 3000, 16
				size := func(i int) int { return 1 + i*53%4096 }
				moved := time.Now()
				for sent, got, idle := 0, 0, 0; got < frames; {
					for sent < frames && sent-got < window {
						f := p.Reserve(size(sent))
						if f == nil {
							break
						}
						copy(f, pattern(sent, len(f)))
						p.Commit()
						sent++
					}
					p.Flush()
					f := p.Receive()
					if f == nil {
						if idle++; idle%200 != 0 {
							continue
						}
						select {
						case <-woken:
						// Room wakes nobody: a client that has just connected may not
						// have handed out its buffers yet.
						case <-time.After(time.Millisecond):
						}
						must.Be(t, time.Since(moved) > timeout, false, "round %d: nothing comes, stats %+v", round, p.Stats())
						continue
					}
					if !bytes.Equal(f, pattern(got, size(got))) {
						t.Fatalf("round %d, frame %d: received %d bytes, want %d", round, got, len(f), size(got))
					}
					p.Release()
					got++
					moved = time.Now()
				}
				for i := range 500 {
					send(p, pattern(i, 1000))
				}
				kill()
				waittest.Until(t, "link down", func() bool { return !p.LinkUp() })
				for p.Receive() != nil { // what had come before
					p.Release()
				}
			}
			// The last end may not have been noted yet.
			waittest.Until(t, "it is counted", func() bool { return p.Stats().Disconnects == rounds })
			if s := p.Stats(); s.Connections != rounds || s.Violations+s.BadMemory+s.Malformed != 0 || !errors.Is(s.Err, wire.ErrGone) && !errors.Is(s.Err, wire.ErrNotListening) {
				t.Errorf("stats %+v", s)
			}
		})
	}
}
