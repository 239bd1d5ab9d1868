package via_test

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

// One end lets the other write to and read from its memory, and takes no part in it. How
// the other learns of address and handle is the program's business: a message, mostly.
func Example_rdma() {
	ctx, x, y, done := examplePair(emulator.PairOptions{})
	defer done()
	a, _ := connectVIs(ctx, x, y, via.VIAttributes{RDMAWrite: true, RDMARead: true}, nil)
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
