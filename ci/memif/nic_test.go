package memif_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/testpmd"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/driver"
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// TestNICs runs what every pair of NICs must pass over a memif: without ci/memif/run over one that is as
// memifs are by default, and of VIs only what asks much of a wire.
func TestNICs(t *testing.T) {
	for i, tt := range []struct{ name, server, client string }{
		{"interrupts", "", ""},
		{"polling", "&mode=poll&engine=thread", "&mode=poll&engine=thread"},
		{"large frames in chains, several rings", "&mtu=8256", "&mtu=8256&buffer=2048&queues=3"},
		{"large frames in one buffer", "&mtu=8256", "&mtu=8256&buffer=8320&ring=256"},
	} {
		if i > 0 && os.Getenv(required) == "" {
			continue
		}
		open := func(t *testing.T) (a, b *via.NIC) {
			wire := "&wire=memif:" + socketPath(t)
			return conform.OpenNIC(t, "emu:?role=server"+wire+tt.server, via.Options{}), conform.OpenNIC(t, "emu:?role=client"+wire+tt.client, via.Options{})
		}
		suite := conform.VIs()
		if os.Getenv(required) == "" {
			suite = slices.DeleteFunc(suite, func(c conform.Check) bool {
				return !slices.Contains([]string{"send-receive", "rdma", "reliability"}, c.Section)
			})
		}
		suite.Run(t, tt.name, open)
		conform.Channels().Run(t, tt.name, open)
	}
}

// station is an emulated NIC with an endpoint for all frames.
type station struct {
	t   *testing.T
	nic *driver.NIC
	*conform.End
	most int
}

// newStation opens a NIC on a memif and posts all receives.
func newStation(t *testing.T, address string, most int) *station {
	t.Helper()
	n := must.Get(driver.Open(conform.Context(t), address, driver.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	nic := must.Get(via.New(conform.Context(t), n, via.Options{}))(t)
	t.Cleanup(func() { should.OK(t, nic.Close()) })
	const depth = 256
	s := &station{t: t, nic: n, most: most, End: conform.NewEnd(t, nic, conform.Setup{Memory: 2 * depth * most,
		Attributes: via.VIAttributes{Frames: via.AllFrames, SendDepth: depth, RecvDepth: depth}})}
	for i, d := range s.Recv {
		must.OK(t, s.VI.PostRecv(s.Prepare(t, d, (depth+i)*most, most)))
	}
	return s
}

// linked reports whether testpmd is there.
func (s *station) linked() bool {
	h := must.Get(s.nic.Health(s.t.Context()))(s.t)
	return h.LinkUp
}

// until calls f until it has something to show.
func (s *station) until(what string, f func() (*via.Descriptor, error)) *via.Descriptor {
	s.t.Helper()
	for end := time.Now().Add(timeout); ; runtime.Gosched() {
		switch d, err := f(); {
		case err == nil:
			return d
		case !errors.Is(err, via.ErrNotDone):
			s.t.Fatalf("%s: %v", what, err)
		case time.Now().After(end):
			s.t.Fatalf("waited %v for %s", timeout, what)
		}
	}
}

// send sends frames, as many at a time as there are descriptors.
func (s *station) send(frames [][]byte) {
	s.t.Helper()
	for batch := range slices.Chunk(frames, len(s.Send)) {
		for i, f := range batch {
			copy(s.Memory.Bytes()[i*s.most:], f)
			s.Prepare(s.t, s.Send[i], i*s.most, len(f))
		}
		n, err := s.VI.PostSendBatch(s.Send[:len(batch)])
		must.Hold(s.t, err == nil, "posted %d of %d: %v", n, len(batch), err)
		for range batch {
			s.until("a send", s.VI.SendDone)
		}
	}
}

// receive receives n frames.
func (s *station) receive(n int) (frames [][]byte) {
	s.t.Helper()
	for range n {
		d := s.until("a frame", s.VI.RecvDone)
		i := slices.Index(s.Recv, d)
		frames = append(frames, bytes.Clone(s.Memory.Bytes()[(len(s.Recv)+i)*s.most:][:d.Length()]))
		d.Rearm()
		must.OK(s.t, s.VI.PostRecv(d))
	}
	return frames
}

// TestNICFrames has a NIC and testpmd exchange frames, in both roles: what an
// application sends is in the file that testpmd writes, and what is in the file
// that testpmd reads comes to the application, every byte in order.
func TestNICFrames(t *testing.T) {
	needsTestpmd(t)
	const n, most = 1000, 1500
	for name, c := range map[string]struct {
		role            wire.MemifRole
		options, device string
	}{
		"client":             {wire.MemifClient, "&role=client", ""},
		"server":             {wire.MemifServer, "&role=server", ",rsize=12"},
		"client, on threads": {wire.MemifClient, "&role=client&engine=thread&ring=4096", ""},
		"server, polling":    {wire.MemifServer, "&role=server&engine=thread&mode=poll", ",rsize=12"},
	} {
		t.Run(name, func(t *testing.T) {
			socket := socketPath(t)
			dir := filepath.Dir(socket)
			in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
			frames := makeFrames(n, most)
			writePcap(t, in, frames[:200]) // what a station with 256 receives can take at once
			s := newStation(t, "emu:?mtu=2048&wire=memif:"+socket+c.options, 2048)
			pmd := testpmd.Start(t, s.linked, testpmd.Options{Mode: "io", Devices: []string{
				memifDevice(0, c.role, socket, c.device), "net_pcap0,rx_pcap=" + in + ",tx_pcap=" + out}})
			wantFrames(t, "from the file", s.receive(200), frames[:200])
			for piece := range slices.Chunk(frames, 100) {
				before := len(readPcap(t, out))
				s.send(piece)
				pmd.Await("frames in the file", func() bool { s.VI.NIC().Poll(); return len(readPcap(t, out)) >= before+len(piece) })
			}
			pmd.Quit()
			wantFrames(t, "into the file", readPcap(t, out), frames)
		})
	}
}

// TestNICEcho has testpmd send back what an application sends, with its addresses
// swapped.
func TestNICEcho(t *testing.T) {
	needsTestpmd(t)
	for name, role := range map[string]wire.MemifRole{"client": wire.MemifClient, "server": wire.MemifServer} {
		t.Run(name, func(t *testing.T) {
			socket := socketPath(t)
			s := newStation(t, "emu:?mtu=2048&wire=memif:"+socket+"&role="+role.String(), 2048)
			testpmd.Start(t, s.linked, testpmd.Options{Mode: "macswap", Devices: []string{memifDevice(0, role, socket, ",rsize=12")}})
			for piece := range slices.Chunk(makeFrames(1000, 1500), 100) {
				s.send(piece)
				for _, f := range piece {
					swap(f[:6], f[6:12])
				}
				wantFrames(t, "sent back", s.receive(len(piece)), piece)
			}
		})
	}
}
