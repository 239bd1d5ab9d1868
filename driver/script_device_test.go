package driver_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
	"github.com/trapeze-nic/trapeze/vfio"
)

var _ = func() struct{} {
	device := map[string]func(p *play, a *script.Arguments) string{
		"device": (*play).device, "set": (*play).set, "config": (*play).config, "fill": (*play).fill, "ignore": (*play).ignore, "map": (*play).mapping,
		"answer": (*play).answer, "tamper": (*play).tamper, "reply": (*play).reply, "post-entry": (*play).postEntry, "repeat-reply": (*play).repeatReply,
		"event": (*play).event, "complete": (*play).complete, "completion": (*play).completion, "asked": (*play).showAsked,
		"mappings": (*play).mappings, "doorbell": (*play).doorbell, "register": (*play).register, "region": (*play).region, "sram": (*play).sram,
		"refuse": (*play).refuse, "logs": (*play).logs, "show-unanswered": (*play).showUnanswered, "during": (*play).whenAsked, "during-said": (*play).duringSaid,
		"watch-reset": (*play).watchReset, "at-reset": (*play).atReset, "differ": (*play).differ, "interrupt": (*play).interrupt,
	}
	for name := range device {
		ofDevice[name] = true
	}
	return also(device)
}()

// device is: device WORD... It has gone, or not; or is one of which BAR2 or the SRAM can be mapped, with
// a DMA block, that makes rings, or with vectors=COUNT, features=BITS, address=TEXT, nodma=TEXT.
func (p *play) device(a *script.Arguments) string {
	p.d.with(func() {
		for _, w := range a.Words {
			switch w {
			case "gone":
				p.d.gone = true
				for i := range p.d.sram.Bytes() {
					p.d.sram.Bytes()[i] = 0xff
				}
			case "mapped":
				p.d.mapBAR2 = true
			case "sram":
				p.d.mapSRAM = true
			case "dma":
				p.d.addDMA()
			case "rings":
				withRings(p.d)
				p.tampers = append(p.tampers, p.d.tamper)
				p.d.tamper = p.tamperWith
			default:
				p.t.Fatalf("no device is %q", w)
			}
		}
		for _, c := range a.Changes {
			switch c.Path {
			case "vectors":
				p.d.vectors = int(p.value(c.Value))
			case "features":
				v := p.value(c.Value)
				p.d.set(datasheet.IdentityOffset+uint64(datasheet.RegFeaturesLow), uint32(v))
				p.d.set(datasheet.IdentityOffset+uint64(datasheet.RegFeaturesHigh), uint32(v>>32))
			case "address":
				p.d.address = c.Value
			case "nodma":
				if p.d.mapFail = map[string]error{"range": vfio.ErrIOVARange, "unsupported": vfio.ErrNotSupported}[c.Value]; c.Value != "" && p.d.mapFail == nil {
					p.d.mapFail = errors.New(c.Value)
				}
			default:
				p.t.Fatalf("no device has %q", c.Path)
			}
		}
	})
	return ""
}

// set is: set REGISTER VALUE, in BAR0.
func (p *play) set(a *script.Arguments) string {
	p.d.with(func() {
		for i := 0; i < len(a.Words); i += 2 {
			p.d.set(p.value(a.Words[i]), uint32(p.value(a.Words[i+1])))
		}
	})
	return ""
}

// config is: config OFFSET VALUE, 16 bits of configuration space.
func (p *play) config(a *script.Arguments) string {
	binary.LittleEndian.PutUint16(p.d.config[p.value(a.Words[0]):], uint16(p.value(a.Words[1])))
	return ""
}

// fill is: fill BYTE, in all of BAR0.
func (p *play) fill(a *script.Arguments) string {
	for i := range p.d.bar0 {
		p.d.bar0[i] = byte(p.value(a.Words[0]))
	}
	return ""
}

