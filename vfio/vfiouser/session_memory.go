package vfiouser

import (
	"bytes"
	"sync"

	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/dmaspace"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// memory has the mappings of a client. A goroutine of its own changes mappings, in order: a
// device may have to wait before it lets go of memory, while QEMU gives a device up for good
// that takes 5 s to answer a read (hw/vfio-user/proxy.c, x-msg-timeout).
type memory struct {
	changes chan protocol.Message
	left    sync.WaitGroup // changes that have not been answered
	ended   chan struct{}

	// What follows is the goroutine's while there are changes.
	space *dmaspace.Space
	out   []byte // payload of the reply that is being made
	// The client has shared memory; warnings that have been given.
	shares, warnedFile, warnedShare bool
}

// maxChanges is the number of changes that may wait. Each may hold a file descriptor.
const maxChanges = 64

func newMemory(l dmaspace.Limits) memory {
	return memory{changes: make(chan protocol.Message, maxChanges), ended: make(chan struct{}), space: dmaspace.New(l)}
}

// begin starts the goroutine for session n.
func (y *memory) begin(n *session) {
	go func() {
		defer close(y.ended)
		for m := range y.changes {
			if err := n.serve(&m, nil); err != nil {
				n.conn.Close() // the session ends with it
			}
			y.left.Done()
		}
	}()
}

// end waits for the changes that were handed over, and ends the goroutine.
func (y *memory) end() {
	close(y.changes)
	<-y.ended
}

// hand gives a message to the goroutine, which answers it.
func (y *memory) hand(m protocol.Message) {
	m.Payload = bytes.Clone(m.Payload) // the next message takes its place
	y.left.Add(1)
	y.changes <- m
}

// idle waits until no change is left.
func (y *memory) idle() { y.left.Wait() }

// changesMemory reports whether a command is for the goroutine. One that wants no answer is
// not: a client learns that it has been carried out from the answer to what follows.
func changesMemory(h protocol.Header) bool {
	return h.WantsReply() && (h.Command == protocol.CommandDMAMap || h.Command == protocol.CommandDMAUnmap)
}

// overtakes reports whether a command may be answered before changes of mappings that came
// earlier: it changes nothing, so it does not matter which of them it follows.
func overtakes(h protocol.Header) bool {
	switch h.Command {
	case protocol.CommandDeviceInfo, protocol.CommandRegionInfo, protocol.CommandIRQInfo,
		protocol.CommandRegionRead:
		return true
	}
	return false
}
