package guest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/vfio"
)

// virtioID is virtio's network device, of version 1.
const virtioID = "0x1af4 0x1041"

// pair is two NICs on one hub of QEMU's, each behind a port of its own: ours, and one that
// Linux drives.
type pair struct {
	name string
	// id is vendor and device of ours, which is the nth of them in the order of their
	// addresses; likewise Linux's.
	id, theirID string
	n, theirN   int
	driver      string // Linux's
	// cable is ours in QEMU's monitor, end Linux's, again what makes ours anew.
	cable, end, again string
}

// pairs are those of the scenario that TRAPEZE_PAIR names (see ci/vm/boot).
var pairs = map[string][]pair{
	"igb": {
		{name: "igb", id: igbID, theirID: igbID, theirN: 1, driver: "igb", cable: "ours", end: "theirs",
			again: "igb,id=ours,bus=pair0,netdev=end0,mac=02:00:00:00:01:00,romfile="},
	},
	"virtio": {
		{name: "split", id: virtioID, theirID: virtioID, theirN: 1, driver: "virtio-pci", cable: "ours", end: "theirs",
			again: "virtio-net-pci,id=ours,bus=pair0,netdev=end0,mac=02:00:00:00:01:00,romfile=,disable-legacy=on,iommu_platform=on,packed=off"},
		{name: "packed", id: virtioID, n: 2, theirID: virtioID, theirN: 3, driver: "virtio-pci", cable: "ours2", end: "theirs2",
			again: "virtio-net-pci,id=ours2,bus=pair2,netdev=end2,mac=02:00:00:00:01:02,romfile=,disable-legacy=on,iommu_platform=on,packed=on"},
	},
}

// eachPair runs a test on each pair of this guest.
func eachPair(t *testing.T, f func(t *testing.T, p pair)) {
	t.Helper()
	list := pairs[os.Getenv("TRAPEZE_PAIR")]
	if len(list) == 0 {
		t.Skip("no pairs of NICs in this guest")
	}
	// Only what tests say goes to the kernel's drivers.
	write(t, "0", "/sys/bus/pci/drivers_autoprobe")
	t.Cleanup(func() { write(t, "1", "/sys/bus/pci/drivers_autoprobe") })
	for _, p := range list {
		t.Run(p.name, func(t *testing.T) { f(t, p) })
	}
}

// onlyIGB skips a test of what virtio does not have.
func (p pair) onlyIGB(t *testing.T) {
	t.Helper()
	if p.id != igbID {
		t.Skip("not for virtio")
	}
}

func (p pair) ours(t *testing.T) string {
	t.Helper()
	list := find(t, p.id)
	must.Hold(t, len(list) > p.n, "functions %q", list)
	return list[p.n]
}

// open opens our NIC and waits for its link. Port and pool are closed with the test, and
// every buffer is back then.
func (p pair) open(t *testing.T, c ethernet.Options) ethernet.Port {
	t.Helper()
	eventfd(t) // has the runtime open what it keeps
	checkFiles(t)
	return openOurs(t, p.ours(t), c)
}

func openOurs(t *testing.T, function string, c ethernet.Options) ethernet.Port {
	t.Helper()
	bind(t, function, "vfio-pci")
	if c.Pool == nil {
		c.Pool = pagePool(t)
	}
	if c.ReceiveDescriptors == 0 {
		c.ReceiveDescriptors, c.SendDescriptors = 256, 256
	}
	c.Interrupts = true
	port := openPort(t, function, c)
	must.Get(ethernet.WaitLink(within(t), port))(t)
	return port
}

// pagePool makes a pool of which each buffer is in one page: see newPool.
func pagePool(t *testing.T) *ethernet.Pool {
	return porttest.NewPool(t, ethernet.PoolOptions{Buffers: 2048, Headroom: 64, Size: 4096 - 64})
}

// jumboPool makes a pool for frames of 9000 bytes, which lie in huge pages.
func jumboPool(t *testing.T) *ethernet.Pool {
	return porttest.NewPool(t, ethernet.PoolOptions{Buffers: 512, Headroom: 64, Size: 9216,
		MemoryOptions: vfio.MemoryOptions{Huge: vfio.HugeRequire}})
}

// worker uses a queue of a port in a goroutine.
type worker struct {
	done   sync.WaitGroup
	cancel context.CancelFunc
	err    error // once it has ended
}

// work calls step for the frames that come in a queue, which it may change; it returns which
// of them are sent back. It ends with the test, with end, or with the port's failure.
func work(t *testing.T, q ethernet.Queue, step func(f *ethernet.Frame, b []byte) (back bool)) *worker {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{cancel: cancel}
	w.done.Go(func() { w.err = serve(ctx, q, step) })
	t.Cleanup(func() { _ = w.end() })
	return w
}

// end ends the goroutine, and returns why it has ended before.
func (w *worker) end() error {
	w.cancel()
	return w.wait()
}

func (w *worker) wait() error {
	w.done.Wait()
	if errors.Is(w.err, context.Canceled) {
		return nil
	}
	return w.err
}

