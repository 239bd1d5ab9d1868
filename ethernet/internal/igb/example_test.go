package igb_test

import (
	"context"
	"fmt"
	"log"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Frames go from one NIC to the other without being copied, as both have the same pool.
// On hardware the addresses are such as pci:0000:03:00.0, which package vfio/kernel opens.
func Example() {
	pool, err := ethernet.NewPool(ethernet.PoolOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	config := ethernet.Options{Pool: pool, Promiscuous: true}
	in, err := ethernet.Open(context.Background(), "fake-igb:in", config)
	if err != nil {
		log.Fatal(err)
	}
	defer in.Close()
	out, err := ethernet.Open(context.Background(), "fake-igb:out", config)
	if err != nil {
		log.Fatal(err)
	}
	defer out.Close()

	from, to := in.Queue(0), out.Queue(0)
	frames := make([]ethernet.Frame, 32)
	for forwarded := 0; forwarded < 3; {
		n, err := from.Receive(frames)
		if err != nil {
			log.Fatal(err)
		}
		sent, err := to.Send(frames[:n])
		if err != nil {
			log.Fatal(err)
		}
		to.Cache().Free(frames[sent:n]) // the ring is full: these are dropped
		for range sent {
			forwarded++
			fmt.Println("forwarded frame", forwarded)
		}
	}
	// Output:
	// forwarded frame 1
	// forwarded frame 2
	// forwarded frame 3
}

func init() {
	vfio.Register("fake-igb", func(_ context.Context, a vfio.Address) (vfio.Device, error) {
		d, err := fakeigb.New(fakeigb.Options{})
		if err == nil && a.Path == "in" {
			// Frames arrive as soon as there is room.
			d.OnEnable = func() {
				for range 3 {
					d.Arrive(porttest.FrameTo(own, 60))
				}
			}
		}
		return d, err
	})
}
