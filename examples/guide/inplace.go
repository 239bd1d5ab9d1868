package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/trapeze-nic/trapeze/via"
)

// inPlace is the second step: the message is built in the memory that the NIC sends from, and read
// where it has landed.
func inPlace(ctx context.Context, store, sensor *via.NIC) error {
	out, in, err := dial(ctx, store, sensor, "in place")
	if err != nil {
		return err
	}
	defer out.Close()
	defer in.Close()
	for _, reading := range []float64{21.5, 22} {
		buffer, err := out.Acquire(ctx) // registered memory of the largest message's size
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(buffer, math.Float64bits(reading))
		if err := out.Post(8); err != nil {
			return err
		}
	}
	for range 2 {
		message, err := in.Receive(ctx) // the NIC's memory, ours until Release
		if err != nil {
			return err
		}
		fmt.Printf("in place: %.1f C\n", math.Float64frombits(binary.LittleEndian.Uint64(message)))
		if err := in.Release(); err != nil {
			return err
		}
	}
	return nil
}
