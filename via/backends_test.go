package via_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/cable"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

var wires atomic.Uint32

// memoryWire names a wire that nobody else has.
func memoryWire() string { return fmt.Sprintf("mem:via-test-%d", wires.Add(1)) }

// openBoth opens two NICs and closes them when the test ends.
func openBoth(t testing.TB, first, second string, opts via.Options) (a, b *via.NIC) {
	t.Helper()
	return conform.OpenNIC(t, first, opts), conform.OpenNIC(t, second, opts)
}

// onFaultless opens two emulated NICs on a wire that might lose frames and never does, so
// that what arrives is acknowledged.
func onFaultless(t testing.TB, opts via.Options) (a, b *via.NIC) {
	t.Helper()
	first, second := must.Two(emulator.Pair(emulator.PairOptions{Faults: wire.FaultOptions{}}))(t)
	return conform.OpenDevice(t, first, opts), conform.OpenDevice(t, second, opts)
}

// onUDP opens two emulated NICs on UDP sockets.
func onUDP(t testing.TB, options string, opts via.Options) (a, b *via.NIC) {
	t.Helper()
	first, second := udpAddresses(t)
	return openBoth(t, first+options, second+options, opts)
}

func udpAddresses(t testing.TB) (first, second string) {
	t.Helper()
	// Both sockets are open at a time, so that the ports differ; closed again,
	// they are free for the NICs.
	x, y := freePort(t), freePort(t)
	at, peer := x.LocalAddr().String(), y.LocalAddr().String()
	_, _ = x.Close(), y.Close()
	return "emu:?wire=udp://" + at + "&peer=" + peer, "emu:?wire=udp://" + peer + "&peer=" + at
}

func freePort(t testing.TB) net.PacketConn {
	t.Helper()
	return must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
}

// onCable opens two emulated NICs whose wires are Ethernet ports, joined by a cable.
func onCable(t testing.TB, options string, opts via.Options) (a, b *via.NIC) {
	t.Helper()
	first, second := cableAddresses(t)
	return openBoth(t, first+options, second+options, opts)
}

func cableAddresses(testing.TB) (first, second string) {
	address := fmt.Sprintf("eth:%s:via-%d", cable.Scheme, wires.Add(1))
	return address, address
}

// onHost opens two NICs of a wire that programs of a host share.
func onHost(t testing.TB, options string, opts via.Options) (a, b *via.NIC) {
	t.Helper()
	address := fmt.Sprintf("emu:?wire=host:via-%d-%d", os.Getpid(), wires.Add(1)) + options
	return openBoth(t, address, address, opts)
}

// when a back end is tested.
type when int

const (
	always when = iota
	notShort
	inSoak
)

// skip: a run is short, ordinary or a soak, and the soak has what the ordinary one leaves out.
func (w when) skip() bool {
	if soak.Wanted() {
		return w != inSoak
	}
	return w == inSoak || w == notShort && testing.Short()
}

// part returns what this run takes of a suite over the i-th back end. An ordinary run takes all of it
// where whole is true, and elsewhere a twentieth, which differs from one back end to the next. The soak takes the rest.
func (w when) part(s conform.Suite, i int, whole bool) conform.Suite {
	switch {
	case w == inSoak && soak.Wanted():
		return s
	case w == inSoak, w == notShort && testing.Short(), whole && soak.Wanted():
		return nil
	case whole:
		return s
	}
	return sample(s, i, 20)
}

// sample returns the part of all that an ordinary run takes for the i-th of several subjects: each n-th
// element, so that n subjects in a row take all of them together. The soak takes the others.
func sample[S ~[]E, E any](all S, i, n int) (part S) {
	for j, e := range all {
		if ((i+j)%n == 0) != soak.Wanted() {
			part = append(part, e)
		}
	}
	return part
}

// wholly says over which back end an ordinary run takes the suites whole. The tests of tools/trapeze run a section of
// 'trapeze conform' over vfio-user, and the engine's tests run inline.
func wholly(name string) bool { return name == "thread, mapped doorbells" }

func withWaiting(o via.Options, w via.Waiting) via.Options { o.Waiting = w; return o }
func withPolicy(o via.Options, p via.Policy) via.Options   { o.Policy = p; return o }

