package memif_test

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// A pcap file (draft-ietf-opsawg-pcap): a header of 24 bytes, and for each frame
// one of 16 bytes and its bytes.
const (
	pcapMagic    = 0xa1b2c3d4
	pcapMagicNS  = 0xa1b23c4d // with nanoseconds
	pcapHeader   = 24
	pcapRecord   = 16
	pcapSnapLen  = 1 << 16
	pcapEthernet = 1 // LINKTYPE_ETHERNET
)

// writePcap writes frames into a file.
func writePcap(t *testing.T, path string, frames [][]byte) {
	t.Helper()
	le := binary.LittleEndian
	b := le.AppendUint32(nil, pcapMagic)
	b = le.AppendUint16(le.AppendUint16(b, 2), 4) // version 2.4
	b = le.AppendUint64(b, 0)                     // time zone, accuracy
	b = le.AppendUint32(le.AppendUint32(b, pcapSnapLen), pcapEthernet)
	for i, f := range frames {
		b = le.AppendUint64(b, uint64(i)) // seconds, microseconds
		b = le.AppendUint32(le.AppendUint32(b, uint32(len(f))), uint32(len(f)))
		b = append(b, f...)
	}
	must.OK(t, os.WriteFile(path, b, 0o600))
}

// readPcap returns the frames in a file that may still be growing.
func readPcap(t *testing.T, path string) (frames [][]byte) {
	t.Helper()
	b := must.Get(os.ReadFile(path))(t)
	if len(b) < pcapHeader {
		return nil
	}
	le := binary.LittleEndian
	if magic := le.Uint32(b); magic != pcapMagic && magic != pcapMagicNS {
		t.Fatalf("%s: magic number %#x", path, magic)
	}
	for b = b[pcapHeader:]; len(b) >= pcapRecord; {
		n, whole := int(le.Uint32(b[8:])), int(le.Uint32(b[12:]))
		must.Be(t, n, whole, "%s: a frame bytes was cut", path)
		if len(b) < pcapRecord+n {
			break
		}
		frames = append(frames, b[pcapRecord:pcapRecord+n])
		b = b[pcapRecord+n:]
	}
	return frames
}

func TestPcap(t *testing.T) {
	path := t.TempDir() + "/x.pcap"
	frames := [][]byte{makeFrame(1, 64), {}, makeFrame(2, 1500)}
	writePcap(t, path, frames)
	wantFrames(t, "read again", readPcap(t, path), frames)
}