// ignore is: ignore REGISTER [gone] [REGISTER=VALUE...]. Writes of a register change others, or nothing.
func (p *play) ignore(a *script.Arguments) string {
	gone, at := a.Flag("gone"), p.value(a.Words[0])
	p.d.with(func() {
		p.d.onWrite = func(offset uint64, _ uint32) bool {
			if offset != at {
				return false
			}
			p.d.gone = gone
			for _, c := range a.Changes {
				p.d.set(p.value(c.Path), uint32(p.value(c.Value)))
			}
			return true
		}
	})
	return ""
}

// mapping is: map [OFFSET:SIZE...] [error=TEXT] [short]. What of BAR2 can be mapped, and how that fails.
func (p *play) mapping(a *script.Arguments) string {
	p.d.mapBAR2 = true
	text, fails := a.Option("error")
	if short := a.Flag("short"); short || fails {
		p.d.mapped = func(_, size uint64) ([]byte, error) {
			switch {
			case short:
				return make([]byte, size-1), nil
			case text == "":
				return nil, vfio.ErrNotMappable
			}
			return nil, errors.New(text)
		}
	}
	for _, w := range a.Words {
		offset, size, _ := strings.Cut(w, ":")
		p.d.sparse = append(p.d.sparse, vfio.Area{Offset: p.value(offset), Size: p.value(size)})
	}
	return ""
}

// complete is: complete VI send|recv INDEX... [length=] [status=] [cq=NAME]. The device completes what a
// token names; with cq= it says so in the completion queue.
func (p *play) complete(a *script.Arguments) string {
	p.t.Helper()
	v, receive := p.vis[a.Words[0]], a.Words[1] == "recv"
	length, status := p.option(a, "length", 0), datasheet.Status(p.option(a, "status", uint64(datasheet.StatusDone)))
	cq, told := a.Option("cq")
	for _, w := range a.Words[2:] {
		for _, name := range script.Span(w) {
			i := uint32(p.value(name))
			p.d.with(func() {
				p.d.complete(v.Number(), receive, i, uint32(length), status)
				if told {
					e := datasheet.Completion{Endpoint: v.Number(), Index: i, Status: uint32(status)}
					if receive {
						e.Flags = datasheet.CompletionReceive
					}
					p.change(&e, a.Changes)
					p.d.completion(p.cqs[cq].Number(), e)
				}
			})
		}
	}
	return ""
}

// interrupt is: interrupt VI, for its receives.
func (p *play) interrupt(a *script.Arguments) string {
	p.d.with(func() {
		if v := p.d.admin.endpoints[p.vis[a.Words[0]].Number()].RecvVector; v != datasheet.NoVector {
			p.d.interrupt(int(v))
		}
	})
	return ""
}

// completion is: completion CQ FIELD=VALUE... It is an entry of a completion queue.
func (p *play) completion(a *script.Arguments) string {
	e := datasheet.Completion{Endpoint: 1, Status: uint32(datasheet.StatusDone)}
	p.change(&e, a.Changes)
	p.d.with(func() { p.d.completion(p.cqs[a.Words[0]].Number(), e) })
	return ""
}

// option takes a number out of arguments.
func (p *play) option(a *script.Arguments, name string, other uint64) uint64 {
	if s, ok := a.Option(name); ok {
		return p.value(s)
	}
	return other
}

// mappings shows how many mappings the device has.
func (p *play) mappings(*script.Arguments) (out string) {
	p.d.with(func() { out = fmt.Sprintf("%d mappings", len(p.d.dma)) })
	return out
}

// doorbell is: doorbell VI send|recv|send_arm|recv_arm|ring, what was last stored there.
func (p *play) doorbell(a *script.Arguments) string {
	at := map[string]uint64{"send": datasheet.DoorbellSend, "recv": datasheet.DoorbellRecv, "send_arm": datasheet.DoorbellSendArm,
		"recv_arm": datasheet.DoorbellRecvArm, "ring": datasheet.DoorbellRing + datasheet.DoorbellSend}
	number := uint32(0)
	if r := p.rings[a.Words[0]]; r != nil {
		number = r.Number()
	} else {
		number = p.vis[a.Words[0]].Number()
	}
	var parts []string
	for _, w := range a.Words[1:] {
		parts = append(parts, fmt.Sprintf("%s %#x", w, p.d.doorbell(datasheet.EndpointPage(number)+at[w])))
	}
	return a.Words[0] + " doorbells: " + strings.Join(parts, ", ")
}