// backends is the table of what the suite runs over.
var backends = []struct {
	name string
	open func(t testing.TB, opts via.Options) (a, b *via.NIC)
	when when
}{
	{"inline", func(t testing.TB, opts via.Options) (a, b *via.NIC) { return conform.OnMemory(t, "", opts) }, always},
	{"inline, trapped doorbells", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return conform.OnMemory(t, "&doorbells=trapped", opts)
	}, always},
	{"inline, small frames", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return conform.OnMemory(t, fmt.Sprintf("&mtu=%d", datasheet.MinMTU), opts)
	}, notShort},
	{"inline, with acknowledgements", onFaultless, notShort},
	{"thread", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return conform.OnMemory(t, "&engine=thread", opts)
	}, always},
	{"thread, mapped doorbells", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return conform.OnMemory(t, "&engine=thread&doorbells=mapped", opts)
	}, always},
	{"thread, waits that sleep at once", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return conform.OnMemory(t, "&engine=thread", withWaiting(opts, via.Waiting{Spin: -1, Yield: -1, Sleep: time.Millisecond}))
	}, notShort},
	{"inline, waits that never sleep", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return conform.OnMemory(t, "", withWaiting(opts, via.Waiting{Spin: time.Millisecond, Yield: time.Millisecond, Sleep: -1}))
	}, inSoak},
	{"lossy wire", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return conform.OnMemory(t, "&loss=0.1&duplicate=0.05&reorder=0.05&corrupt=0.05&seed=1", opts)
	}, notShort},
	{"UDP", func(t testing.TB, opts via.Options) (a, b *via.NIC) { return onUDP(t, "", opts) }, notShort},
	{"Ethernet", func(t testing.TB, opts via.Options) (a, b *via.NIC) { return onCable(t, "", opts) }, always},
	{"Ethernet, lossy", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return onCable(t, "?loss=0.1&duplicate=0.05&reorder=0.05&corrupt=0.05&seed=1", opts)
	}, inSoak},
	{"wire of the host", func(t testing.TB, opts via.Options) (a, b *via.NIC) { return onHost(t, "&engine=thread", opts) }, notShort},
	{"static policy in the NIC", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return conform.OnMemory(t, "", withPolicy(opts, via.Policy{Name: "static", MinPulseSend: 700, MinPulseReceive: 1000}))
	}, always},
	{"policy at the host", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return conform.OnMemory(t, "", withPolicy(opts, via.Policy{At: via.AtHost}))
	}, always},
	{"auto at the host, thread", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return conform.OnMemory(t, "&engine=thread", withPolicy(opts, via.Policy{Name: "auto", At: via.AtHost}))
	}, always},
	{"schedule at the host, lossy wire", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return conform.OnMemory(t, "&loss=0.1&duplicate=0.05&reorder=0.05&corrupt=0.05&seed=1", withPolicy(opts, via.Policy{Name: "hierarchical", At: via.AtHost}))
	}, inSoak},
	{"speeds", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return conform.OnMemory(t, "&burst=513&rate=500M&bus=1G&delay=2us&setup=200ns", withPolicy(opts, via.Policy{Name: "amp"}))
	}, notShort},
	{"speeds, thread, cut-through at the host", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return conform.OnMemory(t, "&engine=thread&burst=100&rate=1G&bus=500M&setup=100ns", withPolicy(opts, via.Policy{Name: "cut-through", At: via.AtHost}))
	}, inSoak},
	{"vfio-user, policy at the host", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		// Large frames: there each pulse is a message to another program.
		return onSockets(t, "?mtu=65344", withPolicy(opts, via.Policy{Name: "store-and-forward", At: via.AtHost}))
	}, inSoak},
	{"vfio-user", func(t testing.TB, opts via.Options) (a, b *via.NIC) { return onSockets(t, "", opts) }, always},
	{"vfio-user, lossy wire", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return onSockets(t, "?loss=0.1&duplicate=0.05&reorder=0.05&corrupt=0.05&seed=1", opts)
	}, inSoak},
	{"vfio-user, trapped doorbells", func(t testing.TB, opts via.Options) (a, b *via.NIC) {
		return onSockets(t, "?doorbells=trapped", opts)
	}, inSoak},
}

func TestConformance(t *testing.T) { overBackends(t, conform.VIs(), wholly, via.Options{}) }

// overBackends runs the part of a suite that this run takes over each back end.
func overBackends(t *testing.T, s conform.Suite, whole func(name string) bool, opts via.Options) {
	for i, b := range backends {
		if part := b.when.part(s, i, whole(b.name)); len(part) > 0 {
			part.Run(t, b.name, func(t *testing.T) (x, y *via.NIC) { return b.open(t, opts) })
		}
	}
}

// TestFaults runs the checks of faults, at whose peer the wire is filtered. An ordinary run takes all of them
// inline, and elsewhere a third. The soak takes the rest.
func TestFaults(t *testing.T) {
	onMemory := func(first, second string) func(testing.TB) (string, string) {
		return func(testing.TB) (string, string) {
			wire := "emu:?wire=" + memoryWire()
			return wire + first, wire + second
		}
	}
	for i, w := range []struct {
		name      string
		addresses func(t testing.TB) (first, second string)
	}{
		{"inline", onMemory("", "")},
		{"small frames", onMemory("&mtu=160", "&mtu=160")},
		{"thread", onMemory("&engine=thread", "&engine=thread")},
		{"thread and inline", onMemory("&engine=thread&doorbells=mapped", "")},
		{"lossy wire", onMemory("&loss=0.1&duplicate=0.05&reorder=0.05&corrupt=0.05&seed=1",
			"&loss=0.1&duplicate=0.05&reorder=0.05&corrupt=0.05&seed=2")},
		{"UDP", udpAddresses},
		{"Ethernet", cableAddresses},
	} {
		s := conform.Faults(filtered(w.addresses))
		switch {
		case w.name != "inline":
			s = sample(s, i, 3)
		case soak.Wanted():
			continue
		}
		s.Run(t, w.name, nil)
	}
}

