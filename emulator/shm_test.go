package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// init has the runtime open what it polls files with, which stays open: a test
// that counts descriptors is not to see it come.
func init() {
	if r, w, err := os.Pipe(); err == nil {
		_, _ = r.Close(), w.Close()
	}
}

// TestSharedDevices connects two NICs over shared memory, whoever comes first and
// wherever the engines run.
func TestSharedDevices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wire")
	abstract := fmt.Sprintf("@trapeze-shm-%d", os.Getpid())
	for _, tt := range []struct {
		name          string
		first, second string
		polls         bool
	}{
		{"defaults", "wire=shm:" + path, "wire=shm:" + path, true},
		{"abstract, listen and connect", "role=connect&wire=shm:" + abstract, "role=listen&wire=shm:" + abstract, true},
		{"shared", "share=on&wire=shm:" + path, "share=on&wire=shm:" + path, true},
		{"shared for writing", "share=write&wire=shm:" + path, "share=write&wire=shm:" + path, true},
		{"MTUs", "mtu=65344&wire=shm:" + path, "mtu=1500&wire=shm:" + path, true},
		{"threads", "engine=thread&wire=shm:" + path, "engine=thread&role=auto&wire=shm:" + path, false},
		{"faults", "engine=thread&loss=0.2&wire=shm:" + path, "engine=thread&loss=0.2&seed=4&wire=shm:" + path, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkFiles(t)
			first, second := openAddress(t, "emu:?"+tt.first), openAddress(t, "emu:?"+tt.second)
			if polls := first.(vfio.InProcess).Polled(); polls != tt.polls {
				t.Errorf("it is a Poller: %v", polls)
			}
			a, b := newAdminHost(t, first), newAdminHost(t, second)
			waitLink(t, true, first, second)
			if tt.polls {
				pollWith(t, b, func() { connect(t, a, b) })
			} else {
				connect(t, a, b)
			}
			closeDevice(t, second)
			waitLink(t, false, first)
			closeDevice(t, first)
			if n := sharedMappings(t); n != 0 {
				t.Errorf("%d mappings are left", n)
			}
		})
	}
}

// sharedMappings counts this process's mappings of wires' memory.
func sharedMappings(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "/memfd:trapeze-shm")
}

func TestBadSharedAddresses(t *testing.T) {
	checkFiles(t)
	for _, tt := range []struct{ options, says string }{
		{"wire=shm:", "shm:PATH"},
		{"wire=shm:@", "path"},
		{"wire=shm:/" + strings.Repeat("x", 120), "107"},
		{"wire=shm:/x&role=server", "listen, connect or auto"},
		{"wire=shm:/x&role=both", "listen, connect or auto"},
		{"wire=shm:/x&share=yes", "on, off or write"},
		{"wire=shm:/x&mtu=100", "160..65344"},
		{"wire=shm:/x&ring=4", "memif"},
		{"wire=shm:/x&peer=127.0.0.1:9", "UDP"},
		{"wire=memif:/x&role=listen", "role=server or role=client"},
		{"wire=loop&share=on", "shm"},
		{"wire=loop&role=listen", "shm"},
	} {
		d, err := vfio.Open(context.Background(), "emu:?"+tt.options)
		if d != nil || !errors.Is(err, vfio.ErrBadAddress) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, error %v, want one that says %q", tt.options, d, err, tt.says)
		}
	}
	// The address is good, the place is not.
	_, err := vfio.Open(context.Background(), "emu:?role=listen&wire=shm:/no/such/folder/wire")
	var e *vfio.Error
	if !errors.As(err, &e) || errors.Is(err, vfio.ErrBadAddress) || !strings.Contains(err.Error(), "folder") {
		t.Errorf("error %v", err)
	}
}

func TestSharedFleet(t *testing.T) {
	checkFiles(t)
	path := filepath.Join(t.TempDir(), "wire")
	if _, err := emulator.Fleet(context.Background(), "emu:?wire=shm:"+path, []string{"a", "b"}); !errors.Is(err, vfio.ErrBadAddress) {
		t.Errorf("two NICs: %v", err)
	}
	d, err := emulator.Fleet(context.Background(), "emu:?wire=shm:"+path, []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	defer closeDevice(t, d[0])
	other := openAddress(t, "emu:?wire=shm:"+path)
	powerUp(t, d[0])
	powerUp(t, other)
	waitLink(t, true, d[0], other)
}

// TestSharedConformance runs the suites of VIs, rings and channels over a wire in shared memory.
func TestSharedConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("runs all of VIA's suite")
	}
	open := func(options string) func(t *testing.T) (a, b *via.NIC) {
		return func(t *testing.T) (a, b *via.NIC) {
			address := "emu:?engine=thread&wire=shm:" + filepath.Join(t.TempDir(), "w") + options
			return conform.OpenNIC(t, address, via.Options{}), conform.OpenNIC(t, address, via.Options{})
		}
	}
	part := func(s conform.Suite, i int) (part conform.Suite) {
		for j, c := range s {
			if soak.Wanted() || (i+j)%6 == 0 {
				part = append(part, c)
			}
		}
		return part
	}
	part(conform.VIs(), 0).Run(t, "shm", open(""))
	part(conform.VIs(), 1).Run(t, "shm, for writing", open("&share=write"))
	part(conform.Rings(), 0).Run(t, "shm", open(""))
	part(conform.Channels(), 0).Run(t, "shm", open(""))
}

// sharedChild, if set, is the socket at which the test program meets the one that
// has started it, with more options of the wire.
const sharedChild = "TRAPEZE_TEST_SHM"

