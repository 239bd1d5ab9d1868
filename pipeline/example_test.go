package pipeline_test

import (
	"fmt"
	"log"

	"github.com/trapeze-nic/trapeze/pipeline"
)

// A policy says how many bytes of a frame move on, given how many have arrived.
func ExamplePolicy() {
	frame := pipeline.View{Length: 8192, Arrived: 3000}
	for _, p := range []pipeline.Policy{
		pipeline.StoreAndForward{}, pipeline.Static{Pulse: 1024}, pipeline.Eager{MinPulse: 128},
	} {
		fmt.Printf("%T moves %d bytes\n", p, p.Next(frame))
	}
	// Output:
	// pipeline.StoreAndForward moves 0 bytes
	// pipeline.Static moves 1024 bytes
	// pipeline.Eager moves 3000 bytes
}

// A device asks its policy after each step, and moves frames piece by piece.
func ExampleDevice() {
	d, err := pipeline.NewDevice(pipeline.Static{Pulse: 1000}, 2)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := d.Start(2500); err != nil {
		log.Fatal(err)
	}
	for _, total := range []int{800, 1700, 2500} {
		if err := d.Arrived(total); err != nil {
			log.Fatal(err)
		}
		for {
			n, last := d.Move()
			if n == 0 {
				break
			}
			fmt.Println(total, "arrived:", n, "move on, the last:", last)
			if err := d.Done(); err != nil {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// 1700 arrived: 1000 move on, the last: false
	// 2500 arrived: 1000 move on, the last: false
	// 2500 arrived: 500 move on, the last: true
}
