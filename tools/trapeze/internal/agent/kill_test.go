package agent_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/via"
)

// The environment of a process that is a client: the NIC that it opens, and the address that it dials.
const (
	clientAt   = "TRAPEZE_TEST_CLIENT"
	clientPeer = "TRAPEZE_TEST_PEER"
)

// steps are those of a client, which says each before it.
var steps = []string{"open", "register", "dial", "send", "receive", "close"}

// kills is the number of clients that are killed at each run of a test.
func kills() int { return soak.Count(len(steps), 1000) }

// small are the options of connections of which there are many at a time.
var small = via.ConnOptions{MaxMessage: 4096, SendDepth: 4, RecvDepth: 4}

// takeSmall are the options of a listener for them.
var takeSmall = via.ListenOptions{Conn: func(via.Remote) (via.ConnOptions, error) { return small, nil }}

// runClient opens a NIC, uses it and closes it, again and again.
func runClient(at, peer string) error {
	ctx := context.Background()
	for range 1000 {
		if err := oneLife(ctx, at, peer, os.Stdout); err != nil {
			return err
		}
	}
	return errors.New("it was not killed")
}

// oneLife says each step before it.
func oneLife(ctx context.Context, at, peer string, said io.Writer) error {
	fmt.Fprintln(said, "open")
	n, err := via.Open(ctx, at, via.Options{NoTelemetry: true})
	if err != nil {
		return err
	}
	fmt.Fprintln(said, "register")
	m, err := n.Alloc(ctx, 64<<10, via.MemoryAttributes{})
	if err != nil {
		return err
	}
	fmt.Fprintln(said, "dial")
	c, err := via.Dial(ctx, n, peer, small)
	if err != nil {
		return err
	}
	fmt.Fprintln(said, "send")
	for i := range 8 {
		if err := c.Send(ctx, make([]byte, 500*i)); err != nil {
			return err
		}
		if i == 0 {
			fmt.Fprintln(said, "receive")
		}
		if _, err := c.Receive(ctx); err != nil {
			return err
		}
		if err := c.Release(); err != nil {
			return err
		}
	}
	fmt.Fprintln(said, "close")
	return errors.Join(c.Close(), m.Close(ctx), n.Close())
}

// TestKills kills clients at random moments of each step. A NIC that is open sends on: no message of it is lost. All
// that the agent had for those clients is given back.
func TestKills(t *testing.T) {
	for name, options := range map[string]string{"direct": "", "through the agent": "direct = false\n"} {
		t.Run(name, func(t *testing.T) {
			socket := serve(t, local+options+"vis = 1024\n")
			at := "agent:local?engine=thread&socket=" + socket
			peer := echo(t, at+"&vis=1024")
			numbers := stream{every: time.Millisecond}
			numbers.begin(t, open(t, at), open(t, at))
			numbers.progress(t, 1)
			victim := &victims{at: at, peer: peer}
			before := steady(t)
			for i := range kills() {
				victim.kill(t, steps[i%len(steps)])
			}
			if options == "" {
				runtime.GC() // a client that shared memory with those gives it back when it is collected
			}
			settle(t, socket, before)
			should.Hold(t, victim.died == 0, "%d clients ended by themselves: %s", victim.died, victim.said)
			numbers.end(t)
			// Those that are there can still come, and have room.
			exchange(t, open(t, at), open(t, at), "after")
		})
	}
}

// victims are the clients that are killed.
type victims struct {
	at, peer string
	died     int
	said     string
}

// kill starts a client, and kills it some time after it has come to a step.
func (v *victims) kill(t *testing.T, step string) {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), clientAt+"="+v.at, clientPeer+"="+v.peer, "TRAPEZE_TELEMETRY=off")
	out := must.Get(c.StdoutPipe())(t)
	var said strings.Builder
	c.Stderr = &said
	must.OK(t, c.Start())
	stuck := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
	lines := bufio.NewScanner(out)
	for round := 1 + rand.IntN(2); round > 0 && lines.Scan(); {
		if lines.Text() == step {
			round--
		}
	}
	time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
	_ = c.Process.Kill()
	should.Hold(t, stuck.Stop(), "a client did not come to %q", step)
	_ = c.Wait()
	if c.ProcessState.Exited() {
		v.died++
		v.said = said.String()
	}
}

// echo makes a NIC of this process send back what comes, and returns its address.
func echo(t *testing.T, at string) string {
	n := open(t, at)
	l := must.Get(via.Listen(n, "echo", via.ListenOptions{}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var answering sync.WaitGroup
		defer answering.Wait()
		for {
			c, err := l.Accept(ctx)
			if ctx.Err() != nil || errors.Is(err, via.ErrClosed) {
				return
			}
			if err != nil {
				continue // one that was killed meanwhile
			}
			answering.Go(func() {
				defer c.Close()
				for {
					m, err := c.Receive(ctx)
					if err != nil || c.Send(ctx, m) != nil || c.Release() != nil {
						return
					}
				}
			})
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		<-done
	})
	return l.Address().String()
}

// resources are what a leak would add to.
type resources struct{ files, mappings, goroutines int }

func measure(t *testing.T) resources {
	return resources{leaktest.Files(t), leaktest.Mappings(t), runtime.NumGoroutine()}
}

// steady is measure once nothing changes any more: NICs that are open begin to share memory with each other.
func steady(t *testing.T) resources {
	last, same := measure(t), 0
	for end := time.Now().Add(10 * time.Second); same < 20 && time.Now().Before(end); same++ {
		time.Sleep(50 * time.Millisecond)
		if now := measure(t); now != last {
			last, same = now, 0
		}
	}
	return last
}

// settle waits until the only clients are those of this process, and there is no more of anything than before.
func settle(t *testing.T, socket string, before resources) {
	t.Helper()
	foreign := func(c agentlink.Client) bool { return int(c.PID) != os.Getpid() }
	waittest.Until(t, fmt.Sprintf("no clients are left, and no more than %+v", before), func() bool {
		now := measure(t)
		return !slices.ContainsFunc(list(t, socket), foreign) &&
			now.files <= before.files && now.mappings <= before.mappings && now.goroutines <= before.goroutines
	})
}
