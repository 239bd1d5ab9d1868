package memif_test

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/testpmd"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

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
	n, err := driver.Open(conform.Context(t), address, driver.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	nic, err := via.New(conform.Context(t), n, via.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nic.Close(); err != nil {
			t.Error(err)
		}
	})
	const depth = 256
	s := &station{t: t, nic: n, most: most, End: conform.NewEnd(t, nic, conform.Setup{Memory: 2 * depth * most,
		Attributes: via.VIAttributes{Frames: via.AllFrames, SendDepth: depth, RecvDepth: depth}})}
	for i, d := range s.Recv {
		if err := s.VI.PostRecv(s.Prepare(t, d, (depth+i)*most, most)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// linked reports whether testpmd is there.
func (s *station) linked() bool {
	h, err := s.nic.Health(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
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
		if n, err := s.VI.PostSendBatch(s.Send[:len(batch)]); err != nil {
			s.t.Fatalf("posted %d of %d: %v", n, len(batch), err)
		}
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
		if err := s.VI.PostRecv(d); err != nil {
			s.t.Fatal(err)
		}
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
