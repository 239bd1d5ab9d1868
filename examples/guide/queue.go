package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/via"
)

// queue is the third step: below a Conn are a VI, its descriptors and memory. The receives of any
// number of VIs complete in one queue.
func queue(ctx context.Context, store, sensor *via.NIC) error {
	completions, err := store.CreateCQ(ctx, 256) // room for all receives of its VIs
	if err != nil {
		return err
	}
	const sensors = 3
	for i := range sensors {
		from, _, err := pair(ctx, store, sensor, completions, via.VIAttributes{})
		if err != nil {
			return err
		}
		message, err := from.NewDescriptors(ctx, 1, 1)
		if err != nil {
			return err
		}
		message[0].SetInline(copy(message[0].Inline(), fmt.Sprintf("%d.0 C", 20+i)))
		if err := from.PostSend(message[0]); err != nil {
			return err
		}
	}
	for range sensors {
		done, err := completions.Wait(ctx) // of whichever VI is first
		if err != nil {
			return err
		}
		received, err := done.VI.RecvDone()
		if err != nil {
			return err
		}
		fmt.Printf("queue: a message of %d bytes\n", received.Length())
	}
	return nil
}

// pair connects a VI of the sensor with one of the store. The store's has a receive of 64 bytes and
// reports to a completion queue.
func pair(ctx context.Context, store, sensor *via.NIC, completions *via.CQ, a via.VIAttributes) (from, to *via.VI, err error) {
	if from, err = sensor.CreateVI(ctx, a, nil, nil); err != nil {
		return nil, nil, err
	}
	if to, err = store.CreateVI(ctx, a, nil, completions); err != nil {
		return nil, nil, err
	}
	memory, err := store.Alloc(ctx, 64, via.MemoryAttributes{})
	if err != nil {
		return nil, nil, err
	}
	receives, err := to.NewDescriptors(ctx, 1, 1)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(memory.AddTo(receives[0], 0, 64), to.PostRecv(receives[0])); err != nil {
		return nil, nil, err
	}
	accepted := make(chan error, 1)
	go func() {
		request, err := store.ConnectWait(ctx, "vi")
		if err == nil {
			_, err = request.Accept(ctx, to)
		}
		accepted <- err
	}()
	address := via.Address{MAC: store.Query().Address, Discriminator: "vi"}
	for err = via.ErrNoMatch; errors.Is(err, via.ErrNoMatch); { // until the store waits
		_, err = from.ConnectRequest(ctx, address, "")
	}
	return from, to, errors.Join(err, <-accepted)
}
