package vfiouser_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// BenchmarkRegister is a register that is read by a message.
func BenchmarkRegister(b *testing.B) {
	d := serve(b, quiet).open(b)
	p := make([]byte, 4)
	for b.Loop() {
		if err := d.ReadRegion(0, regID, p); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDoorbell is a doorbell in shared memory.
func BenchmarkDoorbell(b *testing.B) {
	d := serve(b, quiet).open(b)
	m, err := d.MapRegion(4, 0, page)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	r, err := m.Register32(doorbell)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		mmio.ToDevice()
		mmio.Write32(r, 0)
	}
}

// BenchmarkMapDMA maps and unmaps a page.
func BenchmarkMapDMA(b *testing.B) {
	d := serve(b, quiet).open(b)
	mem := alloc(b, page)
	for b.Loop() {
		if err := d.MapDMA(mem, 0x10000, both); err != nil {
			b.Fatal(err)
		}
		if err := d.UnmapDMA(0x10000, page); err != nil {
			b.Fatal(err)
		}
	}
}
