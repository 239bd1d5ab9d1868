// Hello sends a message from one NIC to another. Both are emulated, in this
// process, on a wire in memory; hardware differs in the addresses only.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	_ "github.com/trapeze-nic/trapeze/emulator" // makes "emu:" known
	"github.com/trapeze-nic/trapeze/via"
)

func main() {
	text, err := hello("emu:?wire=mem:hello", "hello, NIC")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("received:", text)
}

func hello(address, message string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	server, svi, smem, sd, err := open(ctx, address)
	if err != nil {
		return "", err
	}
	defer server.Close()
	client, cvi, cmem, cd, err := open(ctx, address)
	if err != nil {
		return "", err
	}
	defer client.Close()
	// A receive is posted before anybody can send to it.
	err = errors.Join(smem.AddTo(sd, 0, smem.Size()), svi.PostRecv(sd))
	accepted := make(chan error, 1)
	go func() {
		request, err := server.ConnectWait(ctx, []byte("greetings"))
		if err == nil {
			_, err = request.Accept(ctx, svi)
		}
		accepted <- err
	}()
	to := via.Address{MAC: server.Query().Address, Discriminator: []byte("greetings")}
	cerr := error(via.ErrNoMatch)
	for errors.Is(cerr, via.ErrNoMatch) { // until the server waits
		_, cerr = cvi.ConnectRequest(ctx, to, nil)
	}
	n := copy(cmem.Bytes(), message)
	if err := errors.Join(err, cerr, <-accepted, cmem.AddTo(cd, 0, n), cvi.PostSend(cd)); err != nil {
		return "", err
	}
	got, err := svi.RecvWait(ctx)
	_, serr := cvi.SendWait(ctx) // the other NIC has acknowledged it
	if err := errors.Join(err, serr); err != nil {
		return "", err
	}
	return string(smem.Bytes()[:got.Length()]), nil
}

func open(ctx context.Context, address string) (nic *via.NIC, vi *via.VI, mem *via.Memory, d *via.Descriptor, err error) {
	if nic, err = via.Open(ctx, address); err != nil {
		return
	}
	var ds []*via.Descriptor
	if vi, err = nic.CreateVI(ctx, via.VIAttributes{}, nil, nil); err == nil {
		ds, err = vi.NewDescriptors(ctx, 1, 1)
	}
	if err == nil {
		d = ds[0]
		mem, err = nic.Alloc(ctx, 4096, via.MemoryAttributes{})
	}
	if err != nil {
		err = errors.Join(err, nic.Close())
	}
	return
}
