package engine_test

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
)

func (i *item) status() datasheet.Status {
	if i.slot != nil {
		return i.slot.LoadStatus()
	}
	return i.d.Status()
}

// number is the value of NAME.at, where its first buffer is, NAME.bus, and NAME.desc, the descriptor's.
func (i *item) number(field string) uint64 {
	switch field {
	case "desc":
		return i.d.Token().Address
	case "length":
		return uint64(i.d.Length())
	case "bus":
		return i.d.Segments()[0].Address - hostBase + busBase
	}
	return i.d.Segments()[0].Address
}

// text describes what has become of an item.
func (i *item) text() string {
	st := i.status()
	s := st.String()
	if op := st & datasheet.StatusOpMask; st != 0 && op != i.op {
		s += ", operation " + strconv.Itoa(int(op>>16))
	}
	if st.Done() && !st.Failed() && i.d != nil {
		if imm, ok := i.d.Immediate(); ok && i.posts() {
			s += fmt.Sprintf(" %#x", imm)
		}
	}
	if !i.recv || i.slot != nil {
		if i.slot != nil {
			return s + i.slotText()
		}
		return s + i.lengthText()
	}
	got := bytes.Join(i.bufs, nil)
	if !st.Done() || st.Failed() || st&datasheet.StatusOpMask == datasheet.StatusOpRemoteRDMAWrite {
		if st&datasheet.StatusOpMask == datasheet.StatusOpRemoteRDMAWrite {
			s += fmt.Sprintf(", %d bytes", i.d.Length())
		}
		if landed := i.in.pieces(got, fillByte); landed != untouched && st.Done() {
			s += ", landed: " + landed
		}
		return s
	}
	n := min(int(i.d.Length()), len(got))
	s += ", " + i.in.owner(got[:n], i)
	if bytes.Count(got[n:], []byte{fillByte}) != len(got)-n {
		s += ", bytes behind them written"
	}
	return s
}

// owner names the send that has these bytes, first of all one with the number of the receive.
func (p *play) owner(b []byte, of *item) string {
	number := strings.TrimLeft(of.name, "abcdefghijklmnopqrstuvwxyz")
	best := ""
	for _, i := range p.order {
		if i.data == nil || !bytes.Equal(i.data, b) {
			continue
		}
		if best == "" || strings.TrimLeft(i.name, "abcdefghijklmnopqrstuvwxyz") == number {
			best = i.name
		}
	}
	if best != "" {
		return "all of " + best
	}
	for _, i := range p.past {
		if i.data != nil && bytes.Equal(i.data, b) {
			return "all of an earlier " + i.name
		}
	}
	if len(b) > 0 && bytes.Count(b, []byte{0}) == len(b) {
		return fmt.Sprintf("%d zero bytes", len(b))
	}
	for _, name := range slices.Sorted(maps.Keys(p.targets)) {
		if at := bytes.Index(p.targets[name].mem, b); at >= 0 {
			return fmt.Sprintf("%d bytes of %s from %d on", len(b), name, at)
		}
	}
	return fmt.Sprintf("%d bytes that no one sent, %s", len(b), sample(b))
}

func sample(b []byte) string {
	if len(b) > 0 && len(b) < 32 && bytes.IndexFunc(b, func(r rune) bool { return r < ' ' || r > '~' }) < 0 {
		return strconv.Quote(string(b))
	}
	if len(b) > 16 {
		return fmt.Sprintf("%x...", b[:16])
	}
	return fmt.Sprintf("%x", b)
}

// describe describes items. Those that are alike have one line: the names of receives and of the
// messages in them go up alike.
func (p *play) describe(items []*item) string {
	type group struct {
		text  string
		names []string
	}
	var groups []group
	for _, i := range items {
		i.shown = i.text()
		text := i.shown
		number := strings.TrimLeft(i.name, "abcdefghijklmnopqrstuvwxyz")
		if number != "" {
			text = regexp.MustCompile(`\b([a-z]+)`+number+`\b`).ReplaceAllString(text, "${1}#")
		}
		if at := slices.IndexFunc(groups, func(g group) bool { return g.text == text }); at >= 0 {
			groups[at].names = append(groups[at].names, i.name)
		} else {
			groups = append(groups, group{text, []string{i.name}})
		}
	}
	lines := ""
	for _, g := range groups {
		lines += script.Fold(g.names) + ": " + g.text + "\n"
	}
	return lines
}

// target is: target VI NAME SIZE [ACCESS]. It registers memory that the peer may reach, as ACCESS says.
func (p *play) target(a *arguments) string {
	access := datasheet.Access(0)
	if len(a.Words) > 3 {
		access = datasheet.Access(p.value(a.Words[3]))
	}
	v, size := p.endpoint(a.Words[0]), int(p.value(a.Words[2]))
	ptag := a.number("ptag", 0)
	mem, address, iova := v.n.alloc(size)
	if a.Flag("filled") {
		copy(mem, pattern(size, 99))
	}
	r := do(v.n, datasheet.OpRegisterMemory, datasheet.RegisterMemoryBody{
		Address: address, Length: uint64(size), IOVA: iova, Access: access, Ptag: uint32(ptag)})
	p.targets[a.Words[1]] = target{mem, address, datasheet.Reply[datasheet.RegionReply](r).Handle}
	return ""
}

