package driver_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/ci/kit/script"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
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

// values are names that numbers have in scripts.
var values = map[string]uint64{
	"identity": datasheet.IdentityOffset, "health": datasheet.HealthOffset, "admin": datasheet.AdminOffset, "clock": datasheet.ClockOffset,
	"counters": datasheet.CounterOffset, "interrupt": datasheet.InterruptOffset, "dma": datasheet.DMAOffset,
	"Type": datasheet.BlockRegType, "Version": datasheet.BlockRegVersion, "Next": datasheet.BlockRegNext, "Size": datasheet.BlockRegSize,
	"Version1": uint64(datasheet.BlockVersion1), "HealthSize": datasheet.HealthSize, "BAR0": datasheet.BAR0Size, "Clock": uint64(datasheet.BlockClock),
	"Magic": uint64(datasheet.RegMagic), "MaxEndpoints": uint64(datasheet.RegMaxEndpoints), "MaxCQs": uint64(datasheet.RegMaxCQs), "MaxQueueLog2": uint64(datasheet.RegMaxQueueLog2),
	"MaxCQLog2": uint64(datasheet.RegMaxCQLog2), "MTU": uint64(datasheet.RegMTU), "PageSizeLog2": datasheet.RegPageSizeLog2,
	"Status": uint64(datasheet.RegStatus), "Control": uint64(datasheet.RegControl), "Fault": uint64(datasheet.RegFault), "ResetCount": uint64(datasheet.RegResetCount),
	"AdminControl": uint64(datasheet.RegAdminControl), "AdminStatus": uint64(datasheet.RegAdminStatus),
	"Ready": uint64(datasheet.DeviceReady), "Fatal": uint64(datasheet.DeviceFatal), "Resetting": uint64(datasheet.DeviceResetting),
	"FaultAdminDMA": uint64(datasheet.FaultAdminDMA), "FaultAdminIndex": uint64(datasheet.FaultAdminIndex), "AdminError": uint64(datasheet.AdminError),
	"Marks": uint64(datasheet.FeatureDoorbellMarks), "Eager": uint64(datasheet.FeatureEager), "ReceiveQueues": uint64(datasheet.FeatureReceiveQueue),
	"page": datasheet.PageSize, "all": ^uint64(0), "SRAM": fakeSRAM, "wide": uint64(datasheet.EagerWideLog2),
	"block": uint64(datasheet.EagerLog2), "done": uint64(datasheet.StatusDone), "flushed": uint64(datasheet.StatusFlushed), "received": uint64(datasheet.StatusOpReceive),
	"protection": uint64(datasheet.StatusProtectionError), "length": uint64(datasheet.StatusLengthError), "immediate": uint64(datasheet.StatusImmediate), "Receive": uint64(datasheet.CompletionReceive),
	"ReadOnly": uint64(datasheet.AccessReadOnly), "RDMAWrite": uint64(datasheet.AccessRDMAWrite), "U": uint64(datasheet.Unreliable),
	"RD": uint64(datasheet.ReliableDelivery), "ReceiveQueue": uint64(datasheet.KindReceiveQueue), "VI": uint64(datasheet.KindVI),
	"CQOverrun": uint64(datasheet.EventCQOverrun), "ConnectionLost": uint64(datasheet.EventConnectionLost),
	"PostDescriptor": uint64(datasheet.EventPostDescriptor), "Catastrophic": uint64(datasheet.EventCatastrophic),
	"Idle": uint64(datasheet.StateIdle), "Error": uint64(datasheet.StateError), "slot": datasheet.RingSlotSize,
	"PolicyTx": uint64(datasheet.RegPolicyTx), "PolicyRx": uint64(datasheet.RegPolicyRx), "MinPulseTx": uint64(datasheet.RegMinPulseTx), "MinPulseRx": uint64(datasheet.RegMinPulseRx),
	"PulseDeadline": uint64(datasheet.RegPulseDeadline), "DMAControl": uint64(datasheet.RegDMAControl), "Progress": uint64(datasheet.RegProgressLow),
	"LogBase": uint64(datasheet.RegLogBaseLow), "LogLog2": datasheet.RegLogLog2, "MaxTransfer": datasheet.MaxTransfer, "reset": uint64(datasheet.ControlReset),
	"lost": uint64(datasheet.ResultConnectionLost), "broken": uint64(datasheet.ResultDescriptor), "LogConsumer": uint64(datasheet.RegLogConsumer),
	"NIC": uint64(driver.AtNIC), "host": uint64(driver.AtHost), "Fails": uint64(driver.NoRoomFails), "Waits": uint64(driver.NoRoomWaits),
	"Ordinary": uint64(driver.NoRoomOrdinary), "Written": uint64(driver.EagerWritten), "MaxDMALog": driver.MaxDMALog,
}

