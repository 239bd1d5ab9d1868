// Hello sends a message between two emulated NICs; on hardware only the addresses differ.
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
	server, err := via.Open(ctx, "emu:?wire=mem:hello", via.Options{})
	if err != nil {
		return err
	}
	defer server.Close()
	client, err := via.Open(ctx, "emu:?wire=mem:hello", via.Options{})
	if err != nil {
		return err
	}
	defer client.Close()
	listener, err := via.Listen(server, "greetings", via.ListenOptions{})
	if err != nil {
		return err
	}
	out, err := via.Dial(ctx, client, listener.Address().String(), via.ConnOptions{})
	if err != nil {
		return err
	}
	if err := out.Send(ctx, []byte("hello, NIC")); err != nil {
		return err
	}
	in, err := listener.Accept(ctx)
	if err != nil {
		return err
	}
	message, err := in.Receive(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("received: %s\n", message)
	return nil
}
