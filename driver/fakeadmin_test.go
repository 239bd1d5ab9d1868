package driver_test

import (
	"github.com/trapeze-nic/trapeze/descriptors"
)

// fakeAdmin is the device's side of the admin queue, and what was created
// through it.
type fakeAdmin struct {
	sq, acq    uint64
	sqMask     uint32
	acqLog2    uint8
	fetched    uint32
	written    uint32
	next       uint32 // number to give out
	endpoints  map[uint32]descriptors.CreateEndpointBody
	cqs        map[uint32]*fakeCQ
	regions    map[uint32]descriptors.RegisterMemoryBody
	unanswered []descriptors.Command
}

type fakeCQ struct {
	descriptors.CreateCQBody
	written uint32
}

func (d *fakeDevice) enableAdmin() {
	r := func(reg uint64) uint64 { return uint64(d.get(descriptors.AdminOffset + reg)) }
	d.admin = fakeAdmin{
		sq:      r(descriptors.RegSQBaseLow) | r(descriptors.RegSQBaseHigh)<<32,
		acq:     r(descriptors.RegACQBaseLow) | r(descriptors.RegACQBaseHigh)<<32,
		sqMask:  1<<r(descriptors.RegSQLog2) - 1,
		acqLog2: uint8(r(descriptors.RegACQLog2)),

		endpoints: map[uint32]descriptors.CreateEndpointBody{},
		cqs:       map[uint32]*fakeCQ{},
		regions:   map[uint32]descriptors.RegisterMemoryBody{},
	}
}

func (d *fakeDevice) fetchCommands(producer uint32) {
	for a := &d.admin; a.fetched != producer; a.fetched++ {
		at := a.sq + uint64(a.fetched&a.sqMask)*descriptors.AdminEntrySize
		cmd := *descriptors.CommandAt(d.memory(at, descriptors.AdminEntrySize))
		result, ok := descriptors.ResultSuccess, true
		if d.answer != nil {
			result, ok = d.answer(&cmd)
		}
		if !ok {
			a.unanswered = append(a.unanswered, cmd)
			continue
		}
		d.reply(&cmd, result)
	}
}

// reply answers a command; the body is what a sound device would say.
func (d *fakeDevice) reply(cmd *descriptors.Command, result descriptors.Result) {
	a := &d.admin
	if cmd.Opcode == descriptors.OpCreateEndpoint && len(a.endpoints) == fakeEndpoints-1 {
		result = descriptors.ResultResource
	}
	e := descriptors.AdminEntry{Kind: descriptors.EntryReply, ID: cmd.ID, Result: result}
	if result == descriptors.ResultSuccess {
		switch cmd.Opcode {
		case descriptors.OpCreatePtag:
			a.next++
			descriptors.Reply[descriptors.PtagBody](&e).Ptag = a.next
		case descriptors.OpRegisterMemory:
			a.next++
			descriptors.Reply[descriptors.RegionReply](&e).Handle = a.next
			a.regions[a.next] = *descriptors.Body[descriptors.RegisterMemoryBody](cmd)
		case descriptors.OpDeregisterMemory:
			delete(a.regions, descriptors.Body[descriptors.MemoryBody](cmd).Handle)
		case descriptors.OpCreateCQ:
			number := uint32(len(a.cqs))
			descriptors.Reply[descriptors.CQBody](&e).CQ = number
			a.cqs[number] = &fakeCQ{CreateCQBody: *descriptors.Body[descriptors.CreateCQBody](cmd)}
		case descriptors.OpCreateEndpoint:
			number := uint32(1)
			for a.endpoints[number].Kind != 0 {
				number++
			}
			descriptors.Reply[descriptors.EndpointCreated](&e).Endpoint = number
			a.endpoints[number] = *descriptors.Body[descriptors.CreateEndpointBody](cmd)
		case descriptors.OpDestroyEndpoint:
			delete(a.endpoints, descriptors.Body[descriptors.EndpointBody](cmd).Endpoint)
		}
	}
	d.post(e)
}

// post writes an admin entry and raises the admin vector.
func (d *fakeDevice) post(e descriptors.AdminEntry) {
	a := &d.admin
	e.Flags = descriptors.PhaseOf(a.written, a.acqLog2)
	if d.tamper != nil {
		d.tamper(&e)
	}
	at := a.acq + uint64(a.written&(1<<a.acqLog2-1))*descriptors.AdminEntrySize
	to := descriptors.AdminEntryAt(d.memory(at, descriptors.AdminEntrySize))
	flags := e.Flags
	e.Flags = to.Flags
	*to = e
	to.Publish(flags)
	a.written++
	d.interrupt(0)
}

// event posts an asynchronous event, if there is room.
func (d *fakeDevice) event(ev descriptors.Event) {
	const lost = descriptors.AdminOffset + descriptors.RegEventsLost
	if room := uint32(1) << d.admin.acqLog2; d.admin.written-d.get(descriptors.AdminOffset+descriptors.RegACQConsumer) >= room/2 {
		d.set(lost, d.get(lost)+1)
		return
	}
	e := descriptors.AdminEntry{Kind: descriptors.EntryEvent}
	*descriptors.Reply[descriptors.Event](&e) = ev
	d.post(e)
}

// control finds the descriptor that token number i of a work queue names.
func (d *fakeDevice) control(endpoint uint32, receive bool, i uint32) *descriptors.ControlSegment {
	ep := d.admin.endpoints[endpoint]
	ring, log2 := ep.SendIOVA, ep.SendLog2
	if receive {
		ring, log2 = ep.RecvIOVA, ep.RecvLog2
	}
	t := descriptors.TokensAt(d.memory(ring+uint64(i&(1<<log2-1))*descriptors.TokenSize, descriptors.TokenSize))[0]
	r := d.admin.regions[t.Handle]
	return descriptors.ControlAt(d.memory(r.IOVA+(t.Address-r.Address), descriptors.ControlSegmentSize))
}

// complete completes the descriptor that token number i names.
func (d *fakeDevice) complete(endpoint uint32, receive bool, i, length uint32, status descriptors.Status) {
	c := d.control(endpoint, receive, i)
	c.Length = length
	c.StoreStatus(status)
}

// completion writes an entry into a completion queue, with the phase bit added.
func (d *fakeDevice) completion(cq uint32, e descriptors.Completion) {
	c := d.admin.cqs[cq]
	to := &descriptors.CompletionsAt(d.memory(c.IOVA+uint64(c.written&(1<<c.Log2-1))*descriptors.CompletionSize, descriptors.CompletionSize))[0]
	to.Endpoint, to.Index, to.Status = e.Endpoint, e.Index, e.Status
	to.Publish(e.Flags | descriptors.PhaseOf(c.written, c.Log2))
	c.written++
	d.interrupt(int(c.Vector))
}
