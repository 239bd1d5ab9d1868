package emulator_test

import (
	"bytes"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// mailbox is the mailbox of a NIC processor.
type mailbox struct{ nicProcessor }

func (m mailbox) at(offset uint32) uint64 {
	return uint64(m.read(datasheet.RegMailboxOffset) + offset)
}

// put stores a key, and a value behind it, whose place is rounded up to 8.
func (m mailbox) put(offset uint32, key, value []byte) {
	m.t.Helper()
	write(m.t, m.d, vfio.RegionBAR4, m.at(offset), key)
	write(m.t, m.d, vfio.RegionBAR4, m.at(offset+(uint32(len(key))+7)&^7), value)
}

func (m mailbox) get(offset uint32, n int) []byte {
	m.t.Helper()
	return read(m.t, m.d, vfio.RegionBAR4, m.at(offset), n)
}

func (m mailbox) do(op datasheet.MailboxOp, flags uint8, index uint16) datasheet.MailboxResult {
	m.t.Helper()
	word := datasheet.MailboxWord(op, flags, index)
	m.write(datasheet.RegMailboxCommand, word)
	should.Be(m.t, m.read(datasheet.RegMailboxCommand), word, "MAILBOX_COMMAND")
	return datasheet.MailboxResult(m.read(datasheet.RegMailboxResult))
}

var mailboxMaps = []abi.Map{
	{Name: "hash", Type: abi.MapHash, Key: 5, Value: 3, Entries: 2},
	{Name: "array", Type: abi.MapArray, Key: 4, Value: 8, Entries: 2, Contents: []byte("contents")},
	{Name: ".rodata", Type: abi.MapArray, Key: 4, Value: 8, Entries: 1, Contents: []byte("constant"), Flags: abi.MapReadOnly},
	{Name: "large", Type: abi.MapArray, Key: 4, Value: abi.MaxValue, Entries: 1},
}

// TestMailbox carries out every operation, good and bad, while the program runs and
// while it is halted.
func TestMailbox(t *testing.T) {
	p := newProcessor(t, newDevice(t, nil))
	m := mailbox{p}
	image := encode(t, filter("maps", constant(abi.FilterPass), mailboxMaps...))
	want := func(what string, got, want datasheet.MailboxResult) {
		t.Helper()
		should.Be(t, got, want, "%s", what)
	}
	want("no program", m.do(datasheet.MailboxFirst, 0, 0), datasheet.MailboxNoProgram)
	for _, halted := range []bool{false, true} {
		p.run(0, image)
		if halted {
			p.write(datasheet.RegProcessorControl, datasheet.ProcessorHalt)
		}
		one, two, three := []byte("11111"), []byte("22222"), []byte("33333")
		want("first of none", m.do(datasheet.MailboxFirst, 0, 0), datasheet.MailboxNoEntry)
		m.put(0, one, []byte("abc"))
		want("lookup of nothing", m.do(datasheet.MailboxLookup, 0, 0), datasheet.MailboxNoEntry)
		want("update if there", m.do(datasheet.MailboxUpdate, datasheet.MailboxExists, 0), datasheet.MailboxNoEntry)
		want("update if absent", m.do(datasheet.MailboxUpdate, datasheet.MailboxAbsent, 0), datasheet.MailboxOK)
		want("update if absent, again", m.do(datasheet.MailboxUpdate, datasheet.MailboxAbsent, 0), datasheet.MailboxPresent)
		m.put(0, two, []byte("def"))
		want("update", m.do(datasheet.MailboxUpdate, datasheet.MailboxAny, 0), datasheet.MailboxOK)
		m.put(0, three, []byte("ghi"))
		want("update of a full map", m.do(datasheet.MailboxUpdate, datasheet.MailboxAny, 0), datasheet.MailboxFull)
		want("delete of nothing", m.do(datasheet.MailboxDelete, 0, 0), datasheet.MailboxNoEntry)
		m.put(0, one, []byte("xxx"))
		want("lookup", m.do(datasheet.MailboxLookup, 0, 0), datasheet.MailboxOK)
		should.Be(t, string(m.get(8, 3)), "abc")

		seen := map[string]bool{}
		result := m.do(datasheet.MailboxFirst, 0, 0)
		for range 2 {
			want("walk", result, datasheet.MailboxOK)
			seen[string(m.get(0, 5))] = true
			result = m.do(datasheet.MailboxNext, 0, 0)
		}
		want("end of the walk", result, datasheet.MailboxNoEntry)
		if !seen["11111"] || !seen["22222"] {
			t.Errorf("walked over %v", seen)
		}
		m.put(0, two, nil)
		want("delete", m.do(datasheet.MailboxDelete, 0, 0), datasheet.MailboxOK)
		want("lookup of what was deleted", m.do(datasheet.MailboxLookup, 0, 0), datasheet.MailboxNoEntry)

		m.put(0, []byte{0, 0, 0, 0}, nil)
		want("lookup in an array", m.do(datasheet.MailboxLookup, 0, 1), datasheet.MailboxOK)
		should.Be(t, string(m.get(8, 8)), "contents")
		want("delete in an array", m.do(datasheet.MailboxDelete, 0, 1), datasheet.MailboxBad)
		want("lookup of a constant", m.do(datasheet.MailboxLookup, 0, 2), datasheet.MailboxOK)
		want("update of a constant", m.do(datasheet.MailboxUpdate, 0, 2), datasheet.MailboxNotAllowed)
		m.put(0, []byte{2, 0, 0, 0}, nil)
		want("lookup behind an array", m.do(datasheet.MailboxLookup, 0, 1), datasheet.MailboxNoEntry)
		want("update behind an array", m.do(datasheet.MailboxUpdate, 0, 1), datasheet.MailboxFull)

		m.put(0, []byte{0, 0, 0, 0}, bytes.Repeat([]byte{5}, abi.MaxValue))
		want("update, large", m.do(datasheet.MailboxUpdate, 0, 3), datasheet.MailboxOK)
		m.put(0, []byte{0, 0, 0, 0}, make([]byte, abi.MaxValue))
		want("lookup, large", m.do(datasheet.MailboxLookup, 0, 3), datasheet.MailboxOK)
		should.Same(t, m.get(8, abi.MaxValue), bytes.Repeat([]byte{5}, abi.MaxValue), "another large value")

		for what, word := range map[string]uint32{
			"operation 0": 0, "operation 6": datasheet.MailboxWord(6, 0, 0), "operation 255": 0xff000000,
			"map 4": datasheet.MailboxWord(datasheet.MailboxLookup, 0, 4), "map 65535": datasheet.MailboxWord(datasheet.MailboxFirst, 0, 0xffff),
			"flags 3":           datasheet.MailboxWord(datasheet.MailboxUpdate, 3, 0),
			"flags of a lookup": datasheet.MailboxWord(datasheet.MailboxLookup, 1, 0),
		} {
			op, flags, index := datasheet.SplitMailbox(word)
			want(what, m.do(op, flags, index), datasheet.MailboxBad)
		}
	}
	p.write(datasheet.RegProcessorControl, datasheet.ProcessorUseBuiltIn)
	want("no program any more", m.do(datasheet.MailboxFirst, 0, 0), datasheet.MailboxNoProgram)
}