// answer says how the device answers a command.
type answer struct {
	result datasheet.Result
	none   bool
	gone   bool // it goes, without an answer
	late   bool // to what was not answered, with success, before the result
}

const anyOpcode = datasheet.Opcode(0xffff)

// answerTo is called with the device's lock held.
func (p *play) answerTo(c *datasheet.Command) (datasheet.Result, bool) {
	p.asked = append(p.asked, c.Opcode)
	a, special := p.answers[c.Opcode]
	if !special {
		a = p.answers[anyOpcode]
	}
	if f := p.during[c.Opcode]; f != nil {
		p.duringOut += f()
	}
	if a.late {
		for _, u := range p.d.admin.unanswered {
			p.d.reply(&u, datasheet.ResultSuccess)
		}
	}
	if c.Opcode == datasheet.OpAbort && !special {
		id := datasheet.Body[datasheet.AbortBody](c).ID
		for _, u := range p.d.admin.unanswered {
			if u.ID == id {
				p.d.reply(&u, datasheet.ResultAborted)
			}
		}
	}
	p.d.gone = p.d.gone || a.gone
	return a.result, !a.none && !a.gone
}

func (p *play) tamperWith(e *datasheet.AdminEntry) {
	if e.Kind == datasheet.EntryReply {
		p.last = *e
	}
	for _, f := range p.tampers {
		f(e)
	}
}

// device is: device WORD... It has gone, or not; or is one of which BAR2 or the SRAM can be mapped, with
// a DMA block, that makes rings, or with vectors=COUNT, features=BITS, address=TEXT, nodma=TEXT.
func (p *play) device(a *script.Arguments) string {
	p.d.with(func() {
		for _, w := range a.Words {
			switch w {
			case "gone":
				p.d.gone = true
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

func (p *play) opcode(name string) datasheet.Opcode {
	p.t.Helper()
	for op := range datasheet.OpResizeCQ + 1 {
		if op.String() == name {
			return op
		}
	}
	p.t.Fatalf("there is no command %q", name)
	return 0
}

// answer is: answer RESULT|none|gone|soundly [COMMAND...]. It is what the device answers, to all commands
// or to some.
func (p *play) answer(a *script.Arguments) string {
	p.d.with(func() {
		var is answer
		switch w := a.Words[0]; w {
		case "none":
			is.none = true
		case "gone":
			is.gone = true
		case "late":
			is.late, is.result = true, datasheet.ResultInvalidParameter
		case "soundly":
		default:
			is.result = datasheet.Result(p.value(w))
		}
		if len(a.Words) == 1 {
			clear(p.answers)
			p.answers[anyOpcode] = is
		}
		for _, name := range a.Words[1:] {
			p.answers[p.opcode(name)] = is
		}
	})
	return ""
}

// bodies are what replies can be tampered with as.
var bodies = map[string]func(e *datasheet.AdminEntry) any{
	"entry": func(e *datasheet.AdminEntry) any { return e }, "created": func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.EndpointCreated](e) },
	"region":     func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.RegionReply](e) },
	"connection": func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.ConnectionReply](e) },
	"endpoint":   func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.EndpointReply](e) },
}

// tamper is: tamper BODY FIELD=VALUE..., or tamper off. What the device answers is changed from now on.
func (p *play) tamper(a *script.Arguments) string {
	p.d.with(func() {
		if a.Words[0] == "off" {
			p.tampers = nil
			return
		}
		body := bodies[a.Words[0]]
		p.tampers = append(p.tampers, func(e *datasheet.AdminEntry) {
			if e.Kind == datasheet.EntryReply {
				p.change(body(e), a.Changes)
			}
		})
	})
	return ""
}

