package protocol_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
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
		must.Give(ParseWindow(b))(t, w)
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
