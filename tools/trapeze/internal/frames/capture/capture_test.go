package capture_test

import (
	"bytes"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/capture"
)

// start is in a year that 32 bits of seconds still count.
var start = time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC)

// file writes frames, a microsecond and a nanosecond apart.
func file(t testing.TB, snaplen int, frames ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := capture.NewWriter(&b, snaplen, capture.Source{Name: "emu:?wire=loop", Filter: "proto=arp"})
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

// TestRoundTrip: what is written is read again, to the nanosecond.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		frames := rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 1, 2000)).Draw(r, "frames")
		snaplen := rapid.SampledFrom([]int{0, 1, 64, 1999}).Draw(r, "snaplen")
		c, err := pcapgo.NewNgReader(bytes.NewReader(file(t, snaplen, frames...)), pcapgo.DefaultNgReaderOptions)
		if err != nil {
			r.Fatal(err)
		}
		for i, want := range frames {
			got, info, err := c.ReadPacketData()
			kept := want
			if snaplen > 0 {
				kept = want[:min(len(want), snaplen)]
			}
			if err != nil || !bytes.Equal(got, kept) || info.Length != len(want) || !info.Timestamp.Equal(start.Add(time.Duration(i)*1001)) {
				r.Fatalf("frame %d: %d of %d bytes at %v, %v", i, len(got), info.Length, info.Timestamp, err)
			}
		}
		if _, _, err := c.ReadPacketData(); err != io.EOF {
			r.Fatalf("behind the end: %v", err)
		}
	})
}

// TestTshark has the program that people look at such files with read ours.
func TestTshark(t *testing.T) {
	arp := slices.Concat(bytes.Repeat([]byte{0xff}, 6), []byte{2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2})
	lines := tshark(t, file(t, 50, arp, slices.Concat(arp, make([]byte, 18))),
		"-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "frame.cap_len", "-e", "arp.dst.proto_ipv4")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], "678901234Z\t42\t42\t10.0.0.2") && !strings.HasSuffix(lines[0], ".678901234\t42\t42\t10.0.0.2") ||
		!strings.HasSuffix(lines[1], "\t60\t50\t10.0.0.2") {
		t.Errorf("%q", lines)
	}
}

// tshark prints what it finds in a file, and must not complain.
func tshark(t *testing.T, file []byte, args ...string) (lines []string) {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	c := exec.Command(program, append([]string{"-r", "-"}, args...)...)
	c.Stdin = bytes.NewReader(file)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	complaints := strings.ReplaceAll(stderr.String(), "Running as user \"root\" and group \"root\". This could be dangerous.\n", "")
	if err != nil || complaints != "" {
		t.Fatalf("%v, %s", err, complaints)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}