// filtered returns what opens a NIC, and a second one whose wire passes through a filter.
func filtered(addresses func(t testing.TB) (first, second string)) func(t conform.T, f conform.Filter) (a, b *via.NIC) {
	return func(t conform.T, f conform.Filter) (a, b *via.NIC) {
		first, second := addresses(t.(testing.TB))
		a = conform.OpenNIC(t, first, via.Options{})
		return a, conform.OpenDevice(t, must.Get(emulator.OpenFiltered(t.Context(), second, f))(t), via.Options{})
	}
}

// TestRings runs the suite of package ring.
func TestRings(t *testing.T) { overBackends(t, conform.Rings(), wholly, via.Options{}) }

// TestChannels runs the suite of package channel. conform's tests have all of it inline.
func TestChannels(t *testing.T) {
	overBackends(t, conform.Channels(), wholly, via.Options{})
}

// TestConformanceEager runs the suite of rings with all memory eager, and samples of those of
// channels and VIs, over two back ends, over vfio-user a third of those; in the soak all of that of VIs over
// these two, and the sample over every other.
func TestConformanceEager(t *testing.T) {
	names := []string{"send-receive/reliable", "send-receive/scatter gather", "send-receive/inline data", "rdma/mixed",
		"rdma/fence", "memory/registration", "memory/attributes set", "errors/forged descriptors", "errors/posted once"}
	for i, b := range backends {
		open := func(t *testing.T) (x, y *via.NIC) { return b.open(t, via.Options{Eager: true}) }
		ours := b.name == "inline" || b.name == "vfio-user"
		switch {
		case ours && soak.Wanted():
			conform.VIs().Run(t, b.name, open)
		case b.name == "vfio-user":
			conform.VIs().Run(t, b.name, open, sample(names, i, 3)...)
		case ours || soak.Wanted():
			conform.VIs().Run(t, b.name, open, names...)
		}
		if ours {
			if part := b.when.part(conform.Rings(), i, b.name == "inline"); len(part) > 0 {
				part.Run(t, b.name, open)
			}
		}
		if ours && !soak.Wanted() {
			conform.Channels().Run(t, b.name, open, "channels/device memory")
		}
	}
}

// TestOpenBadAddress opens what cannot be opened.
func TestOpenBadAddress(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, c := range []struct {
		address string
		want    error
	}{
		{"", via.ErrInvalidParameter},
		{"nowhere", via.ErrInvalidParameter},
		{"smoke:signals", via.ErrInvalidParameter},
		{"emu:?wire=smoke", via.ErrInvalidParameter},
		{"emu:?wire=loop&loss=2", via.ErrInvalidParameter},
		{"emu:?colour=green", via.ErrInvalidParameter},
		{"emu:?wire=loop&wire=loop", via.ErrInvalidParameter},
	} {
		nic, err := via.Open(ctx, c.address, via.Options{})
		var e *via.Error
		if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Op != "open" || e.Device != c.address {
			t.Errorf("%q: error %v, want %v", c.address, err, c.want)
		}
		if strings.HasPrefix(c.address, "emu:") && strings.Count(err.Error(), c.address) != 1 {
			t.Errorf("%q is not named once: %v", c.address, err)
		}
		if nic != nil {
			t.Errorf("%q: a NIC", c.address)
		}
	}
	// What VIA has no code for is not called out of resources.
	missing := "vfio-user:" + filepath.Join(t.TempDir(), "missing")
	var e *via.Error
	if _, err := via.Open(ctx, missing, via.Options{}); !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &e) || e.Code != 0 || errors.Is(err, via.ErrResource) || e.Op != "open" || e.Device != missing {
		t.Errorf("no server: %v", err)
	}
	var none context.Context
	should.Refuse(via.Open(none, "emu:?wire=loop", via.Options{}))(t, via.ErrInvalidParameter, "no context")
	should.Refuse(via.OpenDevice(ctx, nil, via.Options{}))(t, via.ErrInvalidParameter, "no device")
	d := newClosing(t)
	if _, err := via.OpenDevice(none, d, via.Options{}); !errors.Is(err, via.ErrInvalidParameter) || d.closed != 1 {
		t.Errorf("no context: %v, the device was closed %d times", err, d.closed)
	}
	d = newClosing(t)
	should.Refuse(via.OpenDevice(ctx, d, via.Options{Policy: via.Policy{Name: "warp"}}))(t, pipeline.ErrUnknownPolicy)
	should.Be(t, d.closed, 1, "with a policy that nobody knows the device was closed times")
	should.Refuse(via.New(ctx, nil, via.Options{}))(t, via.ErrInvalidParameter, "no NIC")
}
