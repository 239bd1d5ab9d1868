package transfer_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
)

var valid = map[string]transfer.Message{
	"offer":              {Kind: transfer.KindOffer, Size: 12345, Mode: 0o755, Name: "größe.bin"},
	"empty offer":        {Kind: transfer.KindOffer, Name: "a"},
	"stream":             {Kind: transfer.KindOffer, Size: transfer.UnknownSize, Name: "stdin"},
	"longest name":       {Kind: transfer.KindOffer, Name: strings.Repeat("n", transfer.MaxName)},
	"largest offer":      {Kind: transfer.KindOffer, Size: transfer.MaxSize, Name: "n"},
	"accept":             {Kind: transfer.KindAccept},
	"chunk":              {Kind: transfer.KindChunk, Offset: 1 << 40, Data: []byte("data")},
	"end":                {Kind: transfer.KindEnd, Size: 7, Digest: [32]byte{1, 31: 2}},
	"receipt":            {Kind: transfer.KindReceipt, Size: transfer.MaxSize},
	"abort":              {Kind: transfer.KindAbort, Reason: transfer.ReasonWrite, Text: "no space left on device"},
	"abort without text": {Kind: transfer.KindAbort, Reason: transfer.ReasonInterrupted},
}

func encode(t testing.TB, m transfer.Message) []byte {
	t.Helper()
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMessageRoundTrip(t *testing.T) {
	for name, m := range valid {
		t.Run(name, func(t *testing.T) {
			prefix := []byte("before")
			b, err := m.Append(prefix)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(b, prefix) {
				t.Fatalf("Append lost what stood before: %q", b)
			}
			got, err := transfer.Parse(b[len(prefix):])
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(m, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestChunkPrefixInPlace(t *testing.T) {
	b := append(make([]byte, transfer.PrefixSize), "payload"...)
	b[6] = 0xff // what a used buffer holds
	transfer.PutChunkPrefix(b, 99)
	want := encode(t, transfer.Message{Kind: transfer.KindChunk, Offset: 99, Data: []byte("payload")})
	if !bytes.Equal(b, want) {
		t.Errorf("got % x, want % x", b, want)
	}
}

func TestParseRefuses(t *testing.T) {
	offer, abort := encode(t, valid["offer"]), encode(t, valid["abort"])
	with := func(b []byte, at int, v ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], v)
		return b
	}
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"nothing":                {nil, transfer.ErrProtocol},
		"half a prefix":          {offer[:15], transfer.ErrProtocol},
		"other magic":            {with(offer, 0, 'X'), transfer.ErrProtocol},
		"older version":          {with(offer, 4, 0), transfer.ErrVersion},
		"newer version":          {with(offer, 4, 2), transfer.ErrVersion},
		"kind 0":                 {with(offer, 5, 0), transfer.ErrProtocol},
		"kind 7":                 {with(offer, 5, 7), transfer.ErrProtocol},
		"reserved byte 6":        {with(offer, 6, 1), transfer.ErrProtocol},
		"reserved byte 7":        {with(offer, 7, 1), transfer.ErrProtocol},
		"size too large":         {with(offer, 8, 1, 0, 0, 0, 0, 0, 0, 0x10), transfer.ErrProtocol},
		"setuid":                 {with(offer, 17, 0x08), transfer.ErrProtocol},
		"a directory's mode":     {with(offer, 19, 0x80), transfer.ErrProtocol},
		"name cut off":           {offer[:len(offer)-1], transfer.ErrProtocol},
		"name too long by claim": {with(offer, 20, 0xff, 0xff, 0xff, 0xff), transfer.ErrProtocol},
		"more than the name":     {append(bytes.Clone(offer), 'x'), transfer.ErrProtocol},
		"offer without body":     {offer[:16], transfer.ErrProtocol},
		"accept with a body":     {append(encode(t, valid["accept"]), 0), transfer.ErrProtocol},
		"accept with a number":   {with(encode(t, valid["accept"]), 8, 1), transfer.ErrProtocol},
		"chunk without data":     {encode(t, valid["chunk"])[:16], transfer.ErrProtocol},
		"chunk that wraps":       {with(encode(t, valid["chunk"]), 8, 255, 255, 255, 255, 255, 255, 255, 255), transfer.ErrProtocol},
		"chunk past the limit":   {with(encode(t, valid["chunk"]), 8, 0, 0, 0, 0, 0, 0, 0, 0x10), transfer.ErrProtocol},
		"short digest":           {encode(t, valid["end"])[:47], transfer.ErrProtocol},
		"long digest":            {append(encode(t, valid["receipt"]), 0), transfer.ErrProtocol},
		"end of unknown size":    {with(encode(t, valid["end"]), 8, 255, 255, 255, 255, 255, 255, 255, 255), transfer.ErrProtocol},
		"abort for no reason":    {with(abort, 8, 0), transfer.ErrProtocol},
		"abort for reason 256":   {with(abort, 8, 0, 1), transfer.ErrProtocol},
		"abort reserved":         {with(abort, 16, 1), transfer.ErrProtocol},
		"abort with an escape":   {with(abort, 24, 0x1b), transfer.ErrProtocol},
		"abort not UTF-8":        {with(abort, 24, 0xff), transfer.ErrProtocol},
		"abort cut off":          {abort[:20], transfer.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := transfer.Parse(c.b)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, %v; want %v", m, err, c.want)
			}
		})
	}
}

func TestAppendRefusesWhatParseWould(t *testing.T) {
	for name, m := range map[string]transfer.Message{
		"no name":        {Kind: transfer.KindOffer},
		"a path":         {Kind: transfer.KindOffer, Name: "../../etc/passwd"},
		"absolute":       {Kind: transfer.KindOffer, Name: "/etc/passwd"},
		"this directory": {Kind: transfer.KindOffer, Name: "."},
		"its parent":     {Kind: transfer.KindOffer, Name: ".."},
		"a NUL":          {Kind: transfer.KindOffer, Name: "a\x00b"},
		"an escape":      {Kind: transfer.KindOffer, Name: "a\x1b[2Jb"},
		"right to left":  {Kind: transfer.KindOffer, Name: "a\u202eb"},
		"not UTF-8":      {Kind: transfer.KindOffer, Name: "a\xffb"},
		"a long name":    {Kind: transfer.KindOffer, Name: strings.Repeat("n", transfer.MaxName+1)},
		"a long text":    {Kind: transfer.KindAbort, Reason: 1, Text: strings.Repeat("n", transfer.MaxText+1)},
		"no kind":        {},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := m.Append([]byte("x"))
			if !errors.Is(err, transfer.ErrProtocol) || string(b) != "x" {
				t.Errorf("got %q, %v", b, err)
			}
		})
	}
}

// FuzzParse checks that whatever parses is encoded in exactly one way.
func FuzzParse(f *testing.F) {
	for _, m := range valid {
		f.Add(encode(f, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := transfer.Parse(b)
		if err != nil {
			if !errors.Is(err, transfer.ErrProtocol) && !errors.Is(err, transfer.ErrVersion) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, err := m.Append(nil)
		if err != nil {
			t.Fatalf("%+v parsed but cannot be encoded: %v", m, err)
		}
		if !bytes.Equal(b, again) {
			t.Fatalf("parsed from % x, encoded as % x", b, again)
		}
	})
}
