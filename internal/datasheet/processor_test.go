package datasheet_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestProcessorArrays checks the elements that have no row of their own in
// SPEC.md: they follow the first in its shape.
func TestProcessorArrays(t *testing.T) {
	found := map[string]Register{}
	for _, r := range ProcessorRegisters() {
		found[r.Name] = r
	}
	type array struct{ elements, stride uint32 }
	// Those of four bytes each hold fields of 32, 32, 16 and 20 bytes.
	arrays := map[string]array{"PROC_DIGEST_%d": {32 / 4, 4}, "PROC_NAME_%d": {32 / 4, 4}, "PROC_VERSION_%d": {16 / 4, 4}, "PROC_BUILD_ID_%d": {20 / 4, 4}}
	for _, n := range []string{"RUNS_LOW", "RUNS_HIGH", "FAULTS_LOW", "FAULTS_HIGH", "WORST_CASE", "INSTALLED"} {
		arrays["HOOK_%d_"+n] = array{ImageHookCount, ProcessorHookSize}
	}
	for format, a := range arrays {
		want := found[fmt.Sprintf(format, 0)]
		for i := range a.elements {
			want.Name = fmt.Sprintf(format, i)
			should.Be(t, found[want.Name], want)
			want.Offset += a.stride
		}
		if r, ok := found[fmt.Sprintf(format, a.elements)]; ok {
			t.Errorf("%s is one too many", r.Name)
		}
	}
}

func TestProcessorWords(t *testing.T) {
	should.Be(t, MailboxWord(MailboxUpdate, MailboxAbsent, 0x1234), 0x02011234, "mailbox command")
	if op, flags, index := SplitMailbox(0x02011234); op != MailboxUpdate || flags != MailboxAbsent || index != 0x1234 {
		t.Errorf("split into %d, %d, %#x", op, flags, index)
	}
	should.Be(t, ProcessorFaultWord(4, 0x01000fff), 0x04000fff, "fault detail")
	if hook, at := SplitProcessorFault(0x04000fff); hook != 4 || at != 0xfff {
		t.Errorf("split into %d, %#x", hook, at)
	}
}