// landed says what has been written to targets, or to the buffers of receives.
func (p *play) landed(a *arguments) string {
	var parts []string
	for _, name := range a.Words {
		mem, blank := p.targets[name].mem, byte(0)
		if i := p.items[name]; i != nil {
			mem, blank = bytes.Join(i.bufs, nil), fillByte
		}
		parts = append(parts, name+": "+p.pieces(mem, blank))
	}
	return strings.Join(parts, ", ")
}

const untouched = "untouched"

// pieces describes the parts of memory that are not blank, by the sends that they are of.
func (p *play) pieces(mem []byte, blank byte) string {
	isBlank := func(c byte) bool { return c == blank }
	first := slices.IndexFunc(mem, func(c byte) bool { return !isBlank(c) })
	if first < 0 {
		return untouched
	}
	last := len(mem) - 1
	for isBlank(mem[last]) {
		last--
	}
	got := mem[first : last+1]
	for _, i := range p.order {
		data := i.data
		if i.slot != nil && !i.recv {
			data = i.payload()
		}
		if at := bytes.Index(data, got); data != nil && at >= 0 && (len(got) >= 8 || len(data) == len(got)) {
			if len(got) == len(data) {
				return fmt.Sprintf("%s at %d", i.name, first)
			}
			return fmt.Sprintf("%d bytes of %s from %d on at %d", len(got), i.name, at, first)
		}
	}
	return fmt.Sprintf("%d bytes at %d: %s", len(got), first, sample(got))
}

// doorbell is: doorbell NODE OFFSET VALUE [call].
func (p *play) doorbell(a *arguments) string {
	n := p.node(a.Words[0])
	at, value := p.value(a.Words[1]), uint32(p.value(a.Words[2]))
	n.e.Doorbell(at, value)
	return ""
}

// cq is: cq NAME on NODE LOG2 [VECTOR].
func (p *play) cq(a *arguments) string {
	vector := uint16(datasheet.NoVector)
	if len(a.Words) > 4 {
		vector = uint16(p.value(a.Words[4]))
	}
	p.cqs[a.Words[0]] = p.node(a.Words[2]).newCQ(uint8(p.value(a.Words[3])), vector)
	return ""
}

// take takes all entries of a completion queue, or so many.
func (p *play) take(a *arguments) string {
	c := p.cqs[a.Words[0]]
	most := uint64(1 << 20)
	if len(a.Words) > 1 {
		most = p.value(a.Words[1])
	}
	lines, last, times := "", "", 0
	flush := func() {
		if lines += last; times > 1 {
			lines += fmt.Sprintf(", %d times", times)
		}
		if last != "" {
			lines += "\n"
		}
	}
	for ; most > 0; most-- {
		e, ok := c.next()
		if !ok {
			break
		}
		kind, op := "send", datasheet.StatusOpSend
		if e.Flags&datasheet.CompletionReceive != 0 {
			kind, op = "receive", datasheet.StatusOpReceive
		}
		line := a.Words[0] + ": " + kind
		// Numbers that go up one by one are not shown.
		key := fmt.Sprint(a.Words[0], kind, e.Endpoint)
		if p.counts[key] != uint64(e.Index) {
			line += fmt.Sprintf(" %d", e.Index)
		}
		p.counts[key] = uint64(e.Index) + 1
		line += " of " + p.endName(c.n, e.Endpoint) + ", " + datasheet.Status(e.Status).String()
		if got := datasheet.Status(e.Status) & datasheet.StatusOpMask; got != op {
			line += fmt.Sprintf(", operation %d", got>>16)
		}
		if line == last {
			times++
			continue
		}
		flush()
		last, times = line, 1
	}
	if flush(); lines == "" {
		return a.Words[0] + ": no entry"
	}
	return lines
}

// arm asks for an interrupt at the next completion: arm CQ, or arm VI send.
func (p *play) arm(a *arguments) string {
	if c := p.cqs[a.Words[0]]; c != nil {
		c.arm()
		return ""
	}
	v, taken := p.endpoint(a.Words[0]), uint32(p.value(a.Words[2]))
	at := uint64(datasheet.DoorbellSendArm)
	if a.Words[1] == "recv" {
		at = datasheet.DoorbellRecvArm
	}
	v.n.e.Doorbell(datasheet.EndpointPage(v.id)+at, datasheet.ArmWord(taken))
	return ""
}

// refuse is: refuse NODE FROM [TO] [reads] [pieces=64]. The bus refuses accesses from an address on, or
// nothing again.
func (p *play) refuse(a *arguments) string {
	n := p.node(a.Words[0])
	pieces, reads := a.number("pieces", 0), a.Flag("reads")
	n.e.Exclusive(func() {
		n.gen++
		n.pieces = pieces
		if a.Words[1] == "nothing" {
			n.refuse = nil
			return
		}
		from := p.value(a.Words[1])
		to := from + 1
		if len(a.Words) > 2 {
			to = p.value(a.Words[2])
		}
		n.refuse = func(iova uint64, write bool) bool { return iova >= from && iova < to && !(reads && write) }
	})
	return ""
}
