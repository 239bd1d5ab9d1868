package netmem

import (
	"bytes"
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// TestHostilePlaces: a server that writes anything into its table of places has bytes of its own read, into the
// frame of the call and no other memory. Where the window breaks, pages come by requests.
func TestHostilePlaces(t *testing.T) {
	leaktest.Check(t)
	wire := "emu:?share=on&wire=shm:" + filepath.Join(t.TempDir(), "wire")
	var nics []*via.NIC
	for _, role := range []string{"listen", "connect"} {
		nic := must.Get(via.Open(t.Context(), wire+"&role="+role, via.Options{OnError: func(via.AsyncError) {}}))(t)
		t.Cleanup(func() { _ = nic.Close() })
		nics = append(nics, nic)
	}
	const pages = 4
	s := must.Get(NewServer(t.Context(), nics[0], ServerOptions{Page: MinPage, Size: pages * MinPage}))(t)
	defer s.Close()
	c := must.Get(Open(t.Context(), nics[1], []string{s.Address().String()}, Options{ReadAhead: -1}))(t)
	defer c.Close()
	m := must.Get(nics[1].Alloc(t.Context(), 3*MinPage, via.MemoryAttributes{}))(t)
	frame, guard := ring.Frame{Memory: m, Offset: MinPage, Length: MinPage}, bytes.Repeat([]byte{7}, MinPage)
	copy(m.Bytes(), guard)
	copy(m.Bytes()[2*MinPage:], guard)
	fetch := func(page uint64) {
		t.Helper()
		must.Get(c.Fetch(context.Background(), page, frame))(t)
		if b := m.Bytes(); !bytes.Equal(b[:MinPage], guard) || !bytes.Equal(b[2*MinPage:], guard) {
			t.Fatal("a read has left its frame")
		}
	}
	direct := func() uint64 { return c.Stats().Direct }
	for end := time.Now().Add(time.Minute); direct() == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		fetch(0)
	}
	before := direct()
	lent := s.storage
	frames := uint32(len(lent.lent))
	random := rand.New(rand.NewPCG(31, 5))
	rounds := soak.Count(1000, 1_000_000)
	scribble := func(frames uint32) {
		page := uint64(random.IntN(pages))
		p := protocol.Place{Frame: random.Uint32N(frames), Version: random.Uint64(), Client: random.Uint64(), Epoch: uint64(random.IntN(3)), Flags: random.Uint32N(16)}
		if random.IntN(4) > 0 {
			p.Epoch = c.pool.view.Load().Epoch
		}
		lent.table.store(page, &p)
		if random.IntN(3) == 0 {
			lent.table[page][random.IntN(4)] = random.Uint64() & (1<<32 - 1) // of the first word: frame 0, any sequence
		}
		fetch(page)
		fetch(page)
	}
	for range rounds {
		scribble(frames)
	}
	if direct() == before {
		t.Error("nothing was read out of the server's memory")
	}
	for range 100 {
		scribble(1 << 31) // most are outside of the registration, which ends the window
	}
}
