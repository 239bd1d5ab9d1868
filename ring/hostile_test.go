package ring_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// header lays out a header of calls, as header.go says.
func header(version, kind byte, size uint16, tag, payload, reserved uint32) []byte {
	b := []byte{version, kind}
	b = binary.LittleEndian.AppendUint16(b, size)
	b = binary.LittleEndian.AppendUint32(b, tag)
	b = binary.LittleEndian.AppendUint32(b, payload)
	return binary.LittleEndian.AppendUint32(b, reserved)
}

// sendRaw sends a message that is whatever it is.
func sendRaw(t *testing.T, r *ring.Ring, b []byte, tag *uint32, f ring.Frame) {
	t.Helper()
	e, err := r.GetSend()
	if err != nil {
		t.Fatal(err)
	}
	clear(e.Bytes())
	copy(e.Bytes(), b)
	if tag != nil {
		err = e.SetTag(*tag)
	}
	if err == nil {
		err = e.Attach(f, nil)
	}
	if err == nil {
		err = r.ReleaseSend(e)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// getRaw takes the next message.
func getRaw(t *testing.T, r *ring.Ring) []byte {
	t.Helper()
	e := must.Get(r.Wait(conform.Context(t)))(t)
	b := append([]byte(nil), e.Bytes()...)
	must.OK(t, r.ReleaseRecv(e))
	return b
}

// TestHostileClient: Serve ends with an error when a client does not keep to the protocol.
func TestHostileClient(t *testing.T) {
	for name, b := range map[string][]byte{
		"no header":      nil,
		"version":        header(2, 1, 0, 0, 0, 0),
		"a reply":        header(1, 2, 0, 0, 0, 0),
		"no kind":        header(1, 0, 0, 0, 0, 0),
		"size":           header(1, 1, ring.MaxRequest+1, 0, 0, 0),
		"reserved bytes": header(1, 1, 0, 0, 0, 1),
	} {
		t.Run(name, func(t *testing.T) {
			a, b2 := conform.OnMemory(t, "&engine=thread", via.Options{})
			x, y := connect(t, a, b2, ring.Options{})
			sendRaw(t, x, b, nil, ring.Frame{})
			err := ring.Serve(conform.Context(t), y, func(*ring.Request) { t.Error("a request") })
			if !errors.Is(err, via.ErrProtocol) {
				t.Error(err)
			}
		})
	}
	// One that has room for more than there can be is given what there is.
	a, b := conform.OnMemory(t, "&engine=thread", via.Options{})
	x, y := connect(t, a, b, ring.Options{})
	sendRaw(t, x, header(1, 1, 0, 1, 0xffffffff, 0), nil, ring.Frame{})
	ctx, cancel := context.WithCancel(t.Context())
	err := ring.Serve(ctx, y, func(q *ring.Request) {
		if q.Room() != y.MaxPayload() {
			t.Errorf("room for %d", q.Room())
		}
		for what, err := range map[string]error{
			"a long reply":    q.Reply(make([]byte, ring.MaxRequest+1), ring.Frame{}, nil),
			"a large payload": q.Reply(nil, ring.Frame{Memory: alloc(t, b, 1<<20), Length: y.MaxPayload() + 1}, nil),
		} {
			if !errors.Is(err, ring.ErrNoRoom) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := q.Reply(nil, ring.Frame{Memory: alloc(t, a, 64), Length: 64}, nil); !errors.Is(err, via.ErrInvalidPtag) {
			t.Error(err)
		}
		should.OK(t, q.Reply(nil, ring.Frame{}, nil))
		if err := q.Reply(nil, ring.Frame{}, nil); !errors.Is(err, via.ErrInvalidState) {
			t.Errorf("replied twice: %v", err)
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestHostileServer: replies that are none are strays, and ones that contradict themselves
// end their call with an error; nothing lands elsewhere than in the call's frame.
func TestHostileServer(t *testing.T) {
	const size = 64
	type answer struct {
		message []byte
		tag     *uint32
		payload int
	}
	for name, c := range map[string]struct {
		answer func(tag uint32) answer
		want   error // nil: a stray, so that the call ends by its deadline
	}{
		"no header": {func(tag uint32) answer { return answer{tag: &tag} }, nil},
		"a request": {func(tag uint32) answer { return answer{message: header(1, 1, 0, tag, 0, 0), tag: &tag} }, nil},
		"no tag":    {func(tag uint32) answer { return answer{message: header(1, 2, 0, tag, 0, 0)} }, nil},
		"tags differ": {func(tag uint32) answer {
			other := tag + 256
			return answer{message: header(1, 2, 0, tag, 0, 0), tag: &other}
		}, nil},
		"an unknown tag":   {func(tag uint32) answer { tag += 256; return answer{message: header(1, 2, 0, tag, 0, 0), tag: &tag} }, nil},
		"a call not begun": {func(tag uint32) answer { tag++; return answer{message: header(1, 2, 0, tag, 0, 0), tag: &tag} }, nil},
		"less than it says": {func(tag uint32) answer {
			return answer{message: header(1, 2, 0, tag, size, 0), tag: &tag, payload: size - 1}
		}, via.ErrProtocol},
		"more than it says": {func(tag uint32) answer { return answer{message: header(1, 2, 0, tag, 1, 0), tag: &tag, payload: size} }, via.ErrProtocol},
		"more than there is room for": {func(tag uint32) answer {
			return answer{message: header(1, 2, 0, tag, size+1, 0), tag: &tag, payload: size + 1}
		}, ring.ErrDiscarded},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := conform.OnMemory(t, "&engine=thread", via.Options{})
			x, y := connect(t, a, b, ring.Options{})
			caller := newCaller(t, x)
			into, from := alloc(t, a, 4096), alloc(t, b, 4096)
			for i := range from.Bytes() {
				from.Bytes()[i] = 0xee
			}
			ctx, cancel := context.WithCancel(conform.Context(t))
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := caller.Call(ctx, nil, ring.Frame{}, ring.Frame{Memory: into, Length: size})
				ended <- err
			}()
			tag := binary.LittleEndian.Uint32(getRaw(t, y)[4:])
			r := c.answer(tag)
			sendRaw(t, y, r.message, r.tag, ring.Frame{Memory: from, Length: r.payload})
			want := c.want
			if want == nil {
				waittest.Until(t, "the reply to nothing is counted", func() bool { return caller.Stats().Strays == 1 })
				cancel()
				want = ring.ErrDeadline
			}
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("error %v, want %v", err, want)
			}
			for i, v := range into.Bytes()[size:] {
				if v != 0 {
					t.Fatalf("byte %d behind the frame is %#x", i, v)
				}
			}
		})
	}
}
