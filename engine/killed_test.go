package engine_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

// killedChild, if set, is the folder in which the test program is the peer that will be
// killed: with a wire, and a file that is its host's memory. killedByPath is set if its VI takes the path.
const (
	killedChild  = "TRAPEZE_TEST_KILLED"
	killedByPath = "TRAPEZE_TEST_KILLED_BY_PATH"
)

// The messages of the test, each into a place of its own at the start of the peer's
// memory.
const (
	killedMessages = 4096
	killedStride   = 4096
)

func killedSize(i int) int { return 8 + i*37%3000 }

// overShared is an option that puts the first node of a world on a wire in shared memory,
// and waits for its peer.
func overShared(t testing.TB, path string, mem []byte) option {
	ports := []engine.Port{nil, nil}
	return func(c *engine.Config, p *port) {
		if ports[0] != nil {
			return // there is nobody at this end
		}
		s := must.Get(wire.NewSHM(t.Context(), wire.SHMOptions{Path: path, MTU: 2048}))(t)
		t.Cleanup(func() {
			_ = s.Close()
			s.Reserve(0) // lets go of the memory
			s.Receive()
		})
		ports[0] = s
		c.Port, c.Clock = s, nil
		c.Host.(*node).mem = mem
	}
}

// TestPeerIsKilled kills the process at the other end while it takes messages. What had
// been sent well by then is in its memory, whether the two take the path or ring doorbells.
func TestPeerIsKilled(t *testing.T) {
	if folder := os.Getenv(killedChild); folder != "" {
		takeMessages(t, folder)
		return
	}
	self := must.Get(os.Executable())(t)
	kills := 6
	if soak.Wanted() {
		kills = 300
	}
	good := 0
	for seed := range uint64(kills) {
		good += killOne(t, self, rand.New(rand.NewPCG(seed, 3)), seed%4 > 0, seed%2 == 0)
	}
	if good == 0 {
		t.Error("no message was sent before the peer died")
	}
}

// killOne returns how many messages were sent well.
func killOne(t *testing.T, self string, r *rand.Rand, byPath, peerByPath bool) (good int) {
	folder := t.TempDir()
	mem := sharedMemory(t, filepath.Join(folder, "memory"))
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestPeerIsKilled$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), killedChild+"="+folder)
	if peerByPath {
		cmd.Env = append(cmd.Env, killedByPath+"=1")
	}
	cmd.Stderr = os.Stderr
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	w := newWorld(t, overShared(t, filepath.Join(folder, "wire"), alignedBytes(8<<20)))
	w.a.calls = byPath
	v := w.a.newVI(w.a.memory(0, 0), nil)
	must.Give(bufio.NewReader(out).ReadString('\n'))(t, "ready\n")
	go io.Copy(io.Discard, out)
	id := start(w.a, datasheet.OpConnectRequest, datasheet.ConnectRequestBody{Endpoint: v.id, TimeoutMS: 20_000,
		RemoteMAC: datasheet.MAC{2, 0, 0, 0, 0, 9}, Remote: disc("killed")})
	for end := time.Now().Add(20 * time.Second); ; w.a.step() {
		if reply, ok := w.a.replies[id]; ok {
			must.Be(t, reply.Result, datasheet.ResultSuccess)
			break
		}
		must.Be(t, time.Now().After(end), false, "no connection")
	}
	// It dies some time after so many messages.
	killAt, later, killed := 1+r.IntN(200), time.Duration(r.IntN(1_000_000)), false
	end := time.Now().Add(30 * time.Second)
	var sends []*descriptors.Descriptor
	done := 0
	for lost := false; !lost || done < len(sends); {
		if lost = v.state() != datasheet.StateConnected; !lost && len(sends)-done < 32 && len(sends) < killedMessages {
			i := len(sends)
			d, bufs := v.descriptor(killedSize(i))
			copy(bufs[0], pattern(killedSize(i), uint64(i)))
			sends = append(sends, d)
			v.postSend(d)
		}
		if done >= killAt && !killed {
			killed = true
			time.AfterFunc(later, func() { _ = cmd.Process.Kill() })
		}
		for w.a.step(); done < len(sends) && sends[done].Status().Done(); done++ {
		}
		if len(sends) == killedMessages && done == len(sends) {
			break
		}
		must.Be(t, time.Now().After(end), false, "%d of %d sends have ended", done, len(sends))
	}
	failed := false
	for i, d := range sends {
		if d.Status().Failed() {
			failed = true
			continue
		}
		must.Be(t, failed, false, "message %d was sent well, one before it was not", i)
		good++
		at := killedStride * i
		mustEqual(t, mem[at:at+killedSize(i)], pattern(killedSize(i), uint64(i)))
	}
	return good
}

// sharedMemory maps a file that is a node's memory.
func sharedMemory(t testing.TB, path string) []byte {
	t.Helper()
	f := must.Get(os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600))(t)
	defer f.Close()
	const size = 32 << 20
	must.OK(t, f.Truncate(size))
	mem := must.Get(unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return mem
}

// takeMessages is the peer: it takes messages until it is killed.
func takeMessages(t *testing.T, folder string) {
	mem := sharedMemory(t, filepath.Join(folder, "memory"))
	w := newWorld(t, overShared(t, filepath.Join(folder, "wire"), mem), func(c *engine.Config, _ *port) {
		c.MAC = datasheet.MAC{2, 0, 0, 0, 0, 9}
	})
	n := w.a
	n.calls = os.Getenv(killedByPath) != ""
	_, base, _ := n.alloc(killedMessages * killedStride)
	v := n.newVI(n.memory(0, 0), nil)
	var posted []*descriptors.Descriptor
	post := func() {
		i := len(posted)
		if i == killedMessages {
			return
		}
		m, address, _ := n.alloc(descriptors.DescriptorBytes(1))
		d := must.Get(descriptors.NewDescriptor(m, address, v.handle))(t)
		must.OK(t, d.AddData(base+uint64(i*killedStride), v.handle, killedStride))
		posted = append(posted, d)
		v.postRecv(d)
	}
	for range 48 {
		post()
	}
	wait := start(n, datasheet.OpConnectWait, datasheet.ConnectWaitBody{TimeoutMS: 20_000, Local: disc("killed")})
	fmt.Println("ready")
	done, accepted := 0, false
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		n.step()
		if r, ok := n.replies[wait]; ok && !accepted {
			accepted = true
			c := datasheet.Reply[datasheet.ConnectionReply](&r)
			start(n, datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{Connection: c.Connection, Endpoint: v.id, TimeoutMS: 20_000})
		}
		for done < len(posted) && posted[done].Status().Done() {
			done++
			post()
		}
	}
}
