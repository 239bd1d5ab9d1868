package emulator_test

import (
	"bytes"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/vfio"
)

// mailbox is the mailbox of a NIC processor.
type mailbox struct{ nicProcessor }

func (m mailbox) at(offset uint32) uint64 {
	return uint64(m.read(descriptors.RegMailboxOffset) + offset)
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

func (m mailbox) do(op descriptors.MailboxOp, flags uint8, index uint16) descriptors.MailboxResult {
	m.t.Helper()
	word := descriptors.MailboxWord(op, flags, index)
	m.write(descriptors.RegMailboxCommand, word)
	if got := m.read(descriptors.RegMailboxCommand); got != word {
		m.t.Errorf("MAILBOX_COMMAND is %#x, want %#x", got, word)
	}
	return descriptors.MailboxResult(m.read(descriptors.RegMailboxResult))
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
	want := func(what string, got, want descriptors.MailboxResult) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	want("no program", m.do(descriptors.MailboxFirst, 0, 0), descriptors.MailboxNoProgram)
	for _, halted := range []bool{false, true} {
		p.run(0, image)
		if halted {
			p.write(descriptors.RegProcessorControl, descriptors.ProcessorHalt)
		}
		one, two, three := []byte("11111"), []byte("22222"), []byte("33333")
		want("first of none", m.do(descriptors.MailboxFirst, 0, 0), descriptors.MailboxNoEntry)
		m.put(0, one, []byte("abc"))
		want("lookup of nothing", m.do(descriptors.MailboxLookup, 0, 0), descriptors.MailboxNoEntry)
		want("update if there", m.do(descriptors.MailboxUpdate, descriptors.MailboxExists, 0), descriptors.MailboxNoEntry)
		want("update if absent", m.do(descriptors.MailboxUpdate, descriptors.MailboxAbsent, 0), descriptors.MailboxOK)
		want("update if absent, again", m.do(descriptors.MailboxUpdate, descriptors.MailboxAbsent, 0), descriptors.MailboxPresent)
		m.put(0, two, []byte("def"))
		want("update", m.do(descriptors.MailboxUpdate, descriptors.MailboxAny, 0), descriptors.MailboxOK)
		m.put(0, three, []byte("ghi"))
		want("update of a full map", m.do(descriptors.MailboxUpdate, descriptors.MailboxAny, 0), descriptors.MailboxFull)
		want("delete of nothing", m.do(descriptors.MailboxDelete, 0, 0), descriptors.MailboxNoEntry)
		m.put(0, one, []byte("xxx"))
		want("lookup", m.do(descriptors.MailboxLookup, 0, 0), descriptors.MailboxOK)
		if got := m.get(8, 3); string(got) != "abc" {
			t.Errorf("found %q", got)
		}

		seen := map[string]bool{}
		result := m.do(descriptors.MailboxFirst, 0, 0)
		for range 2 {
			want("walk", result, descriptors.MailboxOK)
			seen[string(m.get(0, 5))] = true
			result = m.do(descriptors.MailboxNext, 0, 0)
		}
		want("end of the walk", result, descriptors.MailboxNoEntry)
		if !seen["11111"] || !seen["22222"] {
			t.Errorf("walked over %v", seen)
		}
		m.put(0, two, nil)
		want("delete", m.do(descriptors.MailboxDelete, 0, 0), descriptors.MailboxOK)
		want("lookup of what was deleted", m.do(descriptors.MailboxLookup, 0, 0), descriptors.MailboxNoEntry)

		m.put(0, []byte{0, 0, 0, 0}, nil)
		want("lookup in an array", m.do(descriptors.MailboxLookup, 0, 1), descriptors.MailboxOK)
		if got := m.get(8, 8); string(got) != "contents" {
			t.Errorf("found %q", got)
		}
		want("delete in an array", m.do(descriptors.MailboxDelete, 0, 1), descriptors.MailboxBad)
		want("lookup of a constant", m.do(descriptors.MailboxLookup, 0, 2), descriptors.MailboxOK)
		want("update of a constant", m.do(descriptors.MailboxUpdate, 0, 2), descriptors.MailboxNotAllowed)
		m.put(0, []byte{2, 0, 0, 0}, nil)
		want("lookup behind an array", m.do(descriptors.MailboxLookup, 0, 1), descriptors.MailboxNoEntry)
		want("update behind an array", m.do(descriptors.MailboxUpdate, 0, 1), descriptors.MailboxFull)

		m.put(0, []byte{0, 0, 0, 0}, bytes.Repeat([]byte{5}, abi.MaxValue))
		want("update, large", m.do(descriptors.MailboxUpdate, 0, 3), descriptors.MailboxOK)
		m.put(0, []byte{0, 0, 0, 0}, make([]byte, abi.MaxValue))
		want("lookup, large", m.do(descriptors.MailboxLookup, 0, 3), descriptors.MailboxOK)
		if got := m.get(8, abi.MaxValue); !bytes.Equal(got, bytes.Repeat([]byte{5}, abi.MaxValue)) {
			t.Error("another large value")
		}

		for what, word := range map[string]uint32{
			"operation 0": 0, "operation 6": descriptors.MailboxWord(6, 0, 0), "operation 255": 0xff000000,
			"map 4": descriptors.MailboxWord(descriptors.MailboxLookup, 0, 4), "map 65535": descriptors.MailboxWord(descriptors.MailboxFirst, 0, 0xffff),
			"flags 3":           descriptors.MailboxWord(descriptors.MailboxUpdate, 3, 0),
			"flags of a lookup": descriptors.MailboxWord(descriptors.MailboxLookup, 1, 0),
		} {
			op, flags, index := descriptors.SplitMailbox(word)
			want(what, m.do(op, flags, index), descriptors.MailboxBad)
		}
	}
	p.write(descriptors.RegProcessorControl, descriptors.ProcessorUseBuiltIn)
	want("no program any more", m.do(descriptors.MailboxFirst, 0, 0), descriptors.MailboxNoProgram)
}