// reply is: reply RESULT. The device answers what it has not.
func (p *play) reply(a *script.Arguments) string {
	p.d.with(func() {
		for _, c := range p.d.admin.unanswered {
			p.d.reply(&c, datasheet.Result(p.value(a.Words[0])))
		}
		p.d.admin.unanswered = nil
	})
	return ""
}

// postEntry is: post-entry FIELD=VALUE..., an entry of the admin queue that no command has asked for.
func (p *play) postEntry(a *script.Arguments) string {
	var e datasheet.AdminEntry
	p.change(&e, a.Changes)
	p.d.with(func() { p.d.post(e) })
	return ""
}

func (p *play) repeatReply(*script.Arguments) string {
	p.d.with(func() { p.d.post(p.last) })
	return ""
}

// event is: event CODE FIELD=VALUE...
func (p *play) event(a *script.Arguments) string {
	e := p.eventOf(a)
	p.d.with(func() { p.d.event(e) })
	return ""
}

func (p *play) eventOf(a *script.Arguments) datasheet.Event {
	e := datasheet.Event{Code: datasheet.EventCode(p.value(a.Words[0])), CQ: datasheet.NoCQ}
	if name, ok := a.Option("Descriptor"); ok && p.ds[name] != nil {
		e.Descriptor = p.ds[name].Token().Address
	} else if ok {
		e.Descriptor = p.value(name)
	}
	p.change(&e, a.Changes)
	return e
}

// whenAsked is: during OPCODE COMMAND... The device does it when it gets such a command, before it answers.
func (p *play) whenAsked(a *script.Arguments) string {
	op, words := p.opcode(a.Words[0]), wordsOf(a)[1:]
	f := func() string { return p.do(slices.Clone(words)) }
	if words[0] == "event" {
		e := p.eventOf(script.Parse(words[1:]))
		f = func() string { p.d.event(e); return "" }
	}
	p.d.with(func() { p.during[op] = f })
	return ""
}

// duringSaid shows what commands said meanwhile.
func (p *play) duringSaid(*script.Arguments) string { return p.duringOut }

// showUnanswered shows the commands that the device has not answered, and whether waits have limits.
func (p *play) showUnanswered(*script.Arguments) (lines string) {
	p.d.with(func() {
		for _, u := range p.d.admin.unanswered {
			lines += fmt.Sprintf("unanswered: %v", u.Opcode)
			if u.Opcode == datasheet.OpConnectWait {
				w := datasheet.Body[datasheet.ConnectWaitBody](&u)
				lines += fmt.Sprintf(" at %q, limited %v", w.Local.Data[:w.Local.Len], w.TimeoutMS > 0)
			}
			lines += "\n"
		}
	})
	return lines
}

// watchReset has at-reset show how many mappings the device had when it was reset, and its DMA control.
func (p *play) watchReset(*script.Arguments) string {
	p.d.with(func() {
		p.d.onWrite = func(offset uint64, _ uint32) bool {
			if offset == datasheet.HealthOffset+datasheet.RegControl {
				p.duringOut = fmt.Sprintf("at the reset: %d mappings, DMA control %#x\n", len(p.d.dma), p.d.get(datasheet.DMAOffset+datasheet.RegDMAControl))
			}
			return false
		}
	})
	return ""
}

func (p *play) atReset(*script.Arguments) string {
	return p.duringOut + fmt.Sprintf("PCI command register: %#x", p.d.config[4])
}

// differ says whether two numbers are the same.
func (p *play) differ(a *script.Arguments) string {
	if p.value(a.Words[0]) == p.value(a.Words[1]) {
		return a.Words[0] + " and " + a.Words[1] + " are alike"
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

// showAsked shows which commands the device was given since it did last.
func (p *play) showAsked(a *script.Arguments) string {
	var names []string
	p.d.with(func() {
		for _, op := range p.asked {
			names = append(names, op.String())
		}
		p.asked = nil
	})
	if a.Flag("nothing") {
		return ""
	}
	return fmt.Sprintf("asked: %s", strings.Join(names, " "))
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
			f, err := script.Field(to.Elem(), w)
			if err != nil {
				p.t.Fatal(err)
			}
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
