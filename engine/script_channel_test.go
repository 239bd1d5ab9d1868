package engine_test

import (
	"bytes"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
)

var _ = also(map[string]func(p *play, a *arguments) string{
	"channel": (*play).channel, "channels": (*play).channelPair, "put": (*play).put, "cellbell": (*play).cellBell, "allow": (*play).allow,
	"received": (*play).received, "sent": (*play).sent, "holds": (*play).holds, "head": (*play).head, "levels": (*play).levels, "scribble": (*play).scribble,
})

// channelSRAM is device memory of a node for channels.
func (p *play) channelSRAM(n *node) []byte {
	if n.sram == nil {
		n.sram = n.mapSRAM(64*datasheet.PageSize, 0)
	}
	return n.sram
}

// channel is: channel NAME on NODE [handle=HANDLE] [FIELD=VALUE...].
func (p *play) channel(a *arguments) string {
	p.t.Helper()
	n := p.node(a.Words[2])
	handle := uint32(a.number("handle", uint64(p.handle(n))))
	c := n.newChannel(handle, p.channelSRAM(n), func(b *datasheet.CreateEndpointBody) {
		p.change(b, a.Changes...)
		if pages := b.SendLog2; pages != 12 {
			b.RecvLog2, b.MaxTransfer = pages, 2<<pages
		}
	})
	p.doubles[a.Words[0]] = c
	p.addEnd(a.Words[0], &vi{n: n, id: c.id, handle: handle})
	return ""
}

// channelPair is: channels [A B] [FIELD=VALUE...]. It connects a channel of node a, v, with one of node b, p.
func (p *play) channelPair(a *arguments) string {
	names := [2]string{"v", "p"}
	if len(a.Words) == 2 {
		names = [2]string(a.Words)
	}
	for i, on := range []string{"a", "b"} {
		p.channel(&arguments{p: p, Arguments: &script.Arguments{Words: []string{names[i], "on", on}, Changes: a.Changes}})
	}
	p.doubles[names[0]].join(p.doubles[names[1]])
	return ""
}

func priority(word string) datasheet.ChannelPriority {
	if word == "high" {
		return datasheet.PriorityHigh
	}
	return datasheet.PriorityLow
}

// put is: put CHANNEL high|low START MESSAGE BYTES [to=NUMBER] [quiet]. It writes a message and posts it. Of channel 0 it begins with the
// number of another. quiet posts nothing.
func (p *play) put(a *arguments) string {
	quiet := a.Flag("quiet")
	c, start := p.doubles[a.Words[0]], uint32(p.value(a.Words[2]))
	data := pattern(int(p.value(a.Words[4])), p.seed())
	if old := p.data[a.Words[3]]; old != nil {
		data = old[:len(data)]
	}
	p.data[a.Words[3]] = data
	stop := start
	if to, ok := a.Option("to"); ok {
		stop = c.address(start, p.value(to), data)
	} else {
		stop = c.put(start, data)
	}
	if !quiet {
		c.post(priority(a.Words[1]), start, stop)
	}
	return ""
}

// cellBell is: cellbell CHANNEL high|low START STOP [flags=BITS].
func (p *play) cellBell(a *arguments) string {
	flags := uint32(a.number("flags", 0))
	word := datasheet.ChannelBell(uint32(p.value(a.Words[2])), uint32(p.value(a.Words[3])))
	p.doubles[a.Words[0]].ring(priority(a.Words[1]), word|flags)
	return ""
}

// allow is: allow CHANNEL START STOP [keep].
func (p *play) allow(a *arguments) string {
	keep := a.Flag("keep")
	c, word := p.doubles[a.Words[0]], datasheet.ChannelBell(uint32(p.value(a.Words[1])), uint32(p.value(a.Words[2])))
	if keep {
		word |= datasheet.ChannelKeep
	}
	c.n.e.Doorbell(datasheet.EndpointPage(c.id)+datasheet.DoorbellReceive, word)
	return ""
}

