package capture_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/capture"
)

// start is in a year that 32 bits of seconds still count.
var start = time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC)

// file writes frames, a microsecond and a nanosecond apart.
func file(t testing.TB, snaplen int, frames ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := must.Get((&capture.Output{Path: "-", Snaplen: snaplen}).Create(&b, "emu:?wire=loop", "proto=arp"))(t)
	for i, frame := range frames {
		must.OK(t, w.Write(start.Add(time.Duration(i)*1001), frame, len(frame)))
	}
	must.OK(t, w.Finish(nil))
	return b.Bytes()
}

// TestRoundTrip: what is written is read again, to the nanosecond.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		frames := rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 1, 2000)).Draw(r, "frames")
		snaplen := rapid.SampledFrom([]int{0, 1, 64, 1999}).Draw(r, "snaplen")
		c := must.Get(pcapgo.NewNgReader(bytes.NewReader(file(t, snaplen, frames...)), pcapgo.DefaultNgReaderOptions))(r)
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
