// Message sends reliable messages between two emulated NICs on the memory wire, one at a
// time, and writes for each of them the coverage counters of what ran from PostSend to
// the receiver's RecvDone and the sender's SendDone, to a directory of its own in the one
// that its argument names. It is built with "go build -cover -covermode=atomic".
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"runtime/coverage"
	"strconv"

	_ "github.com/trapeze-nic/trapeze/emulator" // makes "emu:" known
	"github.com/trapeze-nic/trapeze/via"
)

const (
	size = 64 // of a message in bytes
	// messages are sent, so that what only some of them pass, such as a look at the
	// timers, can be told from what all do.
	messages = 8
	// idlePolls is how often both NICs are polled without work before each message, so
	// that nothing is left of the one before.
	idlePolls = 256
)

func main() {
	ctx := context.Background()
	sender, receiver := newSide(ctx), newSide(ctx)
	connect(ctx, sender, receiver)
	for i := range messages {
		sender.descriptor.Rearm()
		receiver.descriptor.Rearm()
		check(receiver.vi.PostRecv(receiver.descriptor))
		for range idlePolls {
			receiver.nic.Poll()
			sender.nic.Poll()
		}
		check(coverage.ClearCounters())
		check(sender.vi.PostSend(sender.descriptor), take(receiver.vi.RecvDone), take(sender.vi.SendDone))
		dir := filepath.Join(os.Args[1], strconv.Itoa(i))
		check(os.Mkdir(dir, 0o755), coverage.WriteMetaDir(dir), coverage.WriteCountersDir(dir))
	}
	check(sender.nic.Close(), receiver.nic.Close())
}

// side is a NIC with a VI and a descriptor.
type side struct {
	nic        *via.NIC
	vi         *via.VI
	descriptor *via.Descriptor
}

func newSide(ctx context.Context) *side {
	nic, err := via.Open(ctx, "emu:?wire=mem:walk")
	check(err)
	vi, err := nic.CreateVI(ctx, via.VIAttributes{}, nil, nil)
	check(err)
	memory, err := nic.Alloc(ctx, size, via.MemoryAttributes{})
	check(err)
	ds, err := vi.NewDescriptors(ctx, 1, 1)
	check(err)
	check(memory.AddTo(ds[0], 0, size))
	return &side{nic, vi, ds[0]}
}

func connect(ctx context.Context, client, server *side) {
	accepted := make(chan error, 1)
	go func() {
		request, err := server.nic.ConnectWait(ctx, nil)
		if err == nil {
			_, err = request.Accept(ctx, server.vi)
		}
		accepted <- err
	}()
	err := error(via.ErrNoMatch)
	for errors.Is(err, via.ErrNoMatch) { // until the server waits
		_, err = client.vi.ConnectRequest(ctx, via.Address{MAC: server.nic.Query().Address}, nil)
	}
	check(err, <-accepted)
}

// take polls until a descriptor is done.
func take(done func() (*via.Descriptor, error)) error {
	for {
		if _, err := done(); err != via.ErrNotDone {
			return err
		}
	}
}

func check(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		log.Fatal(err)
	}
}
