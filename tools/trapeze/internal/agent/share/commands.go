package share

import (
	"context"

	"github.com/trapeze-nic/trapeze/descriptors"
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

const options = descriptors.EndpointBreaks | descriptors.EndpointShares

// carry carries out a command of the client, or refuses it. mu is held.
func (p *Part) carry(cmd *descriptors.Command) {
	id := cmd.ID
	if _, known := p.admin.outstanding[id]; known {
		p.answer(id, nil, &refusal{descriptors.ResultInvalidParameter, fieldID})
		return
	}
	done, no := p.check(cmd)
	if no != nil {
		p.answer(id, nil, no)
		return
	}
	turn, waits := p.owned.turns[cmd.Opcode]
	if !waits {
		var reply *descriptors.AdminEntry
		if cmd.Opcode == descriptors.OpAbort || cmd.Opcode == descriptors.OpNop {
			reply = &descriptors.AdminEntry{}
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
		var reply *descriptors.AdminEntry
		no := &refusal{descriptors.ResultAborted, 0}
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
func (p *Part) answer(id uint16, reply *descriptors.AdminEntry, no *refusal) {
	e := &descriptors.AdminEntry{Kind: descriptors.EntryReply, ID: id}
	if no != nil {
		e.Result, e.Field = no.result, no.field
	} else {
		e.Payload = reply.Payload
	}
	p.write(e)
}

// after is called with the outcome of a command, and says what the client is told of it. mu is held.
type after func(reply *descriptors.AdminEntry, no *refusal) *refusal

// succeeded is an after that does something after a success only.
func succeeded(f func(reply *descriptors.AdminEntry)) after {
	return func(reply *descriptors.AdminEntry, no *refusal) *refusal {
		if no == nil {
			f(reply)
		}
		return no
	}
}

func bad(field uint16) *refusal  { return &refusal{descriptors.ResultInvalidParameter, field} }
func full(field uint16) *refusal { return &refusal{descriptors.ResultResource, field} }
func lacks(field uint16) *refusal {
	return &refusal{descriptors.ResultNotSupported, field}
}

// check checks that a command names nothing but what is the client's, and puts in the device's bus addresses, tags
// and vectors. mu is held.
func (p *Part) check(cmd *descriptors.Command) (after, *refusal) {
	switch cmd.Opcode {
	case descriptors.OpNop:
		return nil, nil
	case descriptors.OpCreatePtag, descriptors.OpDestroyPtag:
		return p.checkPtag(cmd)
	case descriptors.OpRegisterMemory, descriptors.OpDeregisterMemory, descriptors.OpModifyMemory:
		return p.checkMemory(cmd)
	case descriptors.OpCreateCQ, descriptors.OpDestroyCQ, descriptors.OpResizeCQ:
		return p.checkCQ(cmd)
	case descriptors.OpCreateEndpoint:
		return p.checkCreate(cmd)
	case descriptors.OpDestroyEndpoint, descriptors.OpQueryEndpoint, descriptors.OpDisconnect, descriptors.OpModifyEndpoint:
		return p.checkEndpoint(cmd)
	case descriptors.OpConnectWait, descriptors.OpConnectAccept, descriptors.OpConnectReject, descriptors.OpConnectRequest:
		return p.checkConnect(cmd)
	case descriptors.OpAbort:
		cancel, known := p.admin.outstanding[descriptors.Body[descriptors.AbortBody](cmd).ID]
		if !known {
			return nil, bad(fieldNumber)
		}
		cancel()
		return nil, nil
	case descriptors.OpSetPayload:
		return nil, lacks(0)
	}
	return nil, &refusal{descriptors.ResultBadOpcode, 0}
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
			return &refusal{descriptors.ResultInvalidPtag, field}
		}
		return nil
	}
	if !o.hasZero {
		reply, no := p.execute(context.Background(), &descriptors.Command{Opcode: descriptors.OpCreatePtag})
		if no != nil {
			return full(field)
		}
		o.zero, o.hasZero = descriptors.Reply[descriptors.PtagBody](reply).Ptag, true
	}
	*tag = o.zero
	return nil
}

// place puts in the device's bus address of size bytes of the client's memory, which h needs then.
func (p *Part) place(h *held, iova *uint64, size uint64, need vfio.DMAFlags, field uint16) *refusal {
	w := p.find(*iova, size, need)
	if *iova == 0 || w == nil {
		return &refusal{descriptors.ResultDMAFault, field}
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

func (p *Part) checkPtag(cmd *descriptors.Command) (after, *refusal) {
	tags := p.owned.ptags
	if cmd.Opcode == descriptors.OpCreatePtag {
		if len(tags) >= maxPtags-1 {
			return nil, full(0)
		}
		return succeeded(func(r *descriptors.AdminEntry) { tags[descriptors.Reply[descriptors.PtagBody](r).Ptag] = struct{}{} }), nil
	}
	tag := descriptors.Body[descriptors.PtagBody](cmd).Ptag
	if _, ok := tags[tag]; !ok {
		return nil, &refusal{descriptors.ResultInvalidPtag, fieldNumber}
	}
	return succeeded(func(*descriptors.AdminEntry) { delete(tags, tag) }), nil
}

func (p *Part) checkMemory(cmd *descriptors.Command) (after, *refusal) {
	regions := p.owned.regions
	switch cmd.Opcode {
	case descriptors.OpRegisterMemory:
		b := descriptors.Body[descriptors.RegisterMemoryBody](cmd)
		h := &held{}
		need := vfio.DMARead | vfio.DMAWrite
		if b.Access&descriptors.AccessReadOnly != 0 {
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
		return succeeded(func(r *descriptors.AdminEntry) {
			h.take()
			regions[descriptors.Reply[descriptors.RegionReply](r).Handle] = h
		}), nil
	case descriptors.OpModifyMemory:
		b := descriptors.Body[descriptors.ModifyMemoryBody](cmd)
		return nil, first(own(regions, b.Handle, fieldHandle), eager(b.Access), p.ptag(&b.Ptag, fieldRegionPtag))
	}
	handle := descriptors.Body[descriptors.MemoryBody](cmd).Handle
	return succeeded(func(*descriptors.AdminEntry) {
		regions[handle].release()
		delete(regions, handle)
	}), own(regions, handle, fieldHandle)
}

// eager refuses rights that need device memory.
func eager(a descriptors.Access) *refusal {
	if a&(descriptors.AccessEager|descriptors.AccessEagerWide) != 0 {
		return lacks(fieldAccess)
	}
	return nil
}

func (p *Part) checkCQ(cmd *descriptors.Command) (after, *refusal) {
	cqs := p.owned.cqs
	h := &held{}
	ring := func(iova, index *uint64, log2 uint8) *refusal {
		if log2 > descriptors.MaxCQLog2 {
			return bad(0)
		}
		return first(p.place(h, iova, descriptors.CompletionSize<<log2, vfio.DMARead|vfio.DMAWrite, fieldCQIOVA),
			p.place(h, index, 4, vfio.DMARead, fieldCQIndex))
	}
	switch cmd.Opcode {
	case descriptors.OpCreateCQ:
		b := descriptors.Body[descriptors.CreateCQBody](cmd)
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
		return func(r *descriptors.AdminEntry, no *refusal) *refusal {
			if no != nil {
				return no
			}
			number := descriptors.Reply[descriptors.CQBody](r).CQ
			h.take()
			cqs[number] = h
			return p.open(p.nic.id.MaxEndpoints+number, true)
		}, nil
	case descriptors.OpResizeCQ:
		b := descriptors.Body[descriptors.ResizeCQBody](cmd)
		if no := first(own(cqs, b.CQ, fieldCQNumber), ring(&b.IOVA, &b.IndexIOVA, b.Log2)); no != nil {
			return nil, no
		}
		return succeeded(func(*descriptors.AdminEntry) {
			h.take()
			cqs[b.CQ].release()
			cqs[b.CQ] = h
		}), nil
	}
	number := descriptors.Body[descriptors.CQBody](cmd).CQ
	if no := own(cqs, number, fieldNumber); no != nil {
		return nil, no
	}
	return p.closing(cqs, number, p.nic.id.MaxEndpoints+number), nil
}

// open opens the page of a new object.
func (p *Part) open(page uint32, queue bool) *refusal {
	if err := p.bells.open(p.nic, page, queue); err != nil {
		p.nic.broken(err) // a number beyond the device's own limits
		return &refusal{descriptors.ResultAborted, 0}
	}
	return nil
}

// closing closes the page of an object before the device destroys it, and gives it back if the device does not.
func (p *Part) closing(all map[uint32]*held, number, page uint32) after {
	back := p.bells.close(page)
	return func(_ *descriptors.AdminEntry, no *refusal) *refusal {
		if no != nil {
			back()
			return no
		}
		all[number].release()
		delete(all, number)
		return nil
	}
}

func (p *Part) checkCreate(cmd *descriptors.Command) (after, *refusal) {
	b := descriptors.Body[descriptors.CreateEndpointBody](cmd)
	o := &p.owned
	h := &held{kind: b.Kind}
	send, okSend := p.vector(b.SendVector)
	recv, okRecv := p.vector(b.RecvVector)
	switch {
	case b.Kind != descriptors.KindVI && b.Kind != descriptors.KindReceiveQueue:
		return nil, lacks(fieldKind)
	case b.Options&^options != 0:
		return nil, lacks(fieldOptions)
	case uint32(len(o.endpoints)) >= p.limits.VIs:
		return nil, full(0)
	case b.SendLog2 > descriptors.MaxQueueLog2 || b.RecvLog2 > descriptors.MaxQueueLog2:
		return nil, bad(0)
	case !okSend:
		return nil, bad(fieldSendVector)
	case !okRecv:
		return nil, bad(fieldRecvVector)
	}
	b.SendVector, b.RecvVector = send, recv
	no := p.place(h, &b.SendIOVA, descriptors.TokenSize<<b.SendLog2, vfio.DMARead, fieldSendIOVA)
	if b.Options&descriptors.EndpointShares == 0 {
		no = first(no, p.place(h, &b.RecvIOVA, descriptors.TokenSize<<b.RecvLog2, vfio.DMARead, fieldRecvIOVA))
	} else if b.RecvIOVA>>32 != 0 || own(o.endpoints, uint32(b.RecvIOVA), fieldRecvIOVA) != nil {
		no = first(no, bad(fieldRecvIOVA))
	}
	if b.SendCQ != descriptors.NoCQ {
		no = first(no, own(o.cqs, b.SendCQ, fieldSendCQ))
	}
	if b.RecvCQ != descriptors.NoCQ {
		no = first(no, own(o.cqs, b.RecvCQ, fieldRecvCQ))
	}
	if no == nil {
		no = p.ptag(&b.Ptag, fieldPtag)
	}
	if no != nil {
		return nil, no
	}
	return func(r *descriptors.AdminEntry, no *refusal) *refusal {
		if no != nil {
			return no
		}
		number := descriptors.Reply[descriptors.EndpointCreated](r).Endpoint
		h.take()
		o.endpoints[number] = h
		return p.open(number, false)
	}, nil
}

func (p *Part) checkEndpoint(cmd *descriptors.Command) (after, *refusal) {
	all := p.owned.endpoints
	number := descriptors.Body[descriptors.EndpointBody](cmd).Endpoint // where all four have it
	if no := own(all, number, fieldNumber); no != nil {
		return nil, no
	}
	switch cmd.Opcode {
	case descriptors.OpDestroyEndpoint:
		return p.closing(all, number, number), nil
	case descriptors.OpModifyEndpoint:
		b := descriptors.Body[descriptors.ModifyEndpointBody](cmd)
		if b.Options&^options != 0 {
			return nil, lacks(fieldOptions)
		}
		return nil, p.ptag(&b.Ptag, fieldPtag)
	}
	return nil, nil
}

func (p *Part) checkConnect(cmd *descriptors.Command) (after, *refusal) {
	o := &p.owned
	switch cmd.Opcode {
	case descriptors.OpConnectWait:
		name := descriptors.Body[descriptors.ConnectWaitBody](cmd).Local
		if int(name.Len) > len(name.Data) {
			return nil, bad(fieldName)
		}
		clear(name.Data[name.Len:])
		if !p.nic.name(name, p) {
			return nil, full(fieldName)
		}
		return succeeded(func(r *descriptors.AdminEntry) {
			for number := range o.connections {
				if len(o.connections) < maxConnections {
					break
				}
				delete(o.connections, number) // one that the client has left unanswered
			}
			o.connections[descriptors.Reply[descriptors.ConnectionReply](r).Connection] = struct{}{}
		}), nil
	case descriptors.OpConnectAccept:
		b := descriptors.Body[descriptors.ConnectAcceptBody](cmd)
		number := b.Connection
		return succeeded(func(*descriptors.AdminEntry) { delete(o.connections, number) }),
			first(own(o.connections, number, fieldNumber), own(o.endpoints, b.Endpoint, fieldAcceptTarget))
	case descriptors.OpConnectReject:
		number := descriptors.Body[descriptors.ConnectRejectBody](cmd).Connection
		return succeeded(func(*descriptors.AdminEntry) { delete(o.connections, number) }), own(o.connections, number, fieldNumber)
	}
	return nil, own(o.endpoints, descriptors.Body[descriptors.ConnectRequestBody](cmd).Endpoint, fieldNumber)
}
