package datasheet_test

import (
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestRegisterTable checks that the table is in order and that every register
// lies inside its block.
func TestRegisterTable(t *testing.T) {
	size := map[uint32]uint32{
		BlockIdentity: IdentitySize, BlockHealth: HealthSize, BlockAdmin: AdminSize,
		BlockClock: ClockSize, BlockCounters: uint32(CountersSize), BlockInterrupt: InterruptSize,
		BlockDMA: DMASize, BlockChannels: ChannelsSize, BlockProcessor: ProcessorSize,
	}
	type place struct{ block, offset uint32 }
	seen, names := map[place]string{}, map[string]bool{}
	for _, r := range append(Registers(), ProcessorRegisters()...) {
		end, ok := size[r.Block]
		if !ok {
			t.Errorf("%s is in unknown block %#x", r.Name, r.Block)
		}
		if r.Offset < BlockHeaderSize || r.Offset+4 > end || r.Offset%4 != 0 {
			t.Errorf("%s stands at %#x of a block of %#x bytes", r.Name, r.Offset, end)
		}
		should.Be(t, seen[place{r.Block, r.Offset}], "", "and %s share offset %#x", r.Name, r.Offset)
		if names[r.Name] || r.Name != strings.ToUpper(r.Name) {
			t.Errorf("name %q is taken or not in capitals", r.Name)
		}
		seen[place{r.Block, r.Offset}], names[r.Name] = r.Name, true
		if !r.Fixed && r.Reset != 0 {
			t.Errorf("%s has reset value %#x and no fixed one", r.Name, r.Reset)
		}
	}
	Registers()[0].Name = "changed"
	should.Be(t, Registers()[0].Name, "MAGIC", "a caller can change the table")
}

// TestBlocksDoNotOverlap checks where the blocks stand in BAR0.
func TestBlocksDoNotOverlap(t *testing.T) {
	blocks := []struct {
		name       string
		start, end uint32
	}{
		{"identity", IdentityOffset, IdentityOffset + IdentitySize},
		{"health", HealthOffset, HealthOffset + HealthSize},
		{"admin", AdminOffset, AdminOffset + AdminSize},
		{"clock", ClockOffset, ClockOffset + ClockSize},
		{"channels", ChannelsOffset, ChannelsOffset + ChannelsSize},
		{"counters", CounterOffset, CounterOffset + uint32(CountersSize)},
		{"interrupt", InterruptOffset, InterruptOffset + InterruptSize},
		{"DMA", DMAOffset, DMAOffset + DMASize},
		{"processor", ProcessorOffset, ProcessorOffset + ProcessorSize},
		{"MSI-X table", MSIXTableOffset, MSIXTableOffset + 16*Vectors},
		{"pending bits", MSIXPBAOffset, MSIXPBAOffset + (Vectors+63)/64*8},
		{"BAR0", BAR0Size, BAR0Size},
	}
	for i, b := range blocks[:len(blocks)-1] {
		if next := blocks[i+1]; b.end > next.start {
			t.Errorf("%s ends at %#x, %s starts at %#x", b.name, b.end, next.name, next.start)
		}
	}
}
