package via_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

// One end lets the other write to and read from its memory, and takes no part in it. How
// the other learns of address and handle is the program's business: a message, mostly.
func Example_rdma() {
	ctx, cancel := exampleContext()
	defer cancel()
	x, y := examplePair(ctx, emulator.PairOptions{})
	defer x.Close()
	defer y.Close()
	a := connectRDMA(ctx, x, y)
	target, err := y.Alloc(ctx, 64, via.MemoryAttributes{RDMAWrite: true, RDMARead: true})
	check(err)

	ds, err := a.NewDescriptors(ctx, 2, 2) // an address segment and a data segment
	check(err)
	memory, err := x.Alloc(ctx, 64, via.MemoryAttributes{})
	check(err)
	write, read := ds[0], ds[1]
	n := copy(memory.Bytes(), "written from afar")
	check(errors.Join(write.SetRDMAWrite(target.Address(), target.Handle()), memory.AddTo(write, 0, n)))
	check(errors.Join(read.SetRDMARead(target.Address()+8, target.Handle()), memory.AddTo(read, 32, n-8)))
	check(errors.Join(a.PostSend(write), a.PostSend(read)))
	for range ds {
		_, err := a.SendWait(ctx)
		check(err)
	}
	fmt.Printf("%s; read back: %s\n", target.Bytes()[:n], memory.Bytes()[32:32+n-8])
	// Output: written from afar; read back: from afar
}

// connectRDMA returns a VI of one NIC, connected with one of another that allows RDMA.
func connectRDMA(ctx context.Context, from, to *via.NIC) *via.VI {
	a, err := from.CreateVI(ctx, via.VIAttributes{}, nil, nil)
	check(err)
	b, err := to.CreateVI(ctx, via.VIAttributes{RDMAWrite: true, RDMARead: true}, nil, nil)
	check(err)
	connected := make(chan error)
	go func() {
		request, err := to.ConnectWait(ctx, "rdma")
		if err == nil {
			_, err = request.Accept(ctx, b)
		}
		connected <- err
	}()
	address := via.Address{MAC: to.Query().Address, Discriminator: "rdma"}
	var remote via.Remote
	for err = via.ErrNoMatch; errors.Is(err, via.ErrNoMatch); { // until the other side waits
		remote, err = a.ConnectRequest(ctx, address, "")
	}
	check(errors.Join(err, <-connected))
	if !remote.RDMAWrite || !remote.RDMARead {
		panic("the other end allows no RDMA")
	}
	return a
}
