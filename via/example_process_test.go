package via_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/trapeze-nic/trapeze/via"
)

// These name what the other process of ExampleConn_Stream_process is told in its environment: the
// address of its device, and the address to dial.
const (
	peerDevice  = "TRAPEZE_EXAMPLE_DEVICE"
	peerAddress = "TRAPEZE_EXAMPLE_ADDRESS"
)

// Two processes talk: one listens, and tells the other its address as text. Here the
// example runs itself for that; of two programs the user would be told.
func ExampleConn_Stream_process() {
	ctx, cancel := exampleContext()
	defer cancel()
	if device := os.Getenv(peerDevice); device != "" {
		dialAndSend(ctx, device, os.Getenv(peerAddress))
		os.Exit(0)
	}
	folder, err := os.MkdirTemp("", "")
	check(err)
	defer os.RemoveAll(folder)
	device := "emu:?wire=shm:" + folder + "/wire"
	server, err := via.Open(ctx, device, via.Options{})
	check(err)
	defer server.Close()
	l, err := via.Listen(server, "greetings", via.ListenOptions{})
	check(err)
	streams := l.Streams()
	defer streams.Close()

	client := exec.CommandContext(ctx, os.Args[0], "-test.run=^ExampleConn_Stream_process$")
	client.Env = append(os.Environ(), peerDevice+"="+device, peerAddress+"="+l.Address().String())
	check(client.Start())
	s, err := streams.Accept()
	check(err)
	text, err := io.ReadAll(s)
	check(err)
	check(s.Close())
	check(client.Wait())
	fmt.Printf("received: %s\n", text)
	// Output: received: hello from another process
}

// dialAndSend is the other process.
func dialAndSend(ctx context.Context, device, address string) {
	nic, err := via.Open(ctx, device, via.Options{})
	check(err)
	c, err := via.Dial(ctx, nic, address, via.ConnOptions{})
	check(err)
	s, err := c.Stream()
	check(err)
	_, err = s.Write([]byte("hello from another process"))
	check(err)
	check(s.Close())
	check(nic.Close())
}

func ExampleParseAddress() {
	a, err := via.ParseAddress("02:00:00:00:00:01/echo")
	check(err)
	fmt.Println(a.MAC, a.Discriminator)
	a.MAC = via.Broadcast
	fmt.Println(a)
	// Output:
	// 02:00:00:00:00:01 echo
	// ff:ff:ff:ff:ff:ff/echo
}
