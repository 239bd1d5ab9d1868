package trapeze_test

import (
	"encoding/binary"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/capture"
)

// dissector is the file that Wireshark loads.
const dissector = "lua_script:../../descriptors/trapeze.lua"

// dissect returns what tshark shows of frames: of each the fields, which stand in order, and the words of its line.
func dissect(t *testing.T, frames [][]byte, fields ...string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.pcapng")
	w := must.Get((&capture.Output{Path: path}).Create(nil, "", ""))(t)
	for _, f := range frames {
		must.OK(t, w.Write(time.Now(), f, len(f)))
	}
	must.OK(t, w.Finish(nil))
	args := []string{"-X", dissector, "-E", "separator= ", "-E", "occurrence=a"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	return tshark(t, path, args...)
}

// encoded is the bytes of a frame's parts, of which each is a layout of the data sheet or a slice.
func encoded(t *testing.T, parts ...any) (b []byte) {
	t.Helper()
	for _, p := range parts {
		b = must.Get(binary.Append(b, binary.LittleEndian, p))(t)
	}
	return b
}

// aHeader is a header in which no two words are the same.
func aHeader(kind datasheet.FrameType, flags datasheet.FrameFlags, length uint16) datasheet.Header {
	return datasheet.Header{Destination: datasheet.MAC{2, 0, 0, 0, 0, 1}, Source: datasheet.MAC{2, 0, 0, 0, 0, 2}, EtherType: datasheet.EtherType,
		Version: datasheet.WireVersion, Type: kind, Flags: flags, Length: length, DestinationEndpoint: 101, SourceEndpoint: 102, Key: 0x103,
		PSN: 0x104, Ack: 0x105, Credit: 106, Message: 107, Extent: 108, Offset: 109, Immediate: 110, Checksum: 0x111}
}

// TestDissector: Wireshark shows of frames what the data sheet says that they have.
func TestDissector(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed")
	}
	const always = "101 102 0x00000103 0x00000104 0x00000105 106"
	headers := []string{"trapeze.type", "trapeze.destination_endpoint", "trapeze.source_endpoint", "trapeze.key", "trapeze.psn", "trapeze.ack", "trapeze.credit"}
	for name, c := range map[string]struct {
		parts  []any
		fields []string
		want   string // of fields
		says   string // in the line of the frame
	}{
		"data": {[]any{aHeader(datasheet.FrameData, datasheet.FrameFirst|datasheet.FrameChecksum, 3), []byte{1, 2, 3}},
			[]string{"trapeze.message", "trapeze.extent", "trapeze.offset", "trapeze.immediate", "trapeze.flags.first", "trapeze.flags.last", "trapeze.flags.checksum", "trapeze.checksum", "trapeze.payload"},
			"107 108 109 0x0000006e 1 0 1 0x00000111 010203", "data, endpoint 102 to 101, PSN 00000104, message 107, 3 bytes at 109 of 108"},
		"ack": {[]any{aHeader(datasheet.FrameAck, 0, 0)}, []string{"trapeze.duplicates", "trapeze.selective", "trapeze.had"},
			"107 0x0000006d0000006c 110", "ack, endpoint 102 to 101, next 00000105, credit 106"},
		"connect request": {[]any{aHeader(datasheet.FrameConnectRequest, 0, datasheet.ConnectBodySize+2),
			datasheet.ConnectBody{Key: 0x201, MaxTransfer: 202, Rights: 3, TimeoutMS: 204, Reliability: datasheet.ReliableDelivery, Kind: 1, Options: 6, Wire: 0x205}, []byte{0, 0}},
			[]string{"trapeze.mtu", "trapeze.longest_request", "trapeze.connect.key", "trapeze.connect.max_transfer", "trapeze.connect.rights", "trapeze.connect.timeout", "trapeze.connect.reliability", "trapeze.connect.kind", "trapeze.connect.options", "trapeze.connect.wire"},
			fmt.Sprintf("108 109 0x00000201 202 0x00000003 204 %d 1 0x0006 0x00000205", datasheet.ReliableDelivery), "connect request"},
		"disconnect": {[]any{aHeader(datasheet.FrameDisconnect, datasheet.FrameEcho, 0)}, []string{"trapeze.result", "trapeze.flags.echo"}, "110 1", "disconnect"},
		"write by reference": {[]any{aHeader(datasheet.FrameWrite, datasheet.FrameReference, 9), datasheet.Extension{Address: 0x301, Handle: 0x302, Request: 0x303},
			datasheet.Reference{Region: 304, Length: 5, Offset: 0x306}, datasheet.Reference{Region: 307, Length: 4, Offset: 0x308}},
			[]string{"trapeze.rdma.address", "trapeze.rdma.handle", "trapeze.rdma.request", "trapeze.reference.region", "trapeze.reference.length", "trapeze.reference.offset"},
			"0x0000000000000301 0x00000302 0x00000303 304,307 5,4 0x0000000000000306,0x0000000000000308", "RDMA write"},
		"cells": {[]any{aHeader(datasheet.FrameCells, 0, 2*datasheet.CellSize),
			datasheet.Cell{Header: [4]byte{0x00, 0x31, 0x23, 0x40}, HEC: 0xab, Tag: [3]byte{0xef, 0xcd, 0xab}, Payload: [datasheet.CellPayload]byte{7}},
			datasheet.Cell{Header: [4]byte{0x0f, 0xff, 0xff, 0xf3}, HEC: 0xac}},
			[]string{"trapeze.cell.vpi", "trapeze.cell.vci", "trapeze.cell.pti", "trapeze.cell.clp", "trapeze.cell.hec", "trapeze.cell.tag"},
			"3,255 4660,65535 0,1 0,1 0xab,0xac 0xabcdef,0x000000", "cells, endpoint 102 to 101"},
		"cut": {[]any{aHeader(datasheet.FrameData, 0, 9), []byte{1}}, []string{"trapeze.short"}, "1", "data, endpoint"},
		"reserved": {[]any{aHeader(datasheet.FrameCellStart+1, datasheet.FrameFlagsReserved, 0)}, []string{"trapeze.reserved"},
			"1", "type 14"},
	} {
		t.Run(name, func(t *testing.T) {
			frame := encoded(t, c.parts...)
			kind := frame[15]
			got := dissect(t, [][]byte{frame}, append(append(headers, c.fields...), "_ws.col.Info")...)
			if want := fmt.Sprintf("%d %s %s ", kind, always, c.want); len(got) != 1 || !strings.HasPrefix(got[0], want) || !strings.Contains(got[0][len(want):], c.says) {
				t.Errorf("shown as\n%q, want\n%q and %q", got, want, c.says)
			}
		})
	}
}

// TestDissectorTypes: each type has the data sheet's name. No cut frame, whatever its type, is an error of the script's own.
func TestDissectorTypes(t *testing.T) {
	var frames [][]byte
	var want []string
	for kind := datasheet.FrameData; kind <= datasheet.FrameCellStart; kind++ {
		whole := encoded(t, aHeader(kind, datasheet.FrameReference, 200), make([]byte, 120))
		frames = append(frames, whole)
		want = append(want, kind.String()+", endpoint 102 to 101")
		for size := datasheet.EthernetHeaderSize; size < len(whole); size += 7 {
			frames = append(frames, whole[:size])
			want = append(want, "")
		}
	}
	got := dissect(t, frames, "_ws.col.Info", "_ws.lua.error")
	must.Be(t, len(got), len(want), "frames shown")
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) || strings.Contains(got[i], ".lua") {
			t.Errorf("frame %d is shown as %q, want %q", i, got[i], want[i])
		}
	}
}
