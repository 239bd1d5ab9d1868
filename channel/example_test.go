package channel_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

// Two programs, here in one: one listens, the other opens a pair of channels to it and sends.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	open := func() *via.NIC {
		nic, err := via.Open(ctx, "emu:?wire=mem:channel-example", via.Options{})
		if err != nil {
			log.Fatal(err)
		}
		return nic
	}
	a, b := open(), open()
	defer a.Close()
	defer b.Close()

	l, err := channel.Listen(b, "greetings", channel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	c, err := channel.Dial(ctx, a, l.Address().String(), channel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	server, err := l.Accept(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	// From here on nobody is called. The message is in the sending pages, and a store sends it.
	stop := c.SendPages().Put(0, []byte("hello, world"))
	if err := c.Send(channel.High, 0, stop); err != nil {
		log.Fatal(err)
	}
	m, err := server.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	text := make([]byte, m.Length)
	server.Read(m, text)
	fmt.Printf("%.12s: %d bytes, %v\n", text, m.Length, m.Err)
	// Output: hello, world: 16 bytes, <nil>
}
