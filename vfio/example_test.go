package vfio_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	_ "github.com/trapeze-nic/trapeze/emulator" // makes "emu:" known
	"github.com/trapeze-nic/trapeze/vfio"
)

// An address opens a device, whatever stands behind it: "pci:0000:03:00.0" is a board.
func ExampleOpen() {
	device, err := vfio.Open(context.Background(), "emu:?wire=loop")
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	config, err := vfio.ReadConfig(device)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: vendor %#04x, %d MSI-X vectors\n", device.Info().Backend, config.Vendor, config.MSIX.Vectors)
	// Output: emulator: vendor 0x1234, 64 MSI-X vectors
}

// An address that makes no sense is an error that says what is allowed.
func ExampleError() {
	_, err := vfio.Open(context.Background(), "emu:?mtu=9")
	var e *vfio.Error
	fmt.Println(errors.Is(err, vfio.ErrBadAddress), errors.As(err, &e))
	fmt.Println(e.Err)
	// Output:
	// true true
	// bad device address: option mtu=9: it is a whole number in 160..65344
}

// Addresses have a scheme, a path, and options behind a question mark.
func ExampleParseAddress() {
	a, err := vfio.ParseAddress("pci:0000:03:00.0?backend=cdev")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Scheme, a.Path, a.Options.Get("backend"))
	// Output: pci 0000:03:00.0 cdev
}

// DMA memory lies outside the Go heap, so that a device can reach it.
func ExampleAllocMemory() {
	memory, err := vfio.AllocMemory(4096, vfio.MemoryOptions{Huge: vfio.HugeNever})
	if err != nil {
		log.Fatal(err)
	}
	defer memory.Close()
	addresses := vfio.NewIOVAAllocator([]vfio.IOVARange{{First: 0x1000, Last: 0xffffff}}, 4096)
	iova, err := addresses.Alloc(uint64(len(memory.Bytes())), 4096)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d bytes at bus address %#x\n", len(memory.Bytes()), iova)
	// Output: 4096 bytes at bus address 0x1000
}
