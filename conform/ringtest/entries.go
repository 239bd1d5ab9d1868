package ringtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/conform/viatest"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// testFull gets all entries: then there is none, at once.
func testFull(t viatest.T, p *viatest.Pair) {
	x, y := connect(t, p, reliable())
	if e, err := y.GetRecv(); err != ring.ErrEmpty || e != nil {
		t.Errorf("nothing has come: %v, %v", e, err)
	}
	var entries []*ring.Entry
	for range x.Entries() {
		entries = append(entries, viatest.Must(x.GetSend())(t))
	}
	if e, err := x.GetSend(); err != ring.ErrFull || e != nil {
		t.Errorf("all entries are got: %v, %v", e, err)
	}
	for i, e := range entries {
		viatest.Must(e.Reserve(1))(t)[0] = byte(i)
		viatest.OK(t, x.ReleaseSend(e))
	}
	var held []*ring.Entry
	for i := range y.Entries() {
		held = append(held, receive(t, y, p, string([]byte{byte(i)})))
	}
	// The receiver has no entry left: the next message waits.
	send(t, x, p, "one more", ring.Frame{}, nil)
	if e, err := y.GetRecv(); err != ring.ErrEmpty {
		t.Errorf("all entries are held: %v, %v", e, err)
	}
	for _, e := range held {
		viatest.OK(t, y.ReleaseRecv(e))
	}
	viatest.OK(t, y.ReleaseRecv(receive(t, y, p, "one more")))
}

// testOutOfOrder releases entries in another order than that in which they were got: they
// are sent in the order in which they were got.
func testOutOfOrder(t viatest.T, p *viatest.Pair) {
	x, y := connect(t, p, reliable())
	for range 5 {
		a, b, c := get(t, x, p), get(t, x, p), get(t, x, p)
		for i, e := range []*ring.Entry{a, b, c} {
			viatest.Must(e.Reserve(1))(t)[0] = byte(i)
		}
		viatest.OK(t, x.ReleaseSend(c))
		viatest.OK(t, x.ReleaseSend(b))
		if n, _ := x.Driver().Queued(); n > x.Entries()-3 {
			t.Errorf("%d entries are posted before their time", n)
		}
		viatest.OK(t, x.ReleaseSend(a))
		d, e, f := receive(t, y, p, "\x00"), receive(t, y, p, "\x01"), receive(t, y, p, "\x02")
		viatest.OK(t, y.ReleaseRecv(f))
		viatest.OK(t, y.ReleaseRecv(d))
		viatest.OK(t, y.ReleaseRecv(e))
	}
}

// testCompletions looks when completions run: in CheckSent, when an entry is used again, and
// at no other time.
func testCompletions(t viatest.T, p *viatest.Pair) {
	x, y := connect(t, p, reliable())
	m := alloc(t, p.A, 64)
	f := ring.Frame{Memory: m, Length: 64}
	ran := 0
	done := func(err error) {
		ran++
		if err != nil {
			t.Error(err)
		}
	}
	send(t, x, p, "first", f, done)
	viatest.OK(t, y.ReleaseRecv(receive(t, y, p, "first")))
	viatest.OK(t, x.WaitSent(viatest.Context(t)))
	if ran != 0 {
		t.Error("a completion has run by itself")
	}
	if n := x.CheckSent(); n != 1 || ran != 1 {
		t.Errorf("%d sends are done, %d completions have run", n, ran)
	}
	for i := range x.Entries() {
		send(t, x, p, "again", f, done)
		viatest.OK(t, y.ReleaseRecv(receive(t, y, p, "again")))
		if ran != 1 {
			t.Errorf("message %d: %d completions have run", i, ran)
		}
	}
	send(t, x, p, "used again", f, done)
	if ran != 2 {
		t.Errorf("an entry is used again, and %d completions have run", ran)
	}
	viatest.OK(t, y.ReleaseRecv(receive(t, y, p, "used again")))
	viatest.OK(t, x.Close())
	if ran != x.Entries()+2 {
		t.Errorf("%d completions have run by the end", ran)
	}
}

