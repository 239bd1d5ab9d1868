package driver_test

import (
	"context"
	"fmt"
	"log"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
)

// The NIC counts what it does.
func ExampleNIC_Counters() {
	ctx := context.Background()
	device, other, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer other.Close()
	nic, err := driver.New(ctx, device, driver.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()
	if err := device.WriteRegion(0, 3, []byte{1}); err != nil { // no register is there
		log.Fatal(err)
	}
	counters, err := nic.Counters()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("frames sent:", counters["frames_sent"], "bad accesses:", counters["bad_register_accesses"])
	// Output: frames sent: 0 bad accesses: 1
}
