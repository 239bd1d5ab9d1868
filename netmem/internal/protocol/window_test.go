package protocol_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"

	. "github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// bytesOf is a place as a table has it.
func bytesOf(p *Place) (b [PlaceSize]byte) {
	for i, w := range p.Words() {
		binary.LittleEndian.PutUint64(b[8*i:], w)
	}
	return b
}

// TestWindowRoundTrip: what is written is read.
func TestWindowRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.Uint64()
		b := make([]byte, WindowSize)
		w := Window{Handle: rapid.Uint32Min(1).Draw(t, "handle"), Frames: word.Draw(t, "frames"), Table: word.Draw(t, "table")}
		w.Encode(b)
		if got, err := ParseWindow(b); err != nil || got != w {
			t.Fatalf("%+v, %v: it was %+v", got, err, w)
		}
		p := Place{
			Sequence: rapid.Uint32().Draw(t, "sequence"), Frame: rapid.Uint32().Draw(t, "frame"), Version: word.Draw(t, "version"),
			Client: word.Draw(t, "client"), Epoch: rapid.Uint64Max(MaxPlaceEpoch).Draw(t, "epoch"), Flags: rapid.Uint32Max(15).Draw(t, "flags"),
		}
		place := bytesOf(&p)
		if got, steady := ParsePlace(&place); got != p || steady != (p.Sequence%2 == 0) {
			t.Fatalf("%+v, %v: it was %+v", got, steady, p)
		}
	})
}

// TestWindowRefused: the error names the field.
func TestWindowRefused(t *testing.T) {
	_, short := ParseWindow(make([]byte, WindowSize-1))
	_, none := ParseWindow(make([]byte, WindowSize))
	for want, err := range map[string]error{"length of the window": short, "handle of the window": none} {
		var f *FormatError
		if !errors.As(err, &f) || f.Field != want {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// FuzzWindow: what is accepted is written again as it was.
func FuzzWindow(f *testing.F) {
	b := make([]byte, WindowSize)
	(&Window{Handle: 7, Frames: 1 << 40, Table: 1 << 41}).Encode(b)
	f.Add(b)
	f.Add(b[:WindowSize-1])
	place := bytesOf(&Place{Sequence: 8, Frame: 3, Version: 1 << 60, Client: 5, Epoch: MaxPlaceEpoch, Flags: Unwritten})
	f.Add(place[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		if w, err := ParseWindow(b); err == nil {
			again := make([]byte, WindowSize)
			w.Encode(again)
			if got, err := ParseWindow(again); err != nil || got != w || w.Handle == 0 {
				t.Fatalf("%+v became %+v, %v", w, got, err)
			}
		}
		if len(b) >= PlaceSize {
			was := [PlaceSize]byte(b)
			p, steady := ParsePlace(&was)
			if bytesOf(&p) != was || steady == (was[0]&1 != 0) || p.Epoch > MaxPlaceEpoch || p.Flags > 15 {
				t.Fatalf("%x became %+v", was, p)
			}
		}
	})
}
