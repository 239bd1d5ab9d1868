package images_test

import (
	"encoding/binary"
	"testing"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/images"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// tagged is a data frame whose message has immediate data.
func tagged(tag uint32) []byte {
	b := make([]byte, 256)
	*datasheet.HeaderAt(b) = datasheet.Header{EtherType: datasheet.EtherType, Version: datasheet.WireVersion,
		Type: datasheet.FrameData, Flags: datasheet.FrameImmediate | datasheet.FrameFirst, Immediate: tag}
	return b
}

func TestPayloadTable(t *testing.T) { eachBuild(t, "ipt", testPayloadTable) }

func testPayloadTable(t *testing.T, img *machine.Image) {
	value := make([]byte, images.EntryValueSize)
	binary.LittleEndian.PutUint32(value[images.EntryValid:], 1)
	binary.LittleEndian.PutUint32(value[images.EntryNumber:], 99)
	if err := mapOf(t, img, "entries").Update(binary.LittleEndian.AppendUint32(nil, 7), value, machine.Any); err != nil {
		t.Fatal(err)
	}
	spoiled := func(change func(h *datasheet.Header)) []byte {
		b := tagged(7)
		change(datasheet.HeaderAt(b))
		return b
	}
	byDefault := machine.Destination{Queue: abi.DemuxDefault, Entry: abi.DemuxDefault}
	for _, tt := range []struct {
		name  string
		frame []byte
		want  machine.Destination
	}{
		{"tag with an entry", tagged(7), machine.Destination{Queue: abi.DemuxDefault, Entry: 99}},
		{"tag without an entry", tagged(8), byDefault},
		{"tag beyond the table", tagged(256), byDefault},
		{"no tag", spoiled(func(h *datasheet.Header) { h.Flags = datasheet.FrameFirst }), byDefault},
		{"no data", spoiled(func(h *datasheet.Header) { h.Type = datasheet.FrameAck }), byDefault},
		{"another version", spoiled(func(h *datasheet.Header) { h.Version++ }), byDefault},
		{"another EtherType", spoiled(func(h *datasheet.Header) { h.EtherType = [2]byte{8, 0} }), byDefault},
		{"short", tagged(7)[:datasheet.HeaderSize-1], byDefault},
		{"empty", nil, byDefault},
	} {
		got, err := img.Programs[abi.DemuxRx].Demultiplex(tt.frame, 3)
		if err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
	}
}
