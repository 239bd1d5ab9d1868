package via_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

// A NIC on a looped wire talks to itself: two of its VIs are connected, and a
// message goes from one to the other.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	nic, err := via.Open(ctx, "emu:?wire=loop", via.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()

	client, err1 := nic.CreateVI(ctx, via.VIAttributes{}, nil, nil)
	server, err2 := nic.CreateVI(ctx, via.VIAttributes{}, nil, nil)
	memory, err3 := nic.Alloc(ctx, 8192, via.MemoryAttributes{})
	if err := errors.Join(err1, err2, err3); err != nil {
		log.Fatal(err)
	}
	sends, err1 := client.NewDescriptors(ctx, 1, 1)
	receives, err2 := server.NewDescriptors(ctx, 1, 1)
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}

	accepted := make(chan error)
	go func() {
		request, err := nic.ConnectWait(ctx, "example")
		if err == nil {
			_, err = request.Accept(ctx, server)
		}
		accepted <- err
	}()
	to := via.Address{MAC: nic.Query().Address, Discriminator: "example"}
	for err = via.ErrNoMatch; errors.Is(err, via.ErrNoMatch); { // until the server waits
		_, err = client.ConnectRequest(ctx, to, "")
	}
	if err := errors.Join(err, <-accepted); err != nil {
		log.Fatal(err)
	}

	// The upper half of the memory receives what is sent from the lower half.
	n := copy(memory.Bytes(), "through the NIC")
	if err := errors.Join(
		memory.AddTo(receives[0], 4096, 4096), server.PostRecv(receives[0]),
		memory.AddTo(sends[0], 0, n), client.PostSend(sends[0]),
	); err != nil {
		log.Fatal(err)
	}
	d, err := server.RecvWait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", memory.Bytes()[4096:4096+d.Length()])
	// Output: through the NIC
}

// Every error has a code of VIA's and keeps its cause.
func ExampleError() {
	_, err := via.Open(context.Background(), "emu:?wire=two-tins-and-a-string", via.Options{})
	var e *via.Error
	if errors.As(err, &e) {
		fmt.Println(e.Op, "failed:", e.Code)
	}
	fmt.Println(errors.Is(err, via.ErrInvalidParameter))
	// Output:
	// open failed: invalid parameter
	// true
}
