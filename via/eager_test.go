package via_test

import (
	"errors"
	"io"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/via"
)

var (
	_ io.WriterAt = (*via.Eager)(nil)
	_ io.ReaderAt = (*via.Eager)(nil)
)

// TestEagerHoldRefused: memory that the NIC holds is the program's alone, and written by Memory.Eager.
func TestEagerHoldRefused(t *testing.T) {
	nic, _ := conform.OnMemory(t, "", via.Options{})
	hold := via.EagerAttributes{Mode: via.EagerWritten, Receive: via.EagerHold}
	for name, a := range map[string]via.MemoryAttributes{
		"not eager": {Eager: via.EagerAttributes{Receive: via.EagerWriteBack}}, "at post": {Eager: via.EagerAttributes{Mode: via.EagerAtPost, Receive: via.EagerHold}},
		"no such way": {Eager: via.EagerAttributes{Mode: via.EagerWritten, Receive: 9}},
		"for peers":   {RDMARead: true, Eager: hold}, "read-only": {ReadOnly: true, Eager: hold},
	} {
		should.Refuse(nic.Alloc(conform.Context(t), 4096, a))(t, via.ErrInvalidParameter, "%s", name)
	}
	m := must.Get(nic.Alloc(conform.Context(t), 4096, via.MemoryAttributes{Eager: hold}))(t)
	should.Fail(t, m.SetAttributes(conform.Context(t), via.MemoryAttributes{RDMARead: true}), via.ErrInvalidParameter, "rights given later")
	p := make([]byte, 10)
	if n, err := m.Eager().ReadAt(p, 4090); n != 6 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	should.Refuse(m.Eager().ReadAt(p, 4097))(t, via.ErrInvalidParameter, "behind the end")
	should.Refuse(m.Eager().ReadAt(p, -1))(t, via.ErrInvalidParameter, "before the beginning")
}

// TestEagerAttributes: memory is eager if it says so, or if Options.Eager does and it says
// nothing, and then stays so.
func TestEagerAttributes(t *testing.T) {
	ctx := conform.Context(t)
	plain, _ := conform.OnMemory(t, "", via.Options{})
	all, _ := conform.OnMemory(t, "", via.Options{Eager: true})
	written := via.EagerAttributes{Mode: via.EagerWritten}
	for _, c := range []struct {
		name string
		nic  *via.NIC
		a    via.EagerAttributes
		want via.EagerAttributes
	}{
		{"nothing said", plain, via.EagerAttributes{}, via.EagerAttributes{}},
		{"Options.Eager", all, via.EagerAttributes{}, via.EagerAttributes{Mode: via.EagerAtPost, NoRoom: via.NoRoomOrdinary}},
		{"said", plain, written, written},
		{"said, Options.Eager", all, written, written},
	} {
		m, err := c.nic.Alloc(ctx, 4096, via.MemoryAttributes{Eager: c.a})
		if err != nil {
			t.Fatal(c.name, err)
		}
		if m.IsEager() != (c.want.Mode != 0) || m.Attributes().Eager != c.want {
			t.Errorf("%s: eager %v, attributes %+v", c.name, m.IsEager(), m.Attributes())
		}
		if err := m.SetAttributes(ctx, via.MemoryAttributes{RDMAWrite: true}); err != nil || m.IsEager() != (c.want.Mode != 0) || m.Attributes().Eager != c.want {
			t.Errorf("%s: attributes set: %v, %+v", c.name, err, m.Attributes())
		}
	}
}

