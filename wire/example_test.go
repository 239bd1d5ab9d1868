package wire_test

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/wire"
)

// A frame crosses a wire in memory: it is written and read in place.
func ExampleNewMemory() {
	a, b, err := wire.NewMemory(wire.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer a.Close()
	defer b.Close()
	copy(a.Reserve(5), "frame")
	a.Commit()
	a.Flush()
	fmt.Printf("%s\n", b.Receive())
	b.Release()
	// Output: frame
}

// A wire with faults doubles each frame here. The same seed has the same faults.
func ExampleNewFault() {
	a, b, err := wire.NewMemory(wire.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer b.Close()
	faulty, err := wire.NewFault(a, wire.FaultOptions{Duplicate: 1, Seed: 1})
	if err != nil {
		panic(err)
	}
	defer faulty.Close()
	copy(faulty.Reserve(5), "frame")
	faulty.Commit()
	faulty.Flush()
	n := 0
	for b.Receive() != nil {
		b.Release()
		n++
	}
	fmt.Println(n, "frames, counted:", wire.Stats(faulty).(wire.FaultyStats).Faults.Duplicated)
	// Output: 2 frames, counted: 1
}