func serve(ctx context.Context, q ethernet.Queue, step func(f *ethernet.Frame, b []byte) bool) error {
	frames := make([]ethernet.Frame, 32)
	for ctx.Err() == nil {
		n, err := q.Receive(frames)
		if err != nil {
			return err
		}
		if n == 0 {
			if err := q.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		back, drop := frames[:0:0], frames[:0:0]
		for i := range frames[:n] {
			if step(&frames[i], q.Cache().Pool().Bytes(frames[i])) {
				back = append(back, frames[i])
			} else {
				drop = append(drop, frames[i])
			}
		}
		q.Cache().Free(drop)
		sent, err := q.Send(back)
		q.Cache().Free(back[sent:])
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// TestPairVirtual has Linux's igb on the physical function and ours on a virtual one. It
// talks to the other NIC over the hub, and to another virtual function that Linux's igbvf
// drives over the switch in the NIC.
func TestPairVirtual(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		p.onlyIGB(t)
		eventfd(t) // has the runtime open what it keeps
		checkFiles(t)
		pf := p.ours(t)
		vfs := virtualOfLinux(t, pf, 2)
		talk := func(t *testing.T, l *peer) {
			port := openOurs(t, vfs[0], ethernet.Options{})
			in, out := exchange(t, port, l, 3000)
			should.Hold(t, in+out == 0, "lost %d and %d; counted %+v, %+v", in, out, port.Stats(), port.Stats().Device)
			answer(t, port, nil)
			l.ping(ourIP, sequence(1472, 16))
		}
		t.Run("over the hub", func(t *testing.T) { talk(t, p.linux(t)) })
		t.Run("beside igbvf", func(t *testing.T) {
			load(t, "igbvf")
			talk(t, newPeer(t, vfs[1], "igbvf"))
		})
	})
}

// TestPairTCP: Linux fetches a file over our TCP/IP on our NIC, and our TCP/IP fetches it from Linux.
func TestPairTCP(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		l := p.linux(t)
		function := p.ours(t)
		bind(t, function, "vfio-pci")
		folder := t.TempDir()
		want := make([]byte, 2<<20)
		_, _ = rand.Read(want)
		must.OK(t, os.WriteFile(filepath.Join(folder, "file"), want, 0o600))
		ours := func(args ...string) *exec.Cmd {
			c := exec.CommandContext(t.Context(), "trapeze-ip", append(args, "--device", "pci:"+function, "--address", ourIP+"/24")...)
			c.Env = append(os.Environ(), "TRAPEZE_TELEMETRY=off") // the guest has no /run
			return c
		}
		serving := ours("serve", folder)
		said := must.Get(serving.StderrPipe())(t)
		must.OK(t, serving.Start())
		lines := bufio.NewReader(said)
		if line, err := lines.ReadString('\n'); !strings.HasPrefix(line, "serving") {
			t.Fatal(line, err)
		}
		go func() { _, _ = io.Copy(os.Stderr, lines) }()
		got := filepath.Join(t.TempDir(), "got")
		l.run("wget", "-q", "-O", got, "http://"+ourIP+"/file")
		if b, err := os.ReadFile(got); err != nil || !bytes.Equal(b, want) {
			t.Errorf("Linux has %d bytes of %d, %v", len(b), len(want), err)
		}
		_ = serving.Process.Signal(os.Interrupt)
		should.OK(t, serving.Wait())
		theirs := exec.Command("nsenter", "-t", l.pid, "-n", "httpd", "-f", "-p", "80", "-h", folder)
		must.OK(t, theirs.Start())
		defer func() { _, _ = theirs.Process.Kill(), theirs.Wait() }()
		b, err := ours("get", "http://"+theirIP+"/file").Output()
		should.Hold(t, err == nil && bytes.Equal(b, want), "our end has %d bytes of %d, %v", len(b), len(want), err)
	})
}

// surround fills memory and gives every other page back, so that what is allocated next
// comes to lie between pages of it. check says where they are not as they were.
func surround(t *testing.T, size int) (check func()) {
	t.Helper()
	b := must.Get(unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(t)
	t.Cleanup(func() { should.OK(t, unix.Munmap(b)) })
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) // a kernel without huge pages refuses it
	page := os.Getpagesize()
	filled := bytes.Repeat([]byte{0xa5}, page)
	for at := 0; at < size; at += page {
		copy(b[at:], filled)
	}
	for at := page; at < size; at += 2 * page {
		must.OK(t, unix.Madvise(b[at:at+page], unix.MADV_DONTNEED))
	}
	return func() {
		t.Helper()
		for at := 0; at < size; at += 2 * page {
			p := b[at : at+page]
			if bytes.Equal(p, filled) {
				continue
			}
			first := 0
			for p[first] == filled[first] {
				first++
			}
			t.Errorf("page %d of what the NIC was not given: % x at %#x", at/page, p[first:min(first+16, page)], first)
		}
	}
}

// TestPairMemory: a NIC writes to what it was given, and not to the pages beside that, even
// where the NIC's own idea of memory beyond a page is wrong (see virtqueue.Options.Layout).
func TestPairMemory(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		l := p.linux(t)
		check := surround(t, 32<<20)
		port := p.open(t, ethernet.Options{})
		flows(t, port, l)
		should.OK(t, port.Close())
		check()
	})
}