// TestEagerTokens: the tokens of a VI are eager if it says so, or if Options.Eager does, and stay
// so; those of an endpoint for raw frames are not.
func TestEagerTokens(t *testing.T) {
	ctx := conform.Context(t)
	plain, _ := conform.OnMemory(t, "", via.Options{})
	all, _ := conform.OnMemory(t, "", via.Options{Eager: true})
	for _, c := range []struct {
		name string
		nic  *via.NIC
		a    via.VIAttributes
		want bool
	}{
		{"nothing said", plain, via.VIAttributes{}, false},
		{"Options.Eager", all, via.VIAttributes{}, true},
		{"said", plain, via.VIAttributes{EagerTokens: true}, true},
		{"raw frames, Options.Eager", all, via.VIAttributes{Frames: via.StationFrames}, false},
	} {
		before := must.Get(c.nic.EagerStats())(t)
		v, err := c.nic.CreateVI(ctx, c.a, nil, nil)
		if err != nil {
			t.Fatal(c.name, err)
		}
		s, err := c.nic.EagerStats()
		if err != nil || v.Attributes().EagerTokens != c.want || s.FreeSRAM < before.FreeSRAM != c.want {
			t.Errorf("%s: %+v, %d bytes free of %d, %v", c.name, v.Attributes(), s.FreeSRAM, before.FreeSRAM, err)
		}
		if c.a.Frames == via.NoFrames {
			if err := v.SetAttributes(ctx, via.VIAttributes{RDMAWrite: true}); err != nil || v.Attributes().EagerTokens != c.want {
				t.Errorf("%s: attributes set: %v, %+v", c.name, err, v.Attributes())
			}
		}
	}
	should.Refuse(plain.CreateVI(ctx, via.VIAttributes{EagerTokens: true, Frames: via.StationFrames}, nil, nil))(t, via.ErrInvalidParameter, "of raw frames")
}

// TestEagerReady: an application reads the front of a message that has not ended.
func TestEagerReady(t *testing.T) {
	a, b := conform.OnMemory(t, "&mtu=1500", via.Options{Eager: true})
	p := conform.NewWorld(t, a, b)
	const size = 500_000
	x, y := p.Connect(conform.Setup{Attributes: via.VIAttributes{MaxTransfer: size}, Memory: size})
	for i := range x.Memory.Bytes() {
		x.Memory.Bytes()[i] = byte(i / 251)
	}
	r := y.Prepare(t, y.Recv[0], 0, size)
	must.OK(t, y.VI.PostRecv(r))
	must.OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, size)))
	early, n := 0, uint32(0)
	p.Until("the message", func() bool {
		done := r.Status().Done()
		for ; r.Ready(n); n++ {
			if got, want := y.Memory.Bytes()[n], byte(n/251); got != want {
				t.Fatalf("byte %d is %d, want %d", n, got, want)
			}
			if !done {
				early++
			}
		}
		return done
	})
	if n != size || early == 0 {
		t.Errorf("%d bytes were ready, %d before the end", n, early)
	}
	p.MustTake(y.VI.RecvDone)
	p.MustTake(x.VI.SendDone)
}

// TestEagerPrograms: control programs come and go in a NIC's memory while messages go out of
// the rest of it; every message has its own bytes, and all of them were there.
func TestEagerPrograms(t *testing.T) {
	a, b := conform.OnMemory(t, "&engine=thread", via.Options{Eager: true})
	const size = 300
	p := newPingPong(t, conform.NewWorld(t, a, b), size)
	amp, _ := build(t, "amp")
	count, _ := build(t, "count")
	loaded := make(chan error, 1)
	go func() {
		var errs []error
		for i := range 20 {
			img := []load.Image{amp, count}[i%2]
			_, err := a.LoadProgram(t.Context(), img, load.Options{})
			errs = append(errs, err)
		}
		loaded <- errors.Join(errs...)
	}()
	for i, more := 0, true; more; i++ {
		select {
		case err := <-loaded:
			must.OK(t, err)
			more = false
		default:
		}
		for j := range size {
			p.x.Memory.Bytes()[j], p.y.Memory.Bytes()[j] = byte(i+j), byte(i-j)
		}
		p.round(t)
		for j := range size {
			if x, y := p.x.Memory.Bytes()[size+j], p.y.Memory.Bytes()[size+j]; x != byte(i-j) || y != byte(i+j) {
				t.Fatalf("round %d: byte %d is %d and %d", i, j, x, y)
			}
		}
	}
	if s, err := a.EagerStats(); err != nil || s.Taken == 0 || s.Read != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}
