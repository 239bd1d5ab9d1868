package conform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// testRingFull gets all entries: then there is none, at once.
func testRingFull(w *World) {
	x, y := w.rings(reliableRing())
	if e, err := y.GetRecv(); err != via.ErrNotDone || e != nil {
		w.Errorf("nothing has come: %v, %v", e, err)
	}
	var entries []*ring.Entry
	for range x.Entries() {
		entries = append(entries, Must(x.GetSend())(w))
	}
	if e, err := x.GetSend(); err != via.ErrQueueFull || e != nil {
		w.Errorf("all entries are got: %v, %v", e, err)
	}
	for i, e := range entries {
		Must(e.Reserve(1))(w)[0] = byte(i)
		OK(w, x.ReleaseSend(e))
	}
	var held []*ring.Entry
	for i := range y.Entries() {
		held = append(held, w.receiveMessage(y, string([]byte{byte(i)})))
	}
	if _, err := y.Wait(Context(w)); err != via.ErrQueueEmpty {
		w.Errorf("waiting while all entries are held: %v", err)
	}
	// The receiver has no entry left: the next message waits.
	w.sendMessage(x, "one more", ring.Frame{}, nil)
	if e, err := y.GetRecv(); err != via.ErrNotDone {
		w.Errorf("all entries are held: %v, %v", e, err)
	}
	for _, e := range held {
		OK(w, y.ReleaseRecv(e))
	}
	OK(w, y.ReleaseRecv(w.receiveMessage(y, "one more")))
}

// testRingOutOfOrder releases entries in another order than that in which they were got: they
// are sent in the order in which they were got.
func testRingOutOfOrder(w *World) {
	x, y := w.rings(reliableRing())
	for range 5 {
		a, b, c := w.getEntry(x), w.getEntry(x), w.getEntry(x)
		for i, e := range []*ring.Entry{a, b, c} {
			Must(e.Reserve(1))(w)[0] = byte(i)
		}
		OK(w, x.ReleaseSend(c))
		OK(w, x.ReleaseSend(b))
		if n := x.Driver().Send.Queued(); n > x.Entries()-3 {
			w.Errorf("%d entries are posted before their time", n)
		}
		OK(w, x.ReleaseSend(a))
		d, e, f := w.receiveMessage(y, "\x00"), w.receiveMessage(y, "\x01"), w.receiveMessage(y, "\x02")
		OK(w, y.ReleaseRecv(f))
		OK(w, y.ReleaseRecv(d))
		OK(w, y.ReleaseRecv(e))
	}
}

// testRingCompletions looks when completions run: in CheckSent, when an entry is used again, and
// at no other time.
func testRingCompletions(w *World) {
	x, y := w.rings(reliableRing())
	m := w.alloc(w.A, 64)
	f := ring.Frame{Memory: m, Length: 64}
	ran := 0
	done := func(err error) {
		ran++
		if err != nil {
			w.Error(err)
		}
	}
	w.sendMessage(x, "first", f, done)
	OK(w, y.ReleaseRecv(w.receiveMessage(y, "first")))
	if ran != 0 {
		w.Error("a completion has run by itself")
	}
	if n, err := x.WaitSent(Context(w)); err != nil || n != 1 || ran != 1 {
		w.Errorf("%d sends are done, %d completions have run: %v", n, ran, err)
	}
	for i := range x.Entries() {
		w.sendMessage(x, "again", f, done)
		OK(w, y.ReleaseRecv(w.receiveMessage(y, "again")))
		if ran != 1 {
			w.Errorf("message %d: %d completions have run", i, ran)
		}
	}
	w.sendMessage(x, "used again", f, done)
	if ran != 2 {
		w.Errorf("an entry is used again, and %d completions have run", ran)
	}
	OK(w, y.ReleaseRecv(w.receiveMessage(y, "used again")))
	OK(w, x.Close())
	if ran != x.Entries()+2 {
		w.Errorf("%d completions have run by the end", ran)
	}
}

