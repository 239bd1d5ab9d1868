package capture_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/capture"
)

var formats = []capture.Format{capture.PCAP, capture.PCAPNG}

// start is in a year that 32 bits of seconds still count.
var start = time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC)

// file writes frames, a microsecond and a nanosecond apart.
func file(t testing.TB, f capture.Format, snaplen int, frames ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := capture.NewWriter(&b, f, snaplen, capture.Source{Name: "emu:?wire=loop", Filter: "arp"}, "test")
	if err != nil {
		t.Fatal(err)
	}
	for i, frame := range frames {
		if err := w.Write(start.Add(time.Duration(i)*1001), frame); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestFormatOf(t *testing.T) {
	for name, want := range map[string]capture.Format{"a.pcap": capture.PCAP, "a.PCAP": capture.PCAP, "a.pcapng": capture.PCAPNG, "a": capture.PCAPNG, "pcap": capture.PCAPNG} {
		if got := capture.FormatOf(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestRoundTrip: what is written is read again, to the nanosecond.
func TestRoundTrip(t *testing.T) {
	for _, f := range formats {
		rapid.Check(t, func(r *rapid.T) {
			frames := rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 1, 2000)).Draw(r, "frames")
			snaplen := rapid.SampledFrom([]int{0, 1, 64, 1999}).Draw(r, "snaplen")
			c, err := capture.NewReader(bytes.NewReader(file(t, f, snaplen, frames...)))
			if err != nil {
				r.Fatal(err)
			}
			for i, want := range frames {
				got, at, length, err := c.Next()
				kept := want
				if snaplen > 0 {
					kept = want[:min(len(want), snaplen)]
				}
				if err != nil || !bytes.Equal(got, kept) || length != len(want) || !at.Equal(start.Add(time.Duration(i)*1001)) {
					r.Fatalf("%s: frame %d: %d of %d bytes at %v, %v", f, i, len(got), length, at, err)
				}
			}
			if _, _, _, err := c.Next(); err != io.EOF {
				r.Fatalf("%s: behind the end: %v", f, err)
			}
		})
	}
}

// TestTshark has the program that people look at such files with read ours.
func TestTshark(t *testing.T) {
	arp := slices.Concat(bytes.Repeat([]byte{0xff}, 6), []byte{2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2})
	for _, f := range formats {
		lines := tshark(t, file(t, f, 50, arp, slices.Concat(arp, make([]byte, 18))),
			"-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "frame.cap_len", "-e", "arp.dst.proto_ipv4")
		if len(lines) != 2 || !strings.HasSuffix(lines[0], "678901234Z\t42\t42\t10.0.0.2") && !strings.HasSuffix(lines[0], ".678901234\t42\t42\t10.0.0.2") ||
			!strings.HasSuffix(lines[1], "\t60\t50\t10.0.0.2") {
			t.Errorf("%s: %q", f, lines)
		}
	}
}

func TestBadFiles(t *testing.T) {
	var other bytes.Buffer
	if err := pcapgo.NewWriter(&other).WriteFileHeader(100, layers.LinkTypeRaw); err != nil {
		t.Fatal(err)
	}
	whole := file(t, capture.PCAP, 0, make([]byte, 100))
	for name, b := range map[string][]byte{
		"empty": nil, "text": []byte("#!/bin/sh\nexit\nand more of it, to be long enough"), "another link type": other.Bytes(),
		"a magic alone": whole[:4], "a pcapng magic alone": {0x0a, 0x0d, 0x0d, 0x0a},
	} {
		if _, err := capture.NewReader(bytes.NewReader(b)); !errors.Is(err, capture.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, f := range formats {
		whole := file(t, f, 0, make([]byte, 100))
		for n := len(whole) - 110; n < len(whole); n++ {
			c, err := capture.NewReader(bytes.NewReader(whole[:n]))
			if err != nil {
				continue
			}
			if _, _, _, err := c.Next(); err == nil || err != io.EOF && !errors.Is(err, capture.ErrFormat) {
				t.Errorf("%s, %d of %d bytes: %v", f, n, len(whole), err)
			}
		}
	}
}

// FuzzReader: whatever is in a file, frames have sizes that can be, or there is an error.
func FuzzReader(f *testing.F) {
	for _, format := range formats {
		f.Add(file(f, format, 0, make([]byte, 60), []byte("a frame")))
		f.Add(file(f, format, 20, make([]byte, 60)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := capture.NewReader(bytes.NewReader(b))
		for n := 0; err == nil && n <= len(b); n++ { // a frame takes some bytes
			var frame []byte
			var length int
			frame, _, length, err = c.Next()
			if err == nil && len(frame) > length {
				t.Fatalf("%d of %d bytes", len(frame), length)
			}
			if errors.Is(err, capture.ErrLinkType) || errors.Is(err, capture.ErrLengths) {
				err = nil
			}
		}
		if err == nil || err != io.EOF && !errors.Is(err, capture.ErrFormat) {
			t.Fatal(err)
		}
	})
}
