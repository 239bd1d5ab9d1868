package cells_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/trapeze-nic/trapeze/internal/cells"
)

// Records of Endace's ERF, which tshark reads cells from (without their HEC), and PDUs with
// their trailers.
const (
	linkERF   = 197
	erfCell   = 3
	erfAAL5   = 4
	erfVaries = 4 // flag: records differ in length
)

// erf makes a record: time, type, flags, length, losses, length on the wire.
func erf(kind byte, header cells.Header, bytes []byte) []byte {
	b := append(make([]byte, 8), kind, erfVaries)
	length := uint16(4 + len(bytes))
	b = binary.BigEndian.AppendUint16(b, uint16(len(b))+6+length)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint16(b, length)
	b = binary.BigEndian.AppendUint32(b, header.Word())
	return append(b, bytes...)
}

// tshark returns what it makes of the records.
func tshark(t *testing.T, records ...[]byte) string {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	var file bytes.Buffer
	w := pcapgo.NewWriter(&file)
	err = w.WriteFileHeader(1<<18, linkERF)
	for _, r := range records {
		if err == nil {
			err = w.WritePacket(gopacket.CaptureInfo{Length: len(r), CaptureLength: len(r)}, r)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "-r", "-", "-V")
	c.Stdin = &file
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestTsharkReadsHeaders: a decoder that is not ours finds each field where we put it.
func TestTsharkReadsHeaders(t *testing.T) {
	var records [][]byte
	var want []string
	for i := range uint32(64) {
		h := cells.HeaderOf(i * 0x9e3779b9)
		h.PTI &= 3 // of users' data
		records = append(records, erf(erfCell, h, make([]byte, cells.PayloadSize)))
		loss := 0
		if h.CLP {
			loss = 1
		}
		want = append(want, fmt.Sprint(h.GFC, h.VPI, h.VCI, h.PTI, loss))
	}
	field := regexp.MustCompile(`= GFC: (\S+)|VPI: (\d+)|VCI: (\d+)|= Payload Type: (\d+)|([01]) = Cell Loss Priority`)
	var got []string
	for m := range slices.Chunk(field.FindAllStringSubmatch(tshark(t, records...), -1), 5) {
		var values []string
		for _, one := range m {
			values = append(values, strings.TrimPrefix(strings.Join(one[1:], ""), "0x0"))
		}
		got = append(got, strings.Join(values, " "))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestTsharkChecksCRC: the same decoder has its own CRC-32 of AAL5, and finds ours right,
// and wrong where a bit was changed.
func TestTsharkChecksCRC(t *testing.T) {
	var records [][]byte
	var want []string
	for i, n := range []int{1, 39, 40, 41, 88, 89, 1500, 8192, 65535 - 48 - 22} {
		pdu := make([]byte, n)
		for k := range pdu {
			pdu[k] = byte(k*k + i)
		}
		var whole []byte
		for _, c := range cut(t, 100, uint8(i), pdu) {
			whole = append(whole, c.payload[:]...)
		}
		damaged := slices.Clone(whole)
		damaged[n/2] ^= 1 << (i % 8)
		records = append(records, erf(erfAAL5, cells.Header{VCI: 100}, whole), erf(erfAAL5, cells.Header{VCI: 100}, damaged))
		for _, crc := range []string{"correct", "incorrect"} {
			want = append(want, fmt.Sprintf("%d %d %s", i, n, crc))
		}
	}
	field := regexp.MustCompile(`AAL5 UU: 0x(..)\s+AAL5 CPI: 0x00\s+AAL5 len: (\d+)\s+AAL5 CRC: 0x\w+ \((\w+)\)`)
	var got []string
	for _, m := range field.FindAllStringSubmatch(tshark(t, records...), -1) {
		got = append(got, strings.TrimPrefix(m[1], "0")+" "+m[2]+" "+m[3])
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