const (
	childMessages = 500
	childSize     = 20000
)

// TestSharedProcesses has an application in another process send messages, both
// engines inline. They are copied, or lent.
func TestSharedProcesses(t *testing.T) {
	if path := os.Getenv(sharedChild); path != "" {
		sendMessages(t, conform.OpenNIC(t, "emu:?wire=shm:"+path, via.Options{}))
		return
	}
	for _, share := range []bool{false, true} {
		t.Run(fmt.Sprintf("share %v", share), func(t *testing.T) {
			checkFiles(t)
			path := filepath.Join(t.TempDir(), "wire")
			s := newSharer(t, wire.SHMOptions{Path: path, Share: share}, func(o *emulator.Options) { o.MAC = [6]byte{2, 0, 0, 0, 0, 0x2a} })
			if share {
				path += "&share=on"
			}
			receiveFromChild(t, s.nic, path)
			// A message may be sent before its memory is known here.
			got := s.port.Stats()
			if lent := got.Borrowed > childMessages/4; lent != share || got.Revoked != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// receiveFromChild takes the messages of a process that is told where.
func receiveFromChild(t *testing.T, nic *via.NIC, where string) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(conform.Context(t), self, "-test.run=^TestSharedProcesses$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), sharedChild+"="+where)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	receiveMessages(t, nic)
	// The last acknowledgement is sent by whoever polls.
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for done := false; !done; {
		nic.Poll()
		select {
		case err := <-ended:
			done = true
			if err != nil {
				t.Error(err)
			}
		default:
		}
	}
	if err := nic.Close(); err != nil {
		t.Error(err)
	}
}

// sendMessages sends numbered messages of all sizes to whoever waits.
func sendMessages(t *testing.T, nic *via.NIC) {
	ctx := conform.Context(t)
	e := conform.NewEnd(t, nic, conform.Setup{Attributes: via.VIAttributes{MaxTransfer: childSize}, Memory: childSize})
	to := via.Address{Discriminator: "messages"}
	to.MAC = [6]byte{2, 0, 0, 0, 0, 0x2a}
	if _, err := conform.Request(ctx, e.VI, to); err != nil {
		t.Fatal(err)
	}
	for i := range childMessages {
		n := messageSize(i)
		for j := range n {
			e.Memory.Bytes()[j] = byte(i + j)
		}
		if err := e.VI.PostSend(e.Prepare(t, e.Send[0], 0, n)); err != nil {
			t.Fatal(err)
		}
		if _, err := e.VI.SendWait(ctx); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := e.VI.Disconnect(ctx); err != nil {
		t.Error(err)
	}
}

func messageSize(i int) int { return i * i % (childSize + 1) }

func receiveMessages(t *testing.T, nic *via.NIC) {
	ctx := conform.Context(t)
	e := conform.NewEnd(t, nic, conform.Setup{Attributes: via.VIAttributes{MaxTransfer: childSize}, Memory: childSize})
	if err := e.VI.PostRecv(e.Prepare(t, e.Recv[0], 0, childSize)); err != nil {
		t.Fatal(err)
	}
	c, err := nic.ConnectWait(ctx, "messages")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Accept(ctx, e.VI); err != nil {
		t.Fatal(err)
	}
	for i := range childMessages {
		d, err := e.VI.RecvWait(ctx)
		if err != nil {
			t.Fatal(i, err)
		}
		if int(d.Length()) != messageSize(i) {
			t.Fatalf("message %d has %d bytes, want %d", i, d.Length(), messageSize(i))
		}
		for j, b := range e.Memory.Bytes()[:d.Length()] {
			if b != byte(i+j) {
				t.Fatalf("message %d of %d bytes is damaged at %d", i, d.Length(), j)
			}
		}
		if i+1 < childMessages {
			if err := e.VI.PostRecv(e.Prepare(t, e.Recv[0], 0, childSize)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestDoze sleeps until a frame comes from a device that somebody else steps.
func TestDoze(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (a, b wire.Port){
		"memory": func(t *testing.T) (a, b wire.Port) {
			x, y, err := wire.NewMemory(wire.MemoryOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return x, y
		},
		"shm": func(t *testing.T) (a, b wire.Port) {
			o := wire.SHMOptions{Path: filepath.Join(t.TempDir(), "wire")}
			x, err := wire.NewSHM(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			y, err := wire.NewSHM(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(timeout); !x.LinkUp() || !y.LinkUp(); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("link is down")
				}
			}
			return x, y
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkFiles(t)
			x, y := open(t)
			defer func() {
				_ = y.Close()
				y.Reserve(0) // lets go of the memory
				y.Receive()
			}()
			d := newDevice(t, func(o *emulator.Options) { o.Wire = x })
			for range 3 {
				over := d.Idle()
				if d.Idle() != over {
					t.Error("two sleepers do not share a channel")
				}
				d.Poll()
				select {
				case <-over:
					t.Fatal("woken before anything came")
				default:
				}
				if y.Reserve(64) == nil {
					t.Fatal("no room")
				}
				y.Commit()
				y.Flush()
				select {
				case <-over:
				case <-time.After(timeout):
					t.Fatal("nobody was woken")
				}
				if !d.Poll() {
					t.Error("woken without anything to do")
				}
			}
			over := d.Idle()
			closeDevice(t, d)
			<-over
			<-d.Idle() // closed: no time to sleep
		})
	}
	d := newDevice(t, func(o *emulator.Options) { o.Thread = true })
	if d.Idle() != nil {
		t.Error("a device that steps itself wakes whoever does not poll")
	}
}
