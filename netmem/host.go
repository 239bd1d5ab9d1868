package netmem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

var (
	// ErrWrongPage: a host has sent a page that is not what the page's server says it is. It is not
	// asked any more.
	ErrWrongPage = errors.New("the host has sent a wrong page")
	// ErrNotKept: a host has said that its frames were old, and has not kept a page that it took.
	ErrNotKept = errors.New("the host has not kept a page")
)

// hostTimeout bounds the time that a host takes for an answer, if Options.Timeout is not less. After it
// the page comes from its server.
const hostTimeout = 500 * time.Millisecond

// host is a client that lends a part of its cache, as another client knows it.
type host struct {
	keeper
	address via.Address
	frames  uint64 // that it lends; the keeper's
	// gave counts pages that it has given away: as many find room there.
	gave atomic.Int32

	mu      sync.Mutex
	seen    HostState // but for Connected
	lies    bool      // it has sent a wrong page
	summary protocol.Summary
	// kept and lost are pages that it had, and had not, when it was asked; halved each epoch.
	kept, lost float64
}

// dial connects with the host, and asks for its ages.
func (h *host) dial(ctx context.Context, p *pool) (err error) {
	defer func() {
		if err != nil && ctx.Err() == nil {
			h.setError(useHost, err)
		}
	}()
	h.mu.Lock()
	lies := h.lies
	h.mu.Unlock()
	if lies {
		return ErrWrongPage
	}
	timeout := min(hostTimeout, p.options.Timeout)
	within, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	l, d, err := dialLine(within, p.fabric, h.address, timeout)
	if err != nil {
		return err
	}
	if int(d.Page) != p.page {
		l.close()
		return optionError("the page of a host", d.Page, fmt.Sprint(p.page))
	}
	h.frames = d.Capacity / uint64(d.Page)
	h.update(func() { h.summary = protocol.Summary{} })
	h.gave.Store(0)
	h.now.Store(l)
	return h.ask(ctx, l)
}

// ask asks for the ages of its frames. If that fails it ends the connection.
func (h *host) ask(ctx context.Context, l *line) error {
	var s protocol.Summary
	b, err := l.ask(ctx, protocol.Ages)
	if err == nil {
		s, err = protocol.ParseSummary(b, h.frames)
	}
	if err != nil {
		h.lose(l, err) // without look: the keeper itself asks
		return err
	}
	h.update(func() {
		h.summary = s
		if !h.lies && !errors.Is(h.seen.Err, ErrNotKept) {
			h.seen.Err = nil
		}
	})
	return nil
}

// down ends a connection that has failed, and has the keeper connect again. When it returns the frames
// of its calls can be used for others.
func (h *host) down(l *line, err error) {
	h.lose(l, err)
	h.look()
}

func (h *host) lose(l *line, err error) {
	if h.now.CompareAndSwap(l, nil) {
		h.update(func() { h.seen.Broken++ })
		h.setError(useHost, err)
	}
	l.close()
}

// useHost is the operation that has failed where a host cannot be used at all.
const useHost = "use the memory"

// setError says what has failed last. A lie stays.
func (h *host) setError(op string, err error) {
	h.update(func() {
		if !h.lies {
			h.seen.Err = &Error{Op: op, Device: h.seen.Address, Err: err}
		}
	})
}

// update calls f, which changes what is known of the host.
func (h *host) update(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// mostGave bounds the room that a host is taken to have for what it has given away.
const mostGave = 64

// get fetches a version of a page, and reports whether it has come.
func (h *host) get(ctx context.Context, pool, page uint64, s protocol.Stamp, digest protocol.Digest, into ring.Frame) bool {
	l := h.now.Load()
	if l == nil {
		return false
	}
	q := protocol.Request{Length: uint32(into.Length)}
	q.SetCopy(protocol.Get, pool, page, s, 0)
	r, _, err := l.call(ctx, &q, ring.Frame{}, into)
	switch {
	case err != nil:
		h.down(l, err)
		return false
	case r.Result == protocol.OK && int(r.Length) == into.Length && protocol.DigestOf(into.Bytes()) == digest:
		h.update(func() { h.seen.Hits++; h.kept++ })
		if n := h.gave.Load(); r.Flags&protocol.Left != 0 && n < mostGave {
			h.gave.CompareAndSwap(n, n+1)
		}
		return true
	case r.Result == protocol.OK:
		h.update(func() {
			h.lies = true
			h.seen.Wrong++
			h.seen.Err = &Error{Op: onPage("fetch", page), Device: h.seen.Address, Err: ErrWrongPage, Hint: "its process or its memory is not to be trusted; this client asks it for nothing more"}
		})
		h.down(l, ErrWrongPage)
	case r.Result == protocol.NotHeld:
		h.setError(onPage("fetch", page), ErrNotKept)
		h.update(func() { h.seen.Missing++; h.lost++ })
	case r.Result != protocol.Busy:
		h.down(l, refusal(r.Result))
	}
	return false
}

// put sends a page, and reports whether the host keeps it.
func (h *host) put(ctx context.Context, pool, page uint64, s protocol.Stamp, age uint32, from ring.Frame) bool {
	l := h.now.Load()
	if l == nil {
		return false
	}
	q := protocol.Request{Length: uint32(from.Length)}
	q.SetCopy(protocol.Put, pool, page, s, age)
	r, _, err := l.call(ctx, &q, from, ring.Frame{})
	switch {
	case err != nil:
		h.down(l, err)
		return false
	case r.Result == protocol.OK:
		h.update(func() { h.seen.Sent++ })
		return true
	case r.Result == protocol.Full || r.Result == protocol.Busy:
		h.update(func() { h.seen.Refused++ })
	default:
		h.down(l, refusal(r.Result))
	}
	return false
}

// begin returns what the host says of its frames for an epoch, and how far that is believed, from 0 to 1:
// by the part of its pages that it had of late. One that lies about ages, or needs its memory itself, has lost many.
func (h *host) begin() (protocol.Summary, float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lies || h.now.Load() == nil {
		return protocol.Summary{}, 0
	}
	trust := (h.kept + 1) / (h.kept + h.lost + 1)
	h.kept, h.lost = h.kept/2, h.lost/2
	return h.summary, trust
}
