package netmem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/internal/hotlock"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// window reads pages out of a server's memory: first the page, and then its place. If the place has not
// changed, the server has not written to the frame meanwhile (PROTOCOL.md, "Reading a server's memory").
type window struct {
	protocol.Window
	reader reader

	mu     hotlock.Mutex // most reads take less time than a goroutine takes to sleep and wake
	closed bool
	now    [protocol.PlaceSize]byte // the place that was read last
	known  [knownPlaces]knownPlace  // by the lowest bits of the page
}

// knownPlaces is for how many pages a client keeps where they are.
const knownPlaces = 4096

type knownPlace struct {
	protocol.Place        // its Epoch is 0 if it is not known
	page           uint64 // that it is of
}

// errNotAtOnce: the wire does not let its ends copy, or not now.
var errNotAtOnce = errors.New("a read of the server's memory takes frames")

// readPage returns the place that the page had all the while. With an error the window is of no use any
// more; the page may have come all the same.
func (w *window) readPage(ctx context.Context, epoch, page uint64, into ring.Frame) (protocol.Place, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := &w.known[page%knownPlaces]
	if k.page != page {
		*k = knownPlace{page: page}
	}
	for range 3 { // the first may find the page, and the second that another client writes it
		if w.closed {
			return protocol.Place{}, false, nil
		}
		var address uint64
		if k.Epoch == epoch {
			address = w.Frames + uint64(k.Frame)*uint64(into.Length)
		}
		atOnce, err := w.reader.read(ctx, w.Handle, address, into, w.Table+page*protocol.PlaceSize, &w.now)
		if err != nil {
			return protocol.Place{}, false, err
		}
		if !atOnce {
			err = errNotAtOnce
		}
		now, steady := protocol.ParsePlace(&w.now)
		same := address != 0 && now == k.Place
		if k.Place = now; same {
			return now, true, err
		}
		if !steady || now.Epoch != epoch || err != nil {
			k.Epoch = 0
			return protocol.Place{}, false, err
		}
	}
	return protocol.Place{}, false, nil
}

type viReader struct {
	vi      *via.VI
	timeout time.Duration // of reads that take frames
	memory  *via.Memory   // a place
	posts   []*via.Descriptor
	copies  bool // the wire has let it copy: a post that is complete at once was a copy, too
}

func (c *ringConn) reader(ctx context.Context, timeout time.Duration) (reader, error) {
	vi, err := c.nic.CreateVI(ctx, via.VIAttributes{MaxTransfer: MaxPage, SendDepth: 2, RecvDepth: 2}, nil, nil)
	if err != nil {
		return nil, err
	}
	r := &viReader{vi: vi, timeout: timeout}
	if r.posts, err = vi.NewDescriptors(ctx, 2, 2); err == nil {
		r.memory, err = c.nic.Alloc(ctx, protocol.PlaceSize, via.MemoryAttributes{})
	}
	if err == nil {
		to := c.to
		to.MAC, to.Discriminator = c.ring.RemoteAddress().MAC, to.Discriminator+protocol.DirectSuffix
		_, err = vi.ConnectRequest(ctx, to, "")
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *viReader) read(ctx context.Context, handle uint32, address uint64, into ring.Frame, table uint64, place *[protocol.PlaceSize]byte) (bool, error) {
	// The wire keeps the order of a copy's beginning and of what was loaded before: the page comes first.
	if (address == 0 || r.vi.ReadDirect(address, handle, into.Memory, into.Offset, into.Length)) &&
		r.vi.ReadDirect(table, handle, r.memory, 0, protocol.PlaceSize) {
		copy(place[:], r.memory.Bytes())
		r.copies = true
		return true, nil
	}
	posts := r.posts
	if address == 0 {
		posts = posts[1:]
	} else if err := prepare(posts[0], address, handle, into.Memory, into.Offset, into.Length); err != nil {
		return false, err
	}
	last := r.posts[1]
	if err := prepare(last, table, handle, r.memory, 0, protocol.PlaceSize); err != nil {
		return false, err
	}
	last.SetFence() // the page has come before the place is read, on any wire
	if n, err := r.vi.PostSendBatch(posts); n != len(posts) {
		return false, err
	}
	atOnce := r.copies // else the answer may have come before the look
	for range posts {
		_, err := r.vi.SendDone()
		if errors.Is(err, via.ErrNotDone) {
			atOnce = false
			err = r.await(ctx)
		}
		if err != nil {
			return false, fmt.Errorf("read the server's memory: %w", err)
		}
	}
	copy(place[:], r.memory.Bytes())
	return atOnce, nil
}

func (r *viReader) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	_, err := r.vi.SendWait(ctx)
	return err
}

// prepare makes d a read of n bytes.
func prepare(d *via.Descriptor, address uint64, handle uint32, m *via.Memory, offset, n int) error {
	d.Prepare()
	return errors.Join(d.SetRDMARead(address, handle), m.AddTo(d, offset, n))
}

func (r *viReader) close() {
	ctx, cancel := context.WithTimeout(context.Background(), readerEnds)
	defer cancel()
	_ = r.vi.Abandon(ctx) // it fails if the NIC has: then nothing lands either
	if r.memory != nil {
		_ = r.memory.Close(ctx)
	}
}
