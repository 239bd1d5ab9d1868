package netmem

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// window reads pages out of a server's memory: first the page, and then its place. If the place has not
// changed, the server has not written to the frame meanwhile (PROTOCOL.md, "Reading a server's memory").
type window struct {
	protocol.Window
	reader reader

	mu     sync.Mutex
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
	in, cancel := context.WithTimeout(ctx, l.timeout) // a callContext would be used again while the driver still has it
	defer cancel()
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
	if l.ended.Load() {
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
	w.lock()
	if !w.closed {
		w.closed = true
		w.reader.close()
	}
	w.mu.Unlock()
	l.window.CompareAndSwap(w, nil) // last, so that another caller waits until nothing lands any more
}

// lock waits for the window's turn. Most reads take less time than a goroutine takes to sleep and wake.
func (w *window) lock() {
	for looks := 0; !w.mu.TryLock(); looks++ {
		if looks < 16 {
			runtime.Gosched()
		} else {
			time.Sleep(pause)
		}
	}
}

// readPage reads a part of a page out of the server's memory, if the server gives it out by the record of
// that epoch. Else it reports false: the server has to be asked.
func (l *line) readPage(ctx context.Context, epoch, page uint64, offset int, into ring.Frame, size int) (protocol.Reply, bool) {
	w := l.window.Load()
	if w == nil {
		return protocol.Reply{}, false
	}
	p, ok, err := w.readPage(ctx, epoch, page, offset, into, size)
	if err != nil {
		l.dropWindow(w)
	}
	return protocol.Reply{Operation: protocol.Fetch, Length: uint32(into.Length), Incarnation: l.incarnation, Version: p.Version, Client: p.Client, Flags: p.Flags}, ok
}

// readPage returns the place that the page had all the while. With an error the window is of no use any
// more; the page may have come all the same.
func (w *window) readPage(ctx context.Context, epoch, page uint64, offset int, into ring.Frame, size int) (protocol.Place, bool, error) {
	w.lock()
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
