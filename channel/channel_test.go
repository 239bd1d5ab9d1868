package channel_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/pipeline/cells"
	"github.com/trapeze-nic/trapeze/via"
)

// modes are how a NIC may work.
var modes = map[string]string{"inline": "", "threads": "&engine=thread", "mapped": "&doorbells=mapped", "mapped, threads": "&doorbells=mapped&engine=thread"}

func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b)
	return b
}

// TestMessages: messages of any length, packed and spaced, arrive as they were sent, with
// their CRC and a stamp that does not go backwards.
func TestMessages(t *testing.T) {
	for name, options := range modes {
		for _, o := range []channel.Options{{}, {Spaced: true, PageSize: 8192}, {PageSize: 16384}} {
			t.Run(name, func(t *testing.T) {
				x, y := openPair(t, options, &o)
				var last channel.PDU
				for i := range 100 {
					want := random(channel.Word*(1+i*7%(x.Words()/3)), uint64(i))
					stop := x.SendPages().Put(i*13%x.Words(), want)
					if err := x.Send(channel.Priority(i%2), i*13%x.Words(), stop); err != nil {
						t.Fatal(err)
					}
					m, err := y.Wait(contextFor(t))
					if err != nil || m.Err != nil || m.Length != len(want) || m.Start != last.End || m.Stamp < last.Stamp {
						t.Fatalf("message %d: %+v, %v; after %+v", i, m, err, last)
					}
					got := make([]byte, m.Length)
					if n := y.Read(m, got); n != len(want) || !bytes.Equal(got, want) {
						t.Fatalf("message %d of %d bytes differs", i, n)
					}
					if crc := crcOf(want); m.CRC != crc {
						t.Fatalf("message %d: CRC %08x, want %08x", i, m.CRC, crc)
					}
					if err := y.Release(m); err != nil {
						t.Fatal(err)
					}
					last = m
				}
				if n, many, err := y.Drops(); n != 0 || many || err != nil {
					t.Error(n, many, err)
				}
			})
		}
	}
}

// crcOf is the CRC of AAL5 of a message.
func crcOf(b []byte) uint32 {
	pdu := append(bytes.Clone(b), make([]byte, cells.Count(len(b))*cells.PayloadSize-len(b))...)
	trailer := cells.Trailer{Length: uint16(len(b))}
	trailer.Put((*[cells.TrailerSize]byte)(pdu[len(pdu)-cells.TrailerSize:]))
	return cells.StartCRC.Update(pdu[:len(pdu)-4]).Sum()
}

// TestManyBeforeOneLook: messages that come before anybody looks are told apart.
func TestManyBeforeOneLook(t *testing.T) {
	x, y := openPair(t, "", nil)
	const n = 40
	for i := range n {
		stop := x.SendPages().Put(2*i, []byte{byte(i + 1)})
		for x.Send(channel.Low, 2*i, stop) == channel.ErrFull {
			if _, err := y.Status(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range n {
		m, err := y.Wait(contextFor(t))
		var b [channel.Word]byte
		if y.Read(m, b[:]); err != nil || m.Err != nil || b[0] != byte(i+1) {
			t.Fatalf("message %d: %+v, %v, %v", i, m, b, err)
		}
	}
	if _, err := y.Poll(); err != channel.ErrEmpty {
		t.Error(err)
	}
}

// TestRoom: what finds no room is cut, and the next message is not.
func TestRoom(t *testing.T) {
	x, y := openPair(t, "", nil)
	if err := y.Allow(5, 7); err != nil {
		t.Fatal(err)
	}
	want := random(64, 1)
	send := func() channel.PDU {
		t.Helper()
		if err := x.Send(channel.High, 0, x.SendPages().Put(0, want)); err != nil {
			t.Fatal(err)
		}
		m, err := y.Wait(contextFor(t))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := send(); m.Err != channel.ErrCut || m.Start != 5 || m.End != 7 || m.Length != 64 {
		t.Errorf("%+v", m)
	}
	if !bytes.Equal(y.RecvPages().Bytes()[5*channel.Word:7*channel.Word], want[:2*channel.Word]) {
		t.Error("what there was room for is not there")
	}
	if err := y.Allow(0, 100); err != nil {
		t.Fatal(err)
	}
	if m := send(); m.Err != nil || m.Start != 0 {
		t.Errorf("%+v", m)
	}
}

// TestEnd: a channel whose other end is closed says how it ended, after the messages that came
// before; calls after Close fail with ErrClosed.
func TestEnd(t *testing.T) {
	for name, options := range modes {
		t.Run(name, func(t *testing.T) {
			x, y := openPair(t, options, nil)
			if err := errors.Join(x.Send(channel.High, 0, 1), x.Flush(contextFor(t))); err != nil {
				t.Fatal(err)
			}
			if _, err := y.Wait(contextFor(t)); err != nil {
				t.Fatal(err)
			}
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := y.Wait(contextFor(t)); !errors.Is(err, via.ErrDisconnected) {
				t.Error(err)
			}
			_, polled := x.Poll()
			_, waited := x.Wait(contextFor(t))
			for what, err := range map[string]error{"close": x.Close(), "send": x.Send(channel.Low, 0, 1), "poll": polled, "wait": waited,
				"allow": x.Allow(0, 1), "release": x.Release(channel.PDU{}), "flush": x.Flush(contextFor(t)), "placed": x.SendPlaced(channel.Low, nil, nil)} {
				if !errors.Is(err, channel.ErrClosed) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// TestOptions: what does not fit is refused.
func TestOptions(t *testing.T) {
	a, b := openBoth(t, "")
	for _, size := range []int{-1, 1, 2048, 4097, 32768} {
		if _, err := channel.Dial(contextFor(t), a, via.Address{MAC: b.Query().Address}, &channel.Options{PageSize: size}); !errors.Is(err, via.ErrInvalidParameter) {
			t.Errorf("pages of %d: %v", size, err)
		}
		if _, err := channel.NewPages(contextFor(t), a, size, via.MemoryAttributes{}); !errors.Is(err, via.ErrInvalidParameter) {
			t.Errorf("pages of %d: %v", size, err)
		}
	}
	l, err := channel.Listen(b, "small", &channel.Options{PageSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := channel.Dial(contextFor(t), a, l.Address(), &channel.Options{PageSize: 8192}); !errors.Is(err, via.ErrReject) {
		t.Errorf("pages of another size: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := channel.Listen(b, string(make([]byte, via.MaxDiscriminator+1)), nil); !errors.Is(err, via.ErrInvalidParameter) {
		t.Error(err)
	}
}

// TestNothingIsAllocated: neither by a send, nor by a look, nor by a message that is taken.
func TestNothingIsAllocated(t *testing.T) {
	x, y := openPair(t, "", nil)
	if n := testing.AllocsPerRun(1000, func() {
		if err := x.Send(channel.High, 0, 5); err != nil {
			t.Fatal(err)
		}
		m, err := y.Poll()
		for err == channel.ErrEmpty {
			m, err = y.Poll()
		}
		if err != nil || m.Err != nil {
			t.Fatal(m, err)
		}
		if err := y.Release(m); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