func (p *play) register(a *script.Arguments) string {
	var parts []string
	p.d.with(func() {
		for _, w := range a.Words {
			parts = append(parts, fmt.Sprintf("%s %#x", w, p.d.get(p.value(w))))
		}
	})
	return strings.Join(parts, ", ")
}

// region shows what the device was told of memory, relative to other memory if that is named.
func (p *play) region(a *script.Arguments) string {
	m := p.mems[a.Words[0]]
	r := p.d.admin.regions[m.Handle()]
	r.Address -= m.Address()
	where := fmt.Sprintf("at %#x", r.Address)
	if len(a.Words) > 1 {
		other := p.d.admin.regions[p.mems[a.Words[1]].Handle()]
		where += fmt.Sprintf(", %d bytes behind %s, on the bus %d", m.Address()-other.Address, a.Words[1], r.IOVA-other.IOVA)
	}
	return fmt.Sprintf("%s: %s, %d bytes, ptag %d, access %v", a.Words[0], where, r.Length, r.Ptag, r.Access)
}

// sram says whether something was written to the device's memory, or writes FIELD=VALUE into the ring slot
// at an offset, or shows it: sram [slot OFFSET [FIELD...]].
func (p *play) sram(a *script.Arguments) (out string) {
	p.d.with(func() {
		if len(a.Words) == 0 {
			out = "SRAM: untouched"
			for i, b := range p.d.sram.Bytes() {
				if b != 0 {
					out = fmt.Sprintf("SRAM: byte %d is %#x", i, b)
				}
			}
			return
		}
		at := p.value(a.Words[1])
		var to reflect.Value
		if a.Words[0] == "slot" {
			to = reflect.ValueOf(&datasheet.RingSlotsAt(p.d.sram.Bytes()[at:][:datasheet.RingSlotSize])[0])
		} else {
			to = reflect.ValueOf(&datasheet.RingPlacesAt(p.d.sram.Bytes()[at:][:datasheet.RingPlaceSize])[0])
		}
		p.change(to.Interface(), a.Changes)
		var parts []string
		for _, w := range a.Words[2:] {
			f := must.Get(script.Field(to.Elem(), w))(p.t)
			if f.Kind() == reflect.Array {
				f = reflect.ValueOf(strconv.Quote(strings.TrimRight(string(f.Slice(0, f.Len()).Bytes()), "\x00")))
			}
			parts = append(parts, fmt.Sprintf("%s %v", w, f.Interface()))
		}
		if out = strings.Join(parts, ", "); out != "" {
			out = strings.Join(a.Words[:2], " ") + ": " + out
		}
	})
	return out
}

// refuse is: refuse REGISTER [VALUE]. The DMA block takes no value in it, or not that one; refuse nothing.
func (p *play) refuse(a *script.Arguments) string {
	p.d.with(func() {
		if a.Words[0] == "nothing" {
			clear(p.d.block.refuses)
			return
		}
		p.d.block.refuses[p.value(a.Words[0])] = func(v uint32) bool { return len(a.Words) == 1 || v == uint32(p.value(a.Words[1])) }
	})
	return ""
}

// logs is: logs NUMBER... FIELD=VALUE. The device writes records into its log, with changes.
func (p *play) logs(a *script.Arguments) string {
	p.d.with(func() {
		for _, w := range a.Words {
			p.d.logs(transfer(int(p.value(w))), func(r *datasheet.DMARecord) { p.change(r, a.Changes) })
		}
	})
	return ""
}

// descriptor returns one of the rig's descriptors, d0 to d31, or one that descriptor has made.
func (p *play) descriptor(name string) *descriptors.Descriptor {
	p.t.Helper()
	if d, ok := p.ds[name]; ok {
		return d
	}
	var i int
	if _, err := fmt.Sscanf(name, "d%d", &i); err != nil || p.mems["m"] == nil {
		p.t.Fatalf("there is no descriptor %q", name)
	}
	p.ds[name] = descriptor(p.t, p.mems["m"], i*512, 64)
	return p.ds[name]
}
