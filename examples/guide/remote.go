package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/via"
)

// remote is the fourth step: the sensor writes into the store's table, and reads it, without a call
// of the store.
func remote(ctx context.Context, store, sensor *via.NIC) error {
	from, _, err := pair(ctx, store, sensor, nil, via.VIAttributes{RDMAWrite: true, RDMARead: true})
	if err != nil {
		return err
	}
	table, err := store.Alloc(ctx, 4096, via.MemoryAttributes{RDMAWrite: true, RDMARead: true})
	if err != nil {
		return err
	}
	local, err := sensor.Alloc(ctx, 64, via.MemoryAttributes{})
	if err != nil {
		return err
	}
	ds, err := from.NewDescriptors(ctx, 2, 2) // an address segment and a data segment each
	if err != nil {
		return err
	}
	write, read := ds[0], ds[1]
	n := copy(local.Bytes(), "21.5 C in row 3")
	row := table.Address() + 3*64
	err = errors.Join(
		write.SetRDMAWrite(row, table.Handle()), local.AddTo(write, 0, n),
		read.SetRDMARead(row, table.Handle()), local.AddTo(read, 32, n),
		from.PostSend(write), from.PostSend(read)) // the read sees what the write has written
	if err != nil {
		return err
	}
	for range ds {
		if _, err := from.SendWait(ctx); err != nil {
			return err
		}
	}
	fmt.Printf("remote: %s\n", local.Bytes()[32:32+n])
	return nil
}
