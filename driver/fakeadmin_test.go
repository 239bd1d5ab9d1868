package driver_test

import (
	"github.com/trapeze-nic/trapeze/internal/datasheet"
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
	endpoints  map[uint32]datasheet.CreateEndpointBody
	cqs        map[uint32]*fakeCQ
	regions    map[uint32]datasheet.RegisterMemoryBody
	unanswered []datasheet.Command
}

type fakeCQ struct {
	datasheet.CreateCQBody
	written uint32
}

func (d *fakeDevice) enableAdmin() {
	r := func(reg uint64) uint64 { return uint64(d.get(datasheet.AdminOffset + reg)) }
	d.admin = fakeAdmin{
		sq:      r(datasheet.RegSQBaseLow) | r(datasheet.RegSQBaseHigh)<<32,
		acq:     r(datasheet.RegACQBaseLow) | r(datasheet.RegACQBaseHigh)<<32,
		sqMask:  1<<r(datasheet.RegSQLog2) - 1,
		acqLog2: uint8(r(datasheet.RegACQLog2)),

		endpoints: map[uint32]datasheet.CreateEndpointBody{},
		cqs:       map[uint32]*fakeCQ{},
		regions:   map[uint32]datasheet.RegisterMemoryBody{},
	}
}

func (d *fakeDevice) fetchCommands(producer uint32) {
	for a := &d.admin; a.fetched != producer; a.fetched++ {
		at := a.sq + uint64(a.fetched&a.sqMask)*datasheet.AdminEntrySize
		cmd := *datasheet.CommandAt(d.memory(at, datasheet.AdminEntrySize))
		result, ok := datasheet.ResultSuccess, true
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
func (d *fakeDevice) reply(cmd *datasheet.Command, result datasheet.Result) {
	a := &d.admin
	if cmd.Opcode == datasheet.OpCreateEndpoint && len(a.endpoints) == fakeEndpoints-1 {
		result = datasheet.ResultResource
	}
	e := datasheet.AdminEntry{Kind: datasheet.EntryReply, ID: cmd.ID, Result: result}
	if result == datasheet.ResultSuccess {
		switch cmd.Opcode {
		case datasheet.OpCreatePtag:
			a.next++
			datasheet.Reply[datasheet.PtagBody](&e).Ptag = a.next
		case datasheet.OpRegisterMemory:
			a.next++
			datasheet.Reply[datasheet.RegionReply](&e).Handle = a.next
			a.regions[a.next] = *datasheet.Body[datasheet.RegisterMemoryBody](cmd)
		case datasheet.OpDeregisterMemory:
			delete(a.regions, datasheet.Body[datasheet.MemoryBody](cmd).Handle)
		case datasheet.OpCreateCQ:
			number := uint32(len(a.cqs))
			datasheet.Reply[datasheet.CQBody](&e).CQ = number
			a.cqs[number] = &fakeCQ{CreateCQBody: *datasheet.Body[datasheet.CreateCQBody](cmd)}
		case datasheet.OpCreateEndpoint:
			number := uint32(1)
			for a.endpoints[number].Kind != 0 {
				number++
			}
			datasheet.Reply[datasheet.EndpointCreated](&e).Endpoint = number
			a.endpoints[number] = *datasheet.Body[datasheet.CreateEndpointBody](cmd)
		case datasheet.OpDestroyEndpoint:
			delete(a.endpoints, datasheet.Body[datasheet.EndpointBody](cmd).Endpoint)
		}
	}
	d.post(e)
}

// post writes an admin entry and raises the admin vector.
func (d *fakeDevice) post(e datasheet.AdminEntry) {
	a := &d.admin
	e.Flags = datasheet.PhaseOf(a.written, a.acqLog2)
	if d.tamper != nil {
		d.tamper(&e)
	}
	at := a.acq + uint64(a.written&(1<<a.acqLog2-1))*datasheet.AdminEntrySize
	to := datasheet.AdminEntryAt(d.memory(at, datasheet.AdminEntrySize))
	flags := e.Flags
	e.Flags = to.Flags
	*to = e
	to.Publish(flags)
	a.written++
	d.interrupt(0)
}

// event posts an asynchronous event, if there is room.
func (d *fakeDevice) event(ev datasheet.Event) {
	const lost = datasheet.AdminOffset + datasheet.RegEventsLost
	if room := uint32(1) << d.admin.acqLog2; d.admin.written-d.get(datasheet.AdminOffset+datasheet.RegACQConsumer) >= room/2 {
		d.set(lost, d.get(lost)+1)
		return
	}
	e := datasheet.AdminEntry{Kind: datasheet.EntryEvent}
	*datasheet.Reply[datasheet.Event](&e) = ev
	d.post(e)
}

// control finds the descriptor that token number i of a work queue names.
func (d *fakeDevice) control(endpoint uint32, receive bool, i uint32) *datasheet.ControlSegment {
	ep := d.admin.endpoints[endpoint]
	ring, log2 := ep.SendIOVA, ep.SendLog2
	if receive {
		ring, log2 = ep.RecvIOVA, ep.RecvLog2
	}
	t := datasheet.TokensAt(d.memory(ring+uint64(i&(1<<log2-1))*datasheet.TokenSize, datasheet.TokenSize))[0]
	r := d.admin.regions[t.Handle]
	return datasheet.ControlAt(d.memory(r.IOVA+(t.Address-r.Address), datasheet.ControlSegmentSize))
}

// complete completes the descriptor that token number i names.
func (d *fakeDevice) complete(endpoint uint32, receive bool, i, length uint32, status datasheet.Status) {
	c := d.control(endpoint, receive, i)
	c.Length = length
	c.StoreStatus(status)
}

// completion writes an entry into a completion queue, with the phase bit added.
func (d *fakeDevice) completion(cq uint32, e datasheet.Completion) {
	c := d.admin.cqs[cq]
	to := &datasheet.CompletionsAt(d.memory(c.IOVA+uint64(c.written&(1<<c.Log2-1))*datasheet.CompletionSize, datasheet.CompletionSize))[0]
	to.Endpoint, to.Index, to.Status = e.Endpoint, e.Index, e.Status
	to.Publish(e.Flags | datasheet.PhaseOf(c.written, c.Log2))
	c.written++
	d.interrupt(int(c.Vector))
}
