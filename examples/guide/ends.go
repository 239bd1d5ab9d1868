package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// ends is the fifth step: how a connection ends, and what calls say then.
func ends(ctx context.Context, store, sensor *via.NIC) error {
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := via.Dial(short, sensor, via.Address{MAC: store.Query().Address, Discriminator: "no such name"}.String(), via.ConnOptions{})
	var e *via.Error
	if errors.As(err, &e) && errors.Is(err, via.ErrNoMatch) {
		fmt.Println("ends: no listener has this name")
	}
	out, in, err := dial(ctx, store, sensor, "ends")
	if err != nil {
		return err
	}
	defer in.Close()
	if err := errors.Join(out.Send(ctx, []byte("last")), out.CloseSend(ctx)); err != nil {
		return err
	}
	for {
		message, err := in.Receive(ctx)
		if errors.Is(err, io.EOF) || via.Ended(err) {
			fmt.Println("ends: all has been received")
			return out.Close()
		}
		if err != nil {
			return err
		}
		fmt.Printf("ends: %s\n", message)
		if err := in.Release(); err != nil {
			return err
		}
	}
}
