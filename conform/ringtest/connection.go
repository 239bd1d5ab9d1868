package ringtest

import (
	"errors"

	"github.com/trapeze-nic/trapeze/conform/viatest"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// testConnection connects what does not fit together, and asks for what there is not.
func testConnection(t viatest.T, p *viatest.Pair) {
	ctx := viatest.Context(t)
	l := viatest.Must(ring.Listen(p.B, "rings", reliable()))(t)
	to := l.Address()
	for name, change := range map[string]func(*ring.Options){
		"reliability": func(o *ring.Options) { o.Reliability = via.Unreliable },
		"payload":     func(o *ring.Options) { o.MaxPayload++ },
	} {
		o := reliable()
		change(o)
		_, err := ring.Dial(ctx, p.A, to, o)
		viatest.WantError(t, name, err, via.ErrReject)
	}
	// A VI finds no VI there.
	_, err := via.Dial(ctx, p.A, to)
	viatest.WantError(t, "a VI", err, via.ErrReject)
	viatest.OK(t, l.Close())
	_, err = l.Accept(ctx)
	viatest.WantError(t, "accept after the end", err, ring.ErrClosed)
	viatest.WantError(t, "closed twice", l.Close(), ring.ErrClosed)

	for name, c := range map[string]struct {
		o    ring.Options
		want error
	}{
		"entries":      {ring.Options{Entries: p.A.Query().MaxDescriptors + 1}, via.ErrInvalidParameter},
		"few entries":  {ring.Options{Entries: -1}, via.ErrInvalidParameter},
		"payload":      {ring.Options{MaxPayload: int(p.A.Query().MaxTransfer)}, via.ErrInvalidMTU},
		"less payload": {ring.Options{MaxPayload: -2}, via.ErrInvalidMTU},
		"frames":       {ring.Options{FrameSize: -2}, via.ErrInvalidParameter},
		"access":       {ring.Options{Access: ring.Shadow + 1}, via.ErrInvalidParameter},
	} {
		_, err := ring.Dial(ctx, p.A, to, &c.o)
		viatest.WantError(t, name, err, c.want)
	}
	_, err = ring.Listen(p.A, string(make([]byte, via.MaxDiscriminator+1)), nil)
	viatest.WantError(t, "a long name", err, via.ErrInvalidParameter)

	// With no choices at all both ends fit each other.
	x, y := connect(t, p, nil)
	if x.MaxPayload() != y.MaxPayload() || x.Entries() < 2 || x.RemoteAddress().String() != y.LocalAddress().String() {
		t.Errorf("%d and %d bytes, %v, %v", x.MaxPayload(), y.MaxPayload(), x.RemoteAddress(), y.LocalAddress())
	}
}

// testEndings ends connections: what had come can be got, and then the other end is gone.
func testEndings(t viatest.T, p *viatest.Pair) {
	x, y := connect(t, p, reliable())
	send(t, x, p, "last", ring.Frame{}, nil)
	send(t, y, p, "crossing", ring.Frame{}, nil)
	receive(t, x, p, "crossing")
	settle(t, p, x)
	viatest.OK(t, x.Close())
	viatest.WantError(t, "closed twice", x.Close(), ring.ErrClosed)
	_, err := x.GetSend()
	viatest.WantError(t, "send after the end", err, ring.ErrClosed)
	_, err = x.GetRecv()
	viatest.WantError(t, "receive after the end", err, ring.ErrClosed)
	e := receive(t, y, p, "last")
	p.Until(t, "the end", func() bool {
		_, err = y.GetRecv()
		return err != ring.ErrEmpty
	})
	viatest.WantError(t, "receive", err, ring.ErrPeerGone, via.ErrDisconnected)
	_, err = y.GetSend()
	viatest.WantError(t, "send", err, ring.ErrPeerGone)
	viatest.WantError(t, "wait", y.Wait(viatest.Context(t)), ring.ErrPeerGone)
	if err := y.ReleaseRecv(e); err != nil && !errors.Is(err, ring.ErrPeerGone) {
		t.Error(err)
	}
	viatest.OK(t, y.Close())

	// The NIC goes away under a ring.
	x, y = connect(t, p, reliable())
	waits := make(chan error, 1)
	go func() { waits <- y.Wait(viatest.Context(t)) }()
	e = viatest.Must(y.GetSend())(t)
	viatest.OK(t, p.B.Close())
	viatest.WantError(t, "wait on a closed NIC", <-waits, ring.ErrClosed)
	viatest.WantError(t, "release on a closed NIC", y.ReleaseSend(e), ring.ErrClosed)
	_, err = y.GetRecv()
	viatest.WantError(t, "receive on a closed NIC", err, ring.ErrClosed)
	viatest.OK(t, y.Close())
	p.Until(t, "the end", func() bool {
		_, err = x.GetRecv()
		return err != ring.ErrEmpty
	})
	viatest.WantError(t, "receive", err, ring.ErrPeerGone)
	viatest.OK(t, x.Close())
}

// testMemory makes rings until the NIC has no memory left: then that is said, and all of it
// comes back.
func testMemory(t viatest.T, p *viatest.Pair) {
	ctx := viatest.Context(t)
	d := p.A.Driver()
	before := free(t, d)
	a := driver.RingAttributes{Reliability: via.Unreliable, Ptag: p.A.Ptag().Number(), SendDepth: 4096, RecvDepth: 4096}
	var rings []*driver.Ring
	for {
		r, err := d.CreateRing(ctx, a)
		if err != nil {
			viatest.WantError(t, "no memory left", err, via.ErrResource)
			break
		}
		if now := free(t, d); now >= before {
			t.Fatalf("%d bytes were free, with a ring %d", before, now)
		}
		if rings = append(rings, r); len(rings) > 1<<12 {
			t.Fatal("there is no end to the NIC's memory")
		}
	}
	if len(rings) == 0 {
		t.Error("no ring of 4096 entries fits")
	}
	for _, r := range rings {
		viatest.OK(t, r.Destroy(ctx))
		viatest.WantError(t, "destroyed twice", r.Destroy(ctx), via.ErrClosed)
		viatest.WantError(t, "post after the end", r.PostSend(1), via.ErrClosed)
	}
	if now := free(t, d); now != before {
		t.Errorf("%d bytes were free, and %d are", before, now)
	}
}

func free(t viatest.T, d *driver.NIC) uint32 {
	t.Helper()
	n, all, err := d.FreeSRAM()
	viatest.OK(t, err)
	if n == 0 && all == 0 {
		t.Fatal("a NIC with rings has no memory to give out")
	}
	return n
}