// received shows a channel's receive word, and unless it is to be brief, how the PDUs ended that have not been shown.
func (p *play) received(a *arguments) (lines string) {
	brief := a.Flag("brief")
	for _, name := range a.Words {
		c := p.doubles[name]
		got := c.received()
		lines += fmt.Sprintf("%s has received %d PDUs up to word %d of %d", name, got.PDUs, got.Current, got.Stop)
		if got.Drops != 0 {
			lines += fmt.Sprintf(", %d cells dropped", got.Drops&0x1ff)
			if got.Drops&datasheet.ChannelDropsMany != 0 {
				lines += " and many"
			}
		}
		lines += ":"
		for _, s := range []struct {
			bit  datasheet.ChannelStatus
			name string
		}{{datasheet.ChannelConnected, "connected"}, {datasheet.ChannelCut, "cut"}, {datasheet.ChannelAborted, "aborted"},
			{datasheet.ChannelUnreachable, "unreachable"}, {datasheet.ChannelSpaced, "spaced"}} {
			if got.Status&s.bit != 0 {
				lines += " " + s.name
			}
		}
		lines += "\n"
		for n := uint8(p.counts[name+" pdus"]); n != got.PDUs && !brief; n++ {
			lines += fmt.Sprintf("%s: PDU %d, %s\n", name, n, endText(c.end(n)))
		}
		p.counts[name+" pdus"] = uint64(got.PDUs)
	}
	return lines
}

func endText(e datasheet.ChannelEnd) string {
	s := fmt.Sprintf("%d bytes up to word %d", e.Length(), e.Offset())
	for _, f := range []struct {
		bit  datasheet.ChannelEnd
		name string
	}{{datasheet.ChannelEndBadCRC, "bad CRC"}, {datasheet.ChannelEndBadLength, "bad length"}, {datasheet.ChannelEndAborted, "aborted"},
		{datasheet.ChannelEndCut, "cut"}} {
		if e&f.bit != 0 {
			s += ", " + f.name
		}
	}
	if e.Whole() {
		s += ", whole"
	}
	return s
}

// sent shows a channel's send status and transmit word, and its CRC if asked.
func (p *play) sent(a *arguments) (lines string) {
	crc := a.Flag("crc")
	for _, name := range a.Words {
		c := p.doubles[name]
		s, t := c.status(), c.transmit()
		lines += fmt.Sprintf("%s has taken %d high and %d low words, %d and %d ended, %v and %v; at word %d of %d\n", name,
			s.Stores[0], s.Stores[1], s.Ended[0], s.Ended[1], s.Result[0], s.Result[1], t.Current, t.Stop)
		if crc {
			lines += fmt.Sprintf("%s: CRC %08x\n", name, c.control.SendCRC)
		}
	}
	return lines
}

// holds is: holds CHANNEL WORD MESSAGE [from BYTES]. It says whether the message stands in the receiving double page.
func (p *play) holds(a *arguments) string {
	c, data := p.doubles[a.Words[0]], p.data[a.Words[2]]
	at := uint32(p.value(a.Words[1]))
	got := c.at(at, len(data))
	n := 0
	for n < len(data) && got[n] == data[n] {
		n++
	}
	s := fmt.Sprintf("%s holds %s at word %s", a.Words[0], a.Words[2], a.Words[1])
	if n < len(data) {
		s += fmt.Sprintf(" up to byte %d of %d", n, len(data))
		if bytes.Count(got[n:], []byte{got[n]}) == len(got)-n {
			s += fmt.Sprintf(", then only %#x", got[n])
		}
	}
	return s
}

// head is: head [cell=N] [VCI=N] [VPI=N] [PTI=N] [once]. It is a rule for what node a sends: a cell, or all, gets a sound header.
func (p *play) head(a *arguments) string {
	n := p.w.a
	which := int(int64(a.number("cell", ^uint64(0))))
	r := &rule{action: "head", types: []datasheet.FrameType{datasheet.FrameCells}, left: -1, number: which, set: a.Changes}
	if a.Flag("once") {
		r.left = 1
	}
	p.rules[n] = append(p.rules[n], r)
	n.port.spoil = func(f []byte) [][]byte { return p.spoil(n, f) }
	return ""
}

// rehead carries a head rule out.
func (p *play) rehead(r *rule, f []byte) {
	all := datasheet.CellsAt(f[datasheet.HeaderSize:])
	for i := range all {
		if r.number >= 0 && i != r.number {
			continue
		}
		h := cells.Header{VCI: vciOf(&all[i])}
		p.change(&h, r.set...)
		rehead(&all[i], h)
	}
}

// levels shows how full the FIFOs are, and were.
func (p *play) levels(a *arguments) string {
	return fmt.Sprintf("%s levels: %+v", a.Words[0], p.node(a.Words[0]).e.CellLevels())
}

// scribble is: scribble CHANNEL. Its host writes to all of the control page.
func (p *play) scribble(a *arguments) string {
	c := p.doubles[a.Words[0]]
	datasheet.StoreWord(&c.control.Transmit, ^uint64(0))
	datasheet.StoreWord(&c.control.Receive, ^uint64(0))
	datasheet.StoreWord(&c.control.SendStatus, ^uint64(0))
	c.control.SendCRC, c.control.RecvCRC = 1, 2
	return ""
}
