// Guide is the program of docs/guide.md: sensors send readings to a store, in five steps from a first
// message to RDMA. Both NICs are emulated, in this process.
package main

import (
	"context"
	"fmt"
	"log"

	_ "github.com/trapeze-nic/trapeze/emulator" // makes "emu:" known
	"github.com/trapeze-nic/trapeze/via"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	store, err := via.Open(ctx, "emu:?wire=mem:guide", via.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	sensor, err := via.Open(ctx, "emu:?wire=mem:guide", via.Options{})
	if err != nil {
		return err
	}
	defer sensor.Close()
	for _, step := range []func(ctx context.Context, store, sensor *via.NIC) error{connect, inPlace, queue, remote, ends} {
		if err := step(ctx, store, sensor); err != nil {
			return err
		}
	}
	return nil
}

// dial listens at the store under a name, dials it, and returns both ends.
func dial(ctx context.Context, store, sensor *via.NIC, name string) (out, in *via.Conn, err error) {
	listener, err := via.Listen(store, name, via.ListenOptions{})
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	if out, err = via.Dial(ctx, sensor, listener.Address().String(), via.ConnOptions{}); err != nil {
		return nil, nil, err
	}
	in, err = listener.Accept(ctx)
	return out, in, err
}

// connect is the first step: a message from one end to the other.
func connect(ctx context.Context, store, sensor *via.NIC) error {
	out, in, err := dial(ctx, store, sensor, "readings")
	if err != nil {
		return err
	}
	defer out.Close()
	defer in.Close()
	if err := out.Send(ctx, []byte("21.5 C")); err != nil {
		return err
	}
	message, err := in.Receive(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("connect: %s\n", message)
	return in.Release()
}
