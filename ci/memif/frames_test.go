package memif_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/internal/inetsum"
	"github.com/trapeze-nic/trapeze/wire"
)

// Where fields of a frame are: two MAC addresses and a type, then IPv4 and UDP
// (RFC 791, RFC 768).
const (
	frameType    = 12
	frameIP      = 14
	frameUDP     = frameIP + 20
	framePayload = frameUDP + 8
	smallest     = 64
)

// makeFrame makes a frame of n bytes, 64 at least, with a UDP datagram in it.
// Its number is in its payload and makes all its bytes.
func makeFrame(number, n int) []byte {
	f := make([]byte, n)
	copy(f, []byte{2, 0, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0, 0xaa, 0x08, 0x00})
	ip := f[frameIP:]
	copy(ip, []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2})
	binary.BigEndian.PutUint16(ip[2:], uint16(n-frameIP))
	binary.BigEndian.PutUint16(ip[4:], uint16(number))
	binary.BigEndian.PutUint16(ip[10:], ^inetsum.Of(ip[:20]))
	udp := f[frameUDP:]
	binary.BigEndian.PutUint16(udp, 1000)
	binary.BigEndian.PutUint16(udp[2:], 2000)
	binary.BigEndian.PutUint16(udp[4:], uint16(n-frameUDP))
	binary.BigEndian.PutUint32(f[framePayload:], uint32(number))
	for i := framePayload + 4; i < n; i++ {
		f[i] = byte(number*31 + i*7 + i>>8)
	}
	return f
}

// numberOf returns the number of a frame that makeFrame has made.
func numberOf(f []byte) int {
	if len(f) < smallest {
		return -1
	}
	return int(binary.BigEndian.Uint32(f[framePayload:]))
}

// makeFrames makes n frames of sizes from 64 to most, in no regular order.
func makeFrames(n, most int) [][]byte {
	frames := make([][]byte, n)
	for i := range frames {
		frames[i] = makeFrame(i, smallest+i*389%(most-smallest+1))
	}
	return frames
}

// wantFrames compares frames byte by byte.
func wantFrames(t *testing.T, what string, got, want [][]byte) {
	t.Helper()
	must.Be(t, len(got), len(want), "%s: frames", what)
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("%s, frame %d: %d bytes, number %d, want %d bytes: %s", what, i,
				len(got[i]), numberOf(got[i]), len(want[i]), difference(got[i], want[i]))
		}
	}
}

func difference(got, want []byte) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d is %#x, want %#x", i, got[i], want[i])
		}
	}
	return "one is longer"
}

// newPort makes our end. It is closed with the test.
func newPort(t *testing.T, o wire.MemifOptions) *wire.Memif {
	t.Helper()
	p := must.Get(wire.NewMemif(o))(t)
	porttest.CloseAtEnd(t, p)
	return p
}

// sendAll sends frames, some in each batch.
func sendAll(t *testing.T, p *wire.Memif, frames [][]byte) {
	t.Helper()
	end := time.Now().Add(timeout)
	for i := 0; i < len(frames); {
		q := p.Reserve(len(frames[i]))
		if q == nil {
			p.Flush()
			runtime.Gosched()
			must.Hold(t, !time.Now().After(end) && p.LinkUp(), "no room for frame %d, stats %+v", i, p.Stats())
			continue
		}
		copy(q, frames[i])
		p.Commit()
		if i++; i%7 == 0 {
			p.Flush()
		}
	}
	p.Flush()
}

// receiveAll receives n frames.
func receiveAll(t *testing.T, p *wire.Memif, n int) (frames [][]byte) {
	t.Helper()
	for end := time.Now().Add(timeout); len(frames) < n; {
		f := p.Receive()
		if f == nil {
			runtime.Gosched()
			must.Hold(t, !time.Now().After(end), "received %d frames of %d, stats %+v", len(frames), n, p.Stats())
			continue
		}
		frames = append(frames, bytes.Clone(f))
		p.Release()
	}
	return frames
}
