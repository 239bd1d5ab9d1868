package images_test

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/images"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

func TestBuild(t *testing.T) {
	for _, name := range images.Names() {
		spec, err := firmware.BuildShipped(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		should.Hold(t, spec.Name == name && spec.Version != "", "%s calls itself %q %q", name, spec.Name, spec.Version)
		programs := 0
		for h := range abi.Hooks {
			p, ok := spec.Program(h)
			if !ok {
				continue
			}
			programs++
			report, err := checker.Check(p)
			should.Hold(t, err == nil, "%s: %v", name, err)
			t.Logf("%s %s: %d instructions, worst case %d, explored %d", name, h, report.Instructions, report.WorstCase, report.Explored)
		}
		should.Hold(t, programs != 0, "%s has no program", name)
	}
	should.Refuse(firmware.BuildShipped("nonsense"))(t, images.ErrUnknown)
}

// tagged is a data frame whose message has immediate data.
func tagged(tag uint32) []byte {
	b := make([]byte, 256)
	*datasheet.HeaderAt(b) = datasheet.Header{EtherType: datasheet.EtherType, Version: datasheet.WireVersion,
		Type: datasheet.FrameData, Flags: datasheet.FrameImmediate | datasheet.FrameFirst, Immediate: tag}
	return b
}

func TestPayloadTable(t *testing.T) { eachBuild(t, "ipt", testPayloadTable) }

func testPayloadTable(t *testing.T, img *machine.Image) {
	value := []byte{1, 0, 0, 0, 99, 0, 0, 0} // valid, number
	must.OK(t, mapOf(t, img, "entries").Update(binary.LittleEndian.AppendUint32(nil, 7), value, machine.Any))
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
		should.Give(img.Programs[abi.DemuxRx].Demultiplex(tt.frame, 3))(t, tt.want, "%s", tt.name)
	}
}

// TestPulse compares the pulse images with the host's policies, transfer for
// transfer: a frame that arrives in random pieces leaves in the same ones.
func TestPulse(t *testing.T) {
	for name, policy := range map[string]func(minimum int) pipeline.Policy{
		"store-and-forward": func(int) pipeline.Policy { return pipeline.StoreAndForward{} },
		"cut-through":       func(n int) pipeline.Policy { return pipeline.Static{Pulse: n} },
		"amp":               func(n int) pipeline.Policy { return pipeline.Eager{MinPulse: n} },
	} {
		eachBuild(t, name, func(t *testing.T, img *machine.Image) { testPulse(t, name, img, policy) })
	}
}

func testPulse(t *testing.T, name string, img *machine.Image, policy func(minimum int) pipeline.Policy) {
	for _, hook := range []abi.Hook{abi.PulseTx, abi.PulseRx} {
		rapid.Check(t, func(rt *rapid.T) {
			minimum := rapid.IntRange(1, 65536).Draw(rt, "minpulse")
			host := policy(minimum)
			v := pipeline.View{Length: rapid.IntRange(1, 65536).Draw(rt, "length")}
			for v.Sent < v.Length {
				if v.Arrived < v.Length && rapid.Bool().Draw(rt, "arrives") {
					v.Arrived += rapid.IntRange(1, v.Length-v.Arrived).Draw(rt, "bytes")
				}
				v.Queued = rapid.IntRange(0, 3).Draw(rt, "queued")
				want := 0
				if v.Available() > 0 {
					want = min(host.Next(v), v.Available())
				}
				got, err := img.Programs[hook].Pulse(&abi.PulseContext{Length: uint32(v.Length), Arrived: uint32(v.Arrived),
					Sent: uint32(v.Sent), Queued: uint32(v.Queued), Minimum: uint32(minimum)})
				must.Give(got, err)(rt, want, "%s %s: %+v, minpulse %d", name, hook, v, minimum)
				v.Sent += got
			}
		})
	}
}
