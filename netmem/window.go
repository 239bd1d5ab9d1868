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

// openWindow has the line read the server's memory, if that is a copy. The connection comes first, so
// that it is with the server that answers.
func (l *line) openWindow(ctx context.Context) error {
	in, cancel := context.WithTimeout(l.ctx, l.timeout) // a callContext would be used again while the driver still has it
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	from, err := l.conn.reader(in, l.timeout)
	if err != nil {
		return err
	}
	r, a, err := l.call(in, &protocol.Request{Operation: protocol.Direct}, ring.Frame{}, ring.Frame{})
	if err == nil && r.Result != protocol.OK {
		err = refusal(r.Result)
	}
	w := &window{reader: from}
	if err == nil {
		w.Window, err = protocol.ParseWindow(a.bytes[:a.size])
	}
	for try := 0; err == nil; try++ { // the peer may have to be told of the connection
		var atOnce bool
		if atOnce, err = from.read(in, w.Handle, 0, ring.Frame{}, w.Table, &w.now); atOnce {
			break
		}
		if err == nil && try == firstReads {
			err = errNotAtOnce
		}
	}
	if err != nil {
		from.close()
		return err
	}
	l.window.Store(w)
	if l.ctx.Err() != nil {
		l.dropWindow(w)
	}
	return nil
}

// firstReads bounds the reads that may take frames when a window is opened.
const firstReads = 3

// dropWindow has the line read the server's memory no more.
func (l *line) dropWindow(w *window) {
	if w == nil {
		return
	}
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		w.reader.close()
	}
	w.mu.Unlock()
	l.window.CompareAndSwap(w, nil) // last, so that another caller waits until nothing lands any more
}

// readPage returns the place that the page had all the while. With an error the window is of no use any
// more; the page may have come all the same.
func (w *window) readPage(ctx context.Context, epoch, page uint64, offset int, into ring.Frame, size int) (protocol.Place, bool, error) {
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
			address = w.Frames + uint64(k.Frame)*uint64(size) + uint64(offset)
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

// Windows that do not open are tried again at growing intervals: a wire that does not let its ends copy
// may be another one later, and a program that a NIC runs may end.
const (
	firstOpening = time.Second
	lastOpening  = time.Minute
)

// opening says when a window is tried next.
type opening struct {
	of   *line
	at   time.Time
	wait time.Duration
}

// try opens the window of a line, if it has none and it is time.
func (o *opening) try(ctx context.Context, l *line) {
	if o.of != l {
		*o = opening{of: l, wait: firstOpening}
	}
	if l.window.Load() != nil || time.Now().Before(o.at) {
		return
	}
	if l.openWindow(ctx) != nil {
		o.at, o.wait = time.Now().Add(o.wait), min(2*o.wait, lastOpening)
	}
}

// viReader reads a server's memory by RDMA.
type viReader struct {
	vi      *via.VI
	timeout time.Duration // of reads that take frames
	memory  *via.Memory   // a place
	posts   []*via.Descriptor
	copies  bool // the wire has let it copy: a post that is complete at once was a copy, too
}

// reader is described at conn.
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

// await waits for a read that takes frames.
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
