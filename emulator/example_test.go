package emulator_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// Two NICs on one wire, and a message between them.
func ExamplePair() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	x, y, err := emulator.Pair(emulator.PairOptions{})
	check(err)
	a, err := via.OpenDevice(ctx, x, via.Options{})
	check(err)
	defer a.Close()
	b, err := via.OpenDevice(ctx, y, via.Options{})
	check(err)
	defer b.Close()

	listener, err := via.Listen(b, "example", via.ListenOptions{})
	check(err)
	from, err := via.Dial(ctx, a, listener.Address().String(), via.ConnOptions{})
	check(err)
	check(from.Send(ctx, []byte("no board needed")))
	to, err := listener.Accept(ctx)
	check(err)
	message, err := to.Receive(ctx)
	check(err)
	fmt.Printf("%s\n", message)
	// Output: no board needed
}

// A NIC that is removed reads as all ones, as a board does that was pulled out.
func ExampleDevice_Remove() {
	w, err := wire.NewLoopback(wire.MemoryOptions{})
	check(err)
	d, err := emulator.New(emulator.Options{Wire: w})
	check(err)
	defer d.Close()
	vendor := make([]byte, 2)
	check(d.ReadRegion(vfio.RegionConfig, 0, vendor))
	fmt.Printf("%x\n", vendor)
	d.Remove()
	check(d.ReadRegion(vfio.RegionConfig, 0, vendor))
	fmt.Printf("%x\n", vendor)
	// Output:
	// 3412
	// ffff
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
