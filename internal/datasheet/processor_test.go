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
	arrays := []struct {
		format           string
		elements, stride uint32
		bytes            uint32 // of the field that the array holds
	}{
		{"PROC_DIGEST_%d", 8, 4, 32}, {"PROC_NAME_%d", 8, 4, 32},
		{"PROC_VERSION_%d", 4, 4, 16}, {"PROC_BUILD_ID_%d", 5, 4, 20},
	}
	for _, n := range []string{"RUNS_LOW", "RUNS_HIGH", "FAULTS_LOW", "FAULTS_HIGH", "WORST_CASE", "INSTALLED"} {
		arrays = append(arrays, struct {
			format                  string
			elements, stride, bytes uint32
		}{"HOOK_%d_" + n, ImageHookCount, ProcessorHookSize, 0})
	}
	for _, a := range arrays {
		if a.bytes != 0 && a.elements*4 != a.bytes {
			t.Errorf("%s: %d registers for %d bytes", a.format, a.elements, a.bytes)
		}
		first := found[fmt.Sprintf(a.format, 0)]
		for i := range a.elements {
			want := first
			want.Name, want.Offset = fmt.Sprintf(a.format, i), first.Offset+a.stride*i
			if got, ok := found[want.Name]; !ok || got != want {
				t.Errorf("%s is %+v, want %+v", want.Name, got, want)
			}
		}
		if r, ok := found[fmt.Sprintf(a.format, a.elements)]; ok {
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
