// Hello sends a message between two emulated NICs; on hardware the addresses differ, no more.
package main

import (
	"context"
	"fmt"
	"log"

	_ "github.com/trapeze-nic/trapeze/emulator" // makes "emu:" known
	"github.com/trapeze-nic/trapeze/via"
)

func main() {
	ctx := context.Background()
	server := must(via.Open(ctx, "emu:?wire=mem:hello"))
	defer server.Close()
	client := must(via.Open(ctx, "emu:?wire=mem:hello"))
	defer client.Close()
	listener := must(via.Listen(server, []byte("greetings")))
	out := must(via.Dial(ctx, client, listener.Address()))
	must(0, out.Send(ctx, []byte("hello, NIC")))
	fmt.Printf("received: %s\n", must(must(listener.Accept(ctx)).Receive(ctx)))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
