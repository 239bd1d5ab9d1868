// Channel sends a message over a pair of channels between two emulated NICs; on hardware the
// addresses differ, no more.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/trapeze-nic/trapeze/channel"
	_ "github.com/trapeze-nic/trapeze/emulator" // makes "emu:" known
	"github.com/trapeze-nic/trapeze/via"
)

func main() {
	ctx := context.Background()
	near := must(via.Open(ctx, "emu:?wire=mem:channel", via.Options{}))
	defer near.Close()
	far := must(via.Open(ctx, "emu:?wire=mem:channel", via.Options{}))
	defer far.Close()
	talk(ctx, near, far)
}

// talk opens a pair of channels and sends a message over it.
func talk(ctx context.Context, near, far *via.NIC) {
	listener := must(channel.Listen(far, "greetings", channel.Options{}))
	out := must(channel.Dial(ctx, near, listener.Address().String(), channel.Options{}))
	in := must(listener.Accept(ctx)) // from here on no system call is made

	stop := out.SendPages().Put(0, []byte("hello, channels!")) // words of 8 bytes
	must(0, out.Send(channel.High, 0, stop))                   // one store
	m := must(in.Wait(ctx))
	fmt.Printf("%d bytes, CRC %08x: %s\n", m.Length, m.CRC, in.RecvPages().Bytes()[:m.Length])
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
