package datasheet_test

import (
	"testing"

	"pgregory.net/rapid"

	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

func TestDoorbellPages(t *testing.T) {
	if got := EndpointPage(3); got != 0x3000 {
		t.Errorf("endpoint 3 has page %#x", got)
	}
	if got := CQPage(1024, 2); got != (1024+2)*4096 {
		t.Errorf("completion queue 2 has page %#x", got)
	}
	// With 2^20 of each the offsets no longer fit 32 bits.
	if got := CQPage(1<<20, 1<<20-1); got != (1<<21-1)<<12 {
		t.Errorf("last page is %#x", got)
	}
}

func TestArmReached(t *testing.T) {
	for _, tt := range []struct {
		taken, completed uint32
		want             bool
	}{
		{0, 0, false}, {0, 1, true}, {5, 5, false}, {5, 6, true}, {6, 5, false},
		{0x7fffffff, 0x7fffffff, false}, {0x7fffffff, 0x80000000, true},
		{0xffffffff, 0xffffffff, false}, {0xffffffff, 0, true}, {0, 0xffffffff, false},
	} {
		word := ArmWord(tt.taken)
		if word&ArmFlag == 0 {
			t.Errorf("ArmWord(%#x) = %#x lacks the flag", tt.taken, word)
		}
		if got := ArmReached(word, tt.completed); got != tt.want {
			t.Errorf("taken %#x, completed %#x: got %v", tt.taken, tt.completed, got)
		}
	}
}

// TestArmReachedAnywhere checks the comparison for all distances that queues
// can have, wherever the counts stand.
func TestArmReachedAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		taken := rapid.Uint32().Draw(t, "taken")
		ahead := rapid.Int32Range(-1<<MaxCQLog2, 1<<MaxCQLog2).Draw(t, "ahead")
		if got := ArmReached(ArmWord(taken), taken+uint32(ahead)); got != (ahead > 0) {
			t.Fatalf("%d completions to be taken: got %v", ahead, got)
		}
	})
}