// testFrames attaches what cannot be attached, and takes memory away that is.
func testFrames(t viatest.T, p *viatest.Pair) {
	ctx := viatest.Context(t)
	x, y := connect(t, p, reliable())
	m := alloc(t, p.A, 8192)
	tag := viatest.Must(p.A.CreatePtag(ctx))(t)
	other := viatest.Must(p.A.Alloc(ctx, 64, via.MemoryAttributes{Ptag: tag}))(t)
	gone := alloc(t, p.A, 64)
	viatest.OK(t, gone.Deregister(ctx))
	e := viatest.Must(x.GetSend())(t)
	for _, c := range []struct {
		name string
		f    ring.Frame
		want error
	}{
		{"another ptag", ring.Frame{Memory: other, Length: 64}, via.ErrInvalidPtag},
		{"another NIC", ring.Frame{Memory: alloc(t, p.B, 64), Length: 64}, via.ErrInvalidPtag},
		{"deregistered", ring.Frame{Memory: gone, Length: 64}, via.ErrClosed},
		{"beyond the end", ring.Frame{Memory: m, Offset: 8000, Length: 193}, via.ErrInvalidParameter},
		{"before the start", ring.Frame{Memory: m, Offset: -1, Length: 1}, via.ErrInvalidParameter},
		{"less than nothing", ring.Frame{Memory: m, Length: -1}, via.ErrInvalidParameter},
		{"no memory", ring.Frame{Length: 1}, via.ErrInvalidParameter},
		{"more than a payload", ring.Frame{Memory: m, Length: 4097}, ring.ErrNoRoom},
	} {
		viatest.WantError(t, c.name, e.Attach(c.f, nil), c.want)
	}
	f := ring.Frame{Memory: m, Length: 4096}
	viatest.OK(t, e.Attach(f, nil))
	viatest.WantError(t, "attached twice", e.Attach(f, nil), ring.ErrAttached)
	viatest.WantError(t, "more than the frame", e.SetLength(4097), ring.ErrNoRoom)
	viatest.WantError(t, "less than nothing", e.SetLength(-1), ring.ErrNoRoom)
	if got := viatest.Must(e.Detach())(t); got != f || e.Length() != 0 {
		t.Errorf("detached %+v", got)
	}
	viatest.OK(t, e.Attach(f, nil))
	viatest.OK(t, e.SetLength(10))
	viatest.OK(t, x.ReleaseSend(e))
	r := receive(t, y, p, "")
	if r.Length() != 10 {
		t.Errorf("%d bytes came", r.Length())
	}
	// Memory that is attached to an entry of the device cannot be taken away.
	into := alloc(t, p.B, 64)
	viatest.Must(r.Detach())(t)
	viatest.OK(t, r.Attach(ring.Frame{Memory: into, Length: 64}, nil))
	viatest.OK(t, y.ReleaseRecv(r))
	viatest.WantError(t, "freeing a frame under way", into.Deregister(ctx), via.ErrResource)
	viatest.OK(t, y.SetPlace(7, ring.Frame{Memory: alloc(t, p.B, 64), Length: 64}))
	place := alloc(t, p.B, 64)
	viatest.OK(t, y.SetPlace(8, ring.Frame{Memory: place, Length: 64}))
	viatest.WantError(t, "freeing a place", place.Deregister(ctx), via.ErrResource)
	viatest.OK(t, y.EndPlace(ctx, 8))
	viatest.OK(t, place.Deregister(ctx))
	viatest.WantError(t, "a place of another ptag", y.SetPlace(9, ring.Frame{Memory: m, Length: 64}), via.ErrInvalidPtag)
	viatest.WantError(t, "a place of no memory", y.SetPlace(9, ring.Frame{}), via.ErrInvalidParameter)
	viatest.OK(t, y.Close())
	viatest.OK(t, into.Deregister(ctx))
}

// testEntries uses entries that are not the program's.
func testEntries(t viatest.T, p *viatest.Pair) {
	x, y := connect(t, p, reliable())
	e := viatest.Must(x.GetSend())(t)
	viatest.WantError(t, "of another side", y.ReleaseRecv(e), ring.ErrNotOwned)
	viatest.WantError(t, "of another ring", y.ReleaseSend(e), ring.ErrNotOwned)
	viatest.WantError(t, "no entry", x.ReleaseSend(nil), ring.ErrNotOwned)
	viatest.OK(t, e.SetTag(1))
	viatest.Must(e.Reserve(ring.MessageSize - 1))(t)
	if b, err := e.Reserve(2); !errors.Is(err, ring.ErrNoRoom) || b != nil {
		t.Errorf("more than a message: %v, %v", b, err)
	}
	if b, err := e.Reserve(-1); !errors.Is(err, ring.ErrNoRoom) || b != nil {
		t.Errorf("less than nothing: %v, %v", b, err)
	}
	viatest.Must(e.Reserve(1))(t)
	viatest.OK(t, x.ReleaseSend(e))
	for what, f := range map[string]func() error{
		"release":    func() error { return x.ReleaseSend(e) },
		"attach":     func() error { return e.Attach(ring.Frame{}, nil) },
		"detach":     func() error { _, err := e.Detach(); return err },
		"set length": func() error { return e.SetLength(0) },
		"set tag":    func() error { return e.SetTag(0) },
		"reserve":    func() error { _, err := e.Reserve(0); return err },
	} {
		viatest.WantError(t, what, f(), ring.ErrNotOwned)
	}
	if e.Bytes() != nil {
		t.Error("the message of an entry that was released")
	}
	r := receive(t, y, p, "")
	viatest.OK(t, y.ReleaseRecv(r))
	viatest.WantError(t, "released twice", y.ReleaseRecv(r), ring.ErrNotOwned)
	_, err := r.Scan(1)
	viatest.WantError(t, "scan", err, ring.ErrNotOwned)
}

// testWaits waits for messages that come and for some that do not.
func testWaits(t viatest.T, p *viatest.Pair) {
	x, y := connect(t, p, reliable())
	ctx, cancel := context.WithTimeout(viatest.Context(t), 20*time.Millisecond)
	defer cancel()
	viatest.WantError(t, "nothing comes", y.Wait(ctx), context.DeadlineExceeded, via.ErrTimeout)
	viatest.OK(t, x.WaitSent(ctx))
	for i := range 3 {
		sent := make(chan error, 1)
		go func() {
			time.Sleep(10 * time.Millisecond) // so long that who waits sleeps
			e, err := x.GetSend()
			if err == nil {
				copy(e.Bytes(), fmt.Sprint(i))
				err = x.ReleaseSend(e)
			}
			for err == nil && x.CheckSent() == 0 {
				err = x.WaitSent(viatest.Context(t))
			}
			sent <- err
		}()
		viatest.OK(t, y.Wait(viatest.Context(t)))
		viatest.OK(t, y.ReleaseRecv(receive(t, y, p, fmt.Sprint(i))))
		p.Until(t, "the send", func() bool {
			select {
			case err := <-sent:
				viatest.OK(t, err)
				return true
			default:
				return false
			}
		})
	}
	var none context.Context
	viatest.WantError(t, "no context", y.Wait(none), via.ErrInvalidParameter)
}
