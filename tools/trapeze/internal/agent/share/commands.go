package share

import (
	"context"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Offsets of fields in commands, for refusals: 8 more than in the layouts of SPEC 7.3.
const (
	fieldID           = 2
	fieldHandle       = 8 // of DEREGISTER_MEMORY, MODIFY_MEMORY
	fieldNumber       = 8 // of commands that begin with an endpoint, CQ, connection or tag
	fieldName         = 12
	fieldRegionIOVA   = 24
	fieldRegionPtag   = 32
	fieldAccess       = 36
	fieldCQIOVA       = 8
	fieldCQIndex      = 16
	fieldCQVector     = 24
	fieldCQNumber     = 24 // of RESIZE_CQ
	fieldSendIOVA     = 8
	fieldRecvIOVA     = 16
	fieldPtag         = 24
	fieldSendCQ       = 32
	fieldRecvCQ       = 36
	fieldSendVector   = 40
	fieldRecvVector   = 42
	fieldKind         = 44
	fieldOptions      = 52
	fieldAcceptTarget = 12
)

const options = datasheet.EndpointBreaks | datasheet.EndpointShares

// carry carries out a command of the client, or refuses it. mu is held.
func (p *Part) carry(cmd *datasheet.Command) {
	id := cmd.ID
	if _, known := p.admin.outstanding[id]; known {
		p.answer(id, nil, &refusal{datasheet.ResultInvalidParameter, fieldID})
		return
	}
	done, no := p.check(cmd)
	if no != nil {
		p.answer(id, nil, no)
		return
	}
	turn, waits := p.owned.turns[cmd.Opcode]
	if !waits {
		var reply *datasheet.AdminEntry
		if cmd.Opcode == datasheet.OpAbort || cmd.Opcode == datasheet.OpNop {
			reply = &datasheet.AdminEntry{}
		} else {
			reply, no = p.execute(context.Background(), cmd)
		}
		if done != nil {
			no = done(reply, no)
		}
		p.answer(id, reply, no)
		return
	}
	ctx, cancel := context.WithCancel(p.life)
	p.admin.outstanding[id] = cancel
	waiting := *cmd
	p.work.Go(func() {
		var reply *datasheet.AdminEntry
		no := &refusal{datasheet.ResultAborted, 0}
		select {
		case turn <- struct{}{}:
			reply, no = p.execute(ctx, &waiting)
			<-turn
		case <-ctx.Done():
		}
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		if done != nil {
			no = done(reply, no)
		}
		delete(p.admin.outstanding, id)
		p.answer(id, reply, no)
		p.fetch() // there may be room for more now
	})
}

// answer replies to a command. mu is held.
func (p *Part) answer(id uint16, reply *datasheet.AdminEntry, no *refusal) {
	e := &datasheet.AdminEntry{Kind: datasheet.EntryReply, ID: id}
	if no != nil {
		e.Result, e.Field = no.result, no.field
	} else {
		e.Payload = reply.Payload
	}
	p.write(e)
}

// after is called with the outcome of a command, and says what the client is told of it. mu is held.
type after func(reply *datasheet.AdminEntry, no *refusal) *refusal

// succeeded is an after that does something after a success only.
func succeeded(f func(reply *datasheet.AdminEntry)) after {
	return func(reply *datasheet.AdminEntry, no *refusal) *refusal {
		if no == nil {
			f(reply)
		}
		return no
	}
}

func bad(field uint16) *refusal  { return &refusal{datasheet.ResultInvalidParameter, field} }
func full(field uint16) *refusal { return &refusal{datasheet.ResultResource, field} }
func lacks(field uint16) *refusal {
	return &refusal{datasheet.ResultNotSupported, field}
}

// check checks that a command names nothing but what is the client's, and puts in the device's bus addresses, tags
// and vectors. mu is held.
func (p *Part) check(cmd *datasheet.Command) (after, *refusal) {
	switch cmd.Opcode {
	case datasheet.OpNop:
		return nil, nil
	case datasheet.OpCreatePtag, datasheet.OpDestroyPtag:
		return p.checkPtag(cmd)
	case datasheet.OpRegisterMemory, datasheet.OpDeregisterMemory, datasheet.OpModifyMemory:
		return p.checkMemory(cmd)
	case datasheet.OpCreateCQ, datasheet.OpDestroyCQ, datasheet.OpResizeCQ:
		return p.checkCQ(cmd)
	case datasheet.OpCreateEndpoint:
		return p.checkCreate(cmd)
	case datasheet.OpDestroyEndpoint, datasheet.OpQueryEndpoint, datasheet.OpDisconnect, datasheet.OpModifyEndpoint:
		return p.checkEndpoint(cmd)
	case datasheet.OpConnectWait, datasheet.OpConnectAccept, datasheet.OpConnectReject, datasheet.OpConnectRequest:
		return p.checkConnect(cmd)
	case datasheet.OpAbort:
		cancel, known := p.admin.outstanding[datasheet.Body[datasheet.AbortBody](cmd).ID]
		if !known {
			return nil, bad(fieldNumber)
		}
		cancel()
		return nil, nil
	case datasheet.OpSetPayload:
		return nil, lacks(0)
	}
	return nil, &refusal{datasheet.ResultBadOpcode, 0}
}

// own says whether a number is one of the client's objects.
func own[T any](all map[uint32]T, number uint32, field uint16) *refusal {
	if _, ok := all[number]; !ok {
		return bad(field)
	}
	return nil
}

// ptag puts in the device's tag.
func (p *Part) ptag(tag *uint32, field uint16) *refusal {
	o := &p.owned
	if *tag != 0 {
		if _, ok := o.ptags[*tag]; !ok {
			return &refusal{datasheet.ResultInvalidPtag, field}
		}
		return nil
	}
	if !o.hasZero {
		reply, no := p.execute(context.Background(), &datasheet.Command{Opcode: datasheet.OpCreatePtag})
		if no != nil {
			return full(field)
		}
		o.zero, o.hasZero = datasheet.Reply[datasheet.PtagBody](reply).Ptag, true
	}
	*tag = o.zero
	return nil
}

// place puts in the device's bus address of size bytes of the client's memory, which h needs then.
func (p *Part) place(h *held, iova *uint64, size uint64, need vfio.DMAFlags, field uint16) *refusal {
	w := p.find(*iova, size, need)
	if *iova == 0 || w == nil {
		return &refusal{datasheet.ResultDMAFault, field}
	}
	*iova = w.device + (*iova - w.iova)
	h.windows = append(h.windows, w)
	return nil
}

// first returns the first refusal, nil if there is none.
func first(all ...*refusal) *refusal {
	for _, no := range all {
		if no != nil {
			return no
		}
	}
	return nil
}

func (p *Part) checkPtag(cmd *datasheet.Command) (after, *refusal) {
	tags := p.owned.ptags
	if cmd.Opcode == datasheet.OpCreatePtag {
		if len(tags) >= maxPtags-1 {
			return nil, full(0)
		}
		return succeeded(func(r *datasheet.AdminEntry) { tags[datasheet.Reply[datasheet.PtagBody](r).Ptag] = struct{}{} }), nil
	}
	tag := datasheet.Body[datasheet.PtagBody](cmd).Ptag
	if _, ok := tags[tag]; !ok {
		return nil, &refusal{datasheet.ResultInvalidPtag, fieldNumber}
	}
	return succeeded(func(*datasheet.AdminEntry) { delete(tags, tag) }), nil
}

func (p *Part) checkMemory(cmd *datasheet.Command) (after, *refusal) {
	regions := p.owned.regions
	switch cmd.Opcode {
	case datasheet.OpRegisterMemory:
		b := datasheet.Body[datasheet.RegisterMemoryBody](cmd)
		h := &held{}
		need := vfio.DMARead | vfio.DMAWrite
		if b.Access&datasheet.AccessReadOnly != 0 {
			need = vfio.DMARead
		}
		no := eager(b.Access)
		if no == nil && len(regions) >= maxRegions-1 {
			no = full(0)
		}
		if no = first(no, p.place(h, &b.IOVA, max(1, b.Length), need, fieldRegionIOVA)); no == nil {
			no = p.ptag(&b.Ptag, fieldRegionPtag)
		}
		if no != nil {
			return nil, no
		}
		return succeeded(func(r *datasheet.AdminEntry) {
			h.take()
			regions[datasheet.Reply[datasheet.RegionReply](r).Handle] = h
		}), nil
	case datasheet.OpModifyMemory:
		b := datasheet.Body[datasheet.ModifyMemoryBody](cmd)
		return nil, first(own(regions, b.Handle, fieldHandle), eager(b.Access), p.ptag(&b.Ptag, fieldRegionPtag))
	}
	handle := datasheet.Body[datasheet.MemoryBody](cmd).Handle
	return succeeded(func(*datasheet.AdminEntry) {
		regions[handle].release()
		delete(regions, handle)
	}), own(regions, handle, fieldHandle)
}

// eager refuses rights that need device memory.
func eager(a datasheet.Access) *refusal {
	if a&(datasheet.AccessEager|datasheet.AccessEagerWide) != 0 {
		return lacks(fieldAccess)
	}
	return nil
}

func (p *Part) checkCQ(cmd *datasheet.Command) (after, *refusal) {
	cqs := p.owned.cqs
	h := &held{}
	ring := func(iova, index *uint64, log2 uint8) *refusal {
		if log2 > datasheet.MaxCQLog2 {
			return bad(0)
		}
		return first(p.place(h, iova, datasheet.CompletionSize<<log2, vfio.DMARead|vfio.DMAWrite, fieldCQIOVA),
			p.place(h, index, 4, vfio.DMARead, fieldCQIndex))
	}
	switch cmd.Opcode {
	case datasheet.OpCreateCQ:
		b := datasheet.Body[datasheet.CreateCQBody](cmd)
		v, ok := p.vector(b.Vector)
		switch {
		case uint32(len(cqs)) >= 2*p.limits.VIs+2:
			return nil, full(0)
		case !ok:
			return nil, bad(fieldCQVector)
		}
		b.Vector = v
		if no := ring(&b.IOVA, &b.IndexIOVA, b.Log2); no != nil {
			return nil, no
		}
		return func(r *datasheet.AdminEntry, no *refusal) *refusal {
			if no != nil {
				return no
			}
			number := datasheet.Reply[datasheet.CQBody](r).CQ
			h.take()
			cqs[number] = h
			return p.open(p.nic.id.MaxEndpoints+number, true)
		}, nil
	case datasheet.OpResizeCQ:
		b := datasheet.Body[datasheet.ResizeCQBody](cmd)
		if no := first(own(cqs, b.CQ, fieldCQNumber), ring(&b.IOVA, &b.IndexIOVA, b.Log2)); no != nil {
			return nil, no
		}
		return succeeded(func(*datasheet.AdminEntry) {
			h.take()
			cqs[b.CQ].release()
			cqs[b.CQ] = h
		}), nil
	}
	number := datasheet.Body[datasheet.CQBody](cmd).CQ
	if no := own(cqs, number, fieldNumber); no != nil {
		return nil, no
	}
	return p.closing(cqs, number, p.nic.id.MaxEndpoints+number), nil
}

// open opens the page of a new object.
func (p *Part) open(page uint32, queue bool) *refusal {
	if err := p.bells.open(p.nic, page, queue); err != nil {
		p.nic.broken(err) // a number beyond the device's own limits
		return &refusal{datasheet.ResultAborted, 0}
	}
	return nil
}

// closing closes the page of an object before the device destroys it, and gives it back if the device does not.
func (p *Part) closing(all map[uint32]*held, number, page uint32) after {
	back := p.bells.close(page)
	return func(_ *datasheet.AdminEntry, no *refusal) *refusal {
		if no != nil {
			back()
			return no
		}
		all[number].release()
		delete(all, number)
		return nil
	}
}

func (p *Part) checkCreate(cmd *datasheet.Command) (after, *refusal) {
	b := datasheet.Body[datasheet.CreateEndpointBody](cmd)
	o := &p.owned
	h := &held{kind: b.Kind}
	send, okSend := p.vector(b.SendVector)
	recv, okRecv := p.vector(b.RecvVector)
	switch {
	case b.Kind != datasheet.KindVI && b.Kind != datasheet.KindReceiveQueue:
		return nil, lacks(fieldKind)
	case b.Options&^options != 0:
		return nil, lacks(fieldOptions)
	case uint32(len(o.endpoints)) >= p.limits.VIs:
		return nil, full(0)
	case b.SendLog2 > datasheet.MaxQueueLog2 || b.RecvLog2 > datasheet.MaxQueueLog2:
		return nil, bad(0)
	case !okSend:
		return nil, bad(fieldSendVector)
	case !okRecv:
		return nil, bad(fieldRecvVector)
	}
	b.SendVector, b.RecvVector = send, recv
	no := p.place(h, &b.SendIOVA, datasheet.TokenSize<<b.SendLog2, vfio.DMARead, fieldSendIOVA)
	if b.Options&datasheet.EndpointShares == 0 {
		no = first(no, p.place(h, &b.RecvIOVA, datasheet.TokenSize<<b.RecvLog2, vfio.DMARead, fieldRecvIOVA))
	} else if b.RecvIOVA>>32 != 0 || own(o.endpoints, uint32(b.RecvIOVA), fieldRecvIOVA) != nil {
		no = first(no, bad(fieldRecvIOVA))
	}
	if b.SendCQ != datasheet.NoCQ {
		no = first(no, own(o.cqs, b.SendCQ, fieldSendCQ))
	}
	if b.RecvCQ != datasheet.NoCQ {
		no = first(no, own(o.cqs, b.RecvCQ, fieldRecvCQ))
	}
	if no == nil {
		no = p.ptag(&b.Ptag, fieldPtag)
	}
	if no != nil {
		return nil, no
	}
	return func(r *datasheet.AdminEntry, no *refusal) *refusal {
		if no != nil {
			return no
		}
		number := datasheet.Reply[datasheet.EndpointCreated](r).Endpoint
		h.take()
		o.endpoints[number] = h
		return p.open(number, false)
	}, nil
}

func (p *Part) checkEndpoint(cmd *datasheet.Command) (after, *refusal) {
	all := p.owned.endpoints
	number := datasheet.Body[datasheet.EndpointBody](cmd).Endpoint // where all four have it
	if no := own(all, number, fieldNumber); no != nil {
		return nil, no
	}
	switch cmd.Opcode {
	case datasheet.OpDestroyEndpoint:
		return p.closing(all, number, number), nil
	case datasheet.OpModifyEndpoint:
		b := datasheet.Body[datasheet.ModifyEndpointBody](cmd)
		if b.Options&^options != 0 {
			return nil, lacks(fieldOptions)
		}
		return nil, p.ptag(&b.Ptag, fieldPtag)
	}
	return nil, nil
}

func (p *Part) checkConnect(cmd *datasheet.Command) (after, *refusal) {
	o := &p.owned
	switch cmd.Opcode {
	case datasheet.OpConnectWait:
		name := datasheet.Body[datasheet.ConnectWaitBody](cmd).Local
		if int(name.Len) > len(name.Data) {
			return nil, bad(fieldName)
		}
		clear(name.Data[name.Len:])
		if !p.nic.name(name, p) {
			return nil, full(fieldName)
		}
		return succeeded(func(r *datasheet.AdminEntry) {
			for number := range o.connections {
				if len(o.connections) < maxConnections {
					break
				}
				delete(o.connections, number) // one that the client has left unanswered
			}
			o.connections[datasheet.Reply[datasheet.ConnectionReply](r).Connection] = struct{}{}
		}), nil
	case datasheet.OpConnectAccept:
		b := datasheet.Body[datasheet.ConnectAcceptBody](cmd)
		number := b.Connection
		return succeeded(func(*datasheet.AdminEntry) { delete(o.connections, number) }),
			first(own(o.connections, number, fieldNumber), own(o.endpoints, b.Endpoint, fieldAcceptTarget))
	case datasheet.OpConnectReject:
		number := datasheet.Body[datasheet.ConnectRejectBody](cmd).Connection
		return succeeded(func(*datasheet.AdminEntry) { delete(o.connections, number) }), own(o.connections, number, fieldNumber)
	}
	return nil, own(o.endpoints, datasheet.Body[datasheet.ConnectRequestBody](cmd).Endpoint, fieldNumber)
}