// testRingFrames attaches what cannot be attached, and takes memory away that is.
func testRingFrames(w *World) {
	ctx := Context(w)
	x, y := w.rings(reliableRing())
	m := w.alloc(w.A, 8192)
	tag := Must(w.A.CreatePtag(ctx))(w)
	other := Must(w.A.Alloc(ctx, 64, via.MemoryAttributes{Ptag: tag}))(w)
	gone := w.alloc(w.A, 64)
	OK(w, gone.Close(ctx))
	e := Must(x.GetSend())(w)
	for _, c := range []struct {
		name string
		f    ring.Frame
		want error
	}{
		{"another ptag", ring.Frame{Memory: other, Length: 64}, via.ErrInvalidPtag},
		{"another NIC", ring.Frame{Memory: w.alloc(w.B, 64), Length: 64}, via.ErrInvalidPtag},
		{"deregistered", ring.Frame{Memory: gone, Length: 64}, net.ErrClosed},
		{"beyond the end", ring.Frame{Memory: m, Offset: 8000, Length: 193}, via.ErrInvalidParameter},
		{"before the start", ring.Frame{Memory: m, Offset: -1, Length: 1}, via.ErrInvalidParameter},
		{"less than nothing", ring.Frame{Memory: m, Length: -1}, via.ErrInvalidParameter},
		{"no memory", ring.Frame{Length: 1}, via.ErrInvalidParameter},
		{"more than a payload", ring.Frame{Memory: m, Length: 4097}, ring.ErrNoRoom},
	} {
		wantError(w, c.name, e.Attach(c.f, nil), c.want)
	}
	f := ring.Frame{Memory: m, Length: 4096}
	OK(w, e.Attach(f, nil))
	wantError(w, "attached twice", e.Attach(f, nil), ring.ErrAttached)
	wantError(w, "more than the frame", e.SetLength(4097), ring.ErrNoRoom)
	wantError(w, "less than nothing", e.SetLength(-1), ring.ErrNoRoom)
	if got := Must(e.Detach())(w); got != f || e.Length() != 0 {
		w.Errorf("detached %+v", got)
	}
	OK(w, e.Attach(f, nil))
	OK(w, e.SetLength(10))
	OK(w, x.ReleaseSend(e))
	r := w.receiveMessage(y, "")
	if r.Length() != 10 {
		w.Errorf("%d bytes came", r.Length())
	}
	// Memory that is attached to an entry of the device cannot be taken away.
	into := w.alloc(w.B, 64)
	Must(r.Detach())(w)
	OK(w, r.Attach(ring.Frame{Memory: into, Length: 64}, nil))
	OK(w, y.ReleaseRecv(r))
	wantError(w, "freeing a frame under way", into.Close(ctx), via.ErrResource)
	OK(w, y.SetPlace(7, ring.Frame{Memory: w.alloc(w.B, 64), Length: 64}))
	place := w.alloc(w.B, 64)
	OK(w, y.SetPlace(8, ring.Frame{Memory: place, Length: 64}))
	wantError(w, "freeing a place", place.Close(ctx), via.ErrResource)
	OK(w, y.EndPlace(ctx, 8))
	OK(w, place.Close(ctx))
	wantError(w, "a place of another ptag", y.SetPlace(9, ring.Frame{Memory: m, Length: 64}), via.ErrInvalidPtag)
	wantError(w, "a place of no memory", y.SetPlace(9, ring.Frame{}), via.ErrInvalidParameter)
	OK(w, y.Close())
	OK(w, into.Close(ctx))
}

// testRingEntries uses entries that are not the program's.
func testRingEntries(w *World) {
	x, y := w.rings(reliableRing())
	e := Must(x.GetSend())(w)
	wantError(w, "of another side", y.ReleaseRecv(e), ring.ErrNotOwned)
	wantError(w, "of another ring", y.ReleaseSend(e), ring.ErrNotOwned)
	wantError(w, "no entry", x.ReleaseSend(nil), ring.ErrNotOwned)
	OK(w, e.SetTag(1))
	Must(e.Reserve(ring.MessageSize - 1))(w)
	if b, err := e.Reserve(2); !errors.Is(err, ring.ErrNoRoom) || b != nil {
		w.Errorf("more than a message: %v, %v", b, err)
	}
	if b, err := e.Reserve(-1); !errors.Is(err, ring.ErrNoRoom) || b != nil {
		w.Errorf("less than nothing: %v, %v", b, err)
	}
	Must(e.Reserve(1))(w)
	OK(w, x.ReleaseSend(e))
	for what, f := range map[string]func() error{
		"release":    func() error { return x.ReleaseSend(e) },
		"attach":     func() error { return e.Attach(ring.Frame{}, nil) },
		"detach":     func() error { _, err := e.Detach(); return err },
		"set length": func() error { return e.SetLength(0) },
		"set tag":    func() error { return e.SetTag(0) },
		"reserve":    func() error { _, err := e.Reserve(0); return err },
	} {
		wantError(w, what, f(), ring.ErrNotOwned)
	}
	if e.Bytes() != nil {
		w.Error("the message of an entry that was released")
	}
	r := w.receiveMessage(y, "")
	OK(w, y.ReleaseRecv(r))
	wantError(w, "released twice", y.ReleaseRecv(r), ring.ErrNotOwned)
	_, err := r.Scan(1)
	wantError(w, "scan", err, ring.ErrNotOwned)
}

// testRingWaits waits for messages that come and for some that do not.
func testRingWaits(w *World) {
	x, y := w.rings(reliableRing())
	ctx, cancel := context.WithTimeout(Context(w), 20*time.Millisecond)
	defer cancel()
	_, err := y.Wait(ctx)
	wantError(w, "nothing comes", err, context.DeadlineExceeded, via.ErrTimeout)
	if n, err := x.WaitSent(Context(w)); n != 0 || err != via.ErrQueueEmpty {
		w.Errorf("nothing is under way: %d, %v, want the bare ErrQueueEmpty", n, err)
	}
	for i := range 3 {
		sent := make(chan error, 1)
		go func() {
			time.Sleep(10 * time.Millisecond) // so long that who waits sleeps
			e, err := x.GetSend()
			if err == nil {
				copy(e.Bytes(), fmt.Sprint(i))
				err = x.ReleaseSend(e)
			}
			if err == nil {
				_, err = x.WaitSent(Context(w))
			}
			sent <- err
		}()
		e := Must(y.Wait(Context(w)))(w)
		if got := string(e.Bytes()[:1]); got != fmt.Sprint(i) {
			w.Errorf("message %q, want %d", got, i)
		}
		OK(w, y.ReleaseRecv(e))
		w.Until("the send", func() bool {
			select {
			case err := <-sent:
				OK(w, err)
				return true
			default:
				return false
			}
		})
	}
	var none context.Context
	_, err = y.Wait(none)
	wantError(w, "no context", err, via.ErrInvalidParameter)
}
