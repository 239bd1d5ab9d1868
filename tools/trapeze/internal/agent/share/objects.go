package share

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// What a client may have at a time, besides VIs. Queues are two for each VI, and two more.
const (
	maxRegions     = 8192
	maxPtags       = 64
	maxNames       = 1024
	maxConnections = 1024
	// maxWaits commands of a kind wait for the network at a time; further ones wait for their turn. The
	// driver has 512 of a kind for all parts.
	maxWaits = 512 / MaxParts
)

// held is an object of the device that a client has.
type held struct {
	windows []*window
	kind    datasheet.Kind // of an endpoint
}

// owned are the objects of a client, by their numbers in the device.
type owned struct {
	ptags       map[uint32]struct{}
	regions     map[uint32]*held
	cqs         map[uint32]*held
	endpoints   map[uint32]*held
	connections map[uint32]struct{}
	// zero is the tag of the device in place of the client's tag 0, which others must not have too.
	zero    uint32
	hasZero bool
	turns   map[datasheet.Opcode]chan struct{} // of commands that wait for the network
}

// begin makes everything new. mu is held, or nothing uses the part yet.
func (p *Part) begin() {
	p.owned = owned{ptags: map[uint32]struct{}{}, regions: map[uint32]*held{}, cqs: map[uint32]*held{}, endpoints: map[uint32]*held{},
		connections: map[uint32]struct{}{}, turns: map[datasheet.Opcode]chan struct{}{}}
	for _, op := range []datasheet.Opcode{datasheet.OpConnectWait, datasheet.OpConnectAccept, datasheet.OpConnectRequest} {
		p.owned.turns[op] = make(chan struct{}, maxWaits)
	}
	p.admin = adminQueue{outstanding: map[uint16]context.CancelFunc{}}
}

func (h *held) take() {
	for _, w := range h.windows {
		w.users++
	}
}

func (h *held) release() {
	for _, w := range h.windows {
		w.users--
	}
	h.windows = nil
}

// refusal is why a command is not carried out.
type refusal struct {
	result datasheet.Result
	field  uint16 // byte offset in the command; 0 for none
}

// execute has the device carry out a command.
func (p *Part) execute(ctx context.Context, cmd *datasheet.Command) (*datasheet.AdminEntry, *refusal) {
	reply, err := p.nic.nic.Execute(ctx, *cmd)
	var no *driver.CommandError
	switch {
	case err == nil:
		return reply, nil
	case errors.As(err, &no):
		return nil, &refusal{no.Result, no.Field}
	case ctx.Err() == nil:
		p.nic.broken(err)
	}
	return nil, &refusal{datasheet.ResultAborted, 0}
}

func command[B datasheet.CommandBody](op datasheet.Opcode, body B) *datasheet.Command {
	cmd := &datasheet.Command{Opcode: op}
	*datasheet.Body[B](cmd) = body
	return cmd
}

// stop ends all that the client has of the device, and waits until the device has said that it is so. The part is as
// after a reset then. It fails if the device does not say so: the NIC is given up.
func (p *Part) stop() (err error) {
	p.mu.Lock()
	p.admin.enabled = false
	p.end()
	p.mu.Unlock()
	p.work.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bells.clear()
	do := func(cmd *datasheet.Command) {
		if p.nic.isBroken() {
			return
		}
		if _, no := p.execute(context.Background(), cmd); no != nil && err == nil {
			err = &driver.CommandError{Opcode: cmd.Opcode, Result: no.result, Field: no.field}
		}
	}
	o := &p.owned
	for number := range o.connections {
		// It may be void by now.
		_, _ = p.execute(context.Background(), command(datasheet.OpConnectReject, datasheet.ConnectRejectBody{Connection: number}))
	}
	// Those that share a receive queue go before it.
	queuesLast := func(a, b uint32) int {
		return int(o.endpoints[a].kind) - int(o.endpoints[b].kind)
	}
	for _, number := range slices.SortedFunc(maps.Keys(o.endpoints), queuesLast) {
		do(command(datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: number}))
		do(command(datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: number}))
		o.endpoints[number].release()
	}
	for number, h := range o.cqs {
		do(command(datasheet.OpDestroyCQ, datasheet.CQBody{CQ: number}))
		h.release()
	}
	for handle, h := range o.regions {
		do(command(datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: handle}))
		h.release()
	}
	for ptag := range o.ptags {
		do(command(datasheet.OpDestroyPtag, datasheet.PtagBody{Ptag: ptag}))
	}
	if o.hasZero {
		do(command(datasheet.OpDestroyPtag, datasheet.PtagBody{Ptag: o.zero}))
	}
	if err != nil {
		p.nic.broken(err)
	}
	p.nic.forgetNames(p)
	p.begin()
	p.resets++
	p.life, p.end = context.WithCancel(context.Background())
	return err
}
