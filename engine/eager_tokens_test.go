package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// eagerQueue is a ring of tokens in device memory as its host knows it.
type eagerQueue struct {
	tokens []descriptors.Token
	status []byte
}

// eagerVI makes a VI with EndpointEager whose rings are skip bytes behind a multiple of 64.
func (n *node) eagerVI(sram []byte, handle uint32, skip uint64, change func(*descriptors.CreateEndpointBody)) (v *vi, send, recv eagerQueue) {
	n.w.t.Helper()
	const size = descriptors.TokenSize << queueLog2
	sendMem, _, sendIOVA := n.alloc(size + 64)
	recvMem, _, recvIOVA := n.alloc(size + 64)
	v = &vi{n: n, handle: handle}
	v.send.tokens, v.recv.tokens = descriptors.TokensAt(sendMem[skip:][:size]), descriptors.TokensAt(recvMem[skip:][:size])
	body := descriptors.CreateEndpointBody{SendIOVA: sendIOVA + skip, RecvIOVA: recvIOVA + skip, MaxTransfer: descriptors.MaxTransfer,
		SendCQ: descriptors.NoCQ, RecvCQ: descriptors.NoCQ, SendVector: descriptors.NoVector, RecvVector: descriptors.NoVector,
		Kind: descriptors.KindVI, Reliability: descriptors.ReliableDelivery, SendLog2: queueLog2, RecvLog2: queueLog2, Options: descriptors.EndpointEager}
	if change != nil {
		change(&body)
	}
	made := *descriptors.Reply[descriptors.EndpointCreated](do(n, descriptors.OpCreateEndpoint, body))
	v.id = made.Endpoint
	at := func(blocks uint32, iova uint64) eagerQueue {
		if blocks < sramFrom || blocks%64 != 0 || made.Handle != 0 || made.Table != 0 {
			n.w.t.Fatalf("%+v", made)
		}
		e := descriptors.EagerLayout(iova, size, descriptors.EagerLog2)
		return eagerQueue{descriptors.TokensAt(sram[blocks:][e.Lead:][:size]), sram[uint64(blocks)+e.BlockBytes():][:e.Count]}
	}
	return v, at(made.Send, body.SendIOVA), at(made.Recv, body.RecvIOVA)
}

// TestEagerTokens: tokens are taken from device memory where their block is good, and else
// from the ring, for as many messages as have the rings wrap.
func TestEagerTokens(t *testing.T) {
	for _, skip := range []uint64{0, 16, 48} {
		w := newWorld(t)
		sram := w.a.withSRAM(1 << 20)
		v, send, recv := w.a.eagerVI(sram, w.a.memory(0, 0), skip, nil)
		p := w.b.newVI(w.b.memory(0, 0), nil)
		connect(v, p)
		blocks, reads := w.a.counted(descriptors.CounterEagerBlocks), w.a.counted(descriptors.CounterEagerReads)
		const messages = 3<<queueLog2 + 5
		// post posts d as push says: to the device's memory only, to the host's only, or to the
		// host's while the device has another token that is not good.
		post := func(q *queue, e eagerQueue, way int, kind uint64, d *descriptors.Descriptor) {
			i := q.producer % uint32(len(q.tokens))
			for b := range e.status {
				e.status[b] = descriptors.EagerValid
			}
			b := (skip + uint64(i)*descriptors.TokenSize) / 64
			switch way {
			case 0:
				e.tokens[i], q.tokens[i] = d.Token(), descriptors.Token{Address: 64, Handle: 0xdead}
			case 1:
				e.tokens[i], q.tokens[i] = descriptors.Token{Address: 64, Handle: 0xdead}, d.Token()
				e.status[b] = 0
			case 2:
				e.tokens[i], q.tokens[i] = descriptors.Token{Address: 1 << 60, Flags: ^uint32(0)}, d.Token()
				e.status[b] = descriptors.EagerValid + 1
			}
			q.producer++
			w.a.e.Doorbell(descriptors.EndpointPage(v.id)+kind, q.producer)
		}
		s, out := v.descriptor(100)
		r, in := v.descriptor(100)
		back, backOut := p.descriptor(100)
		forth, forthIn := p.descriptor(100)
		pushed, ordinary := uint64(0), uint64(0)
		for i := range messages {
			way := i % 3
			if way == 0 {
				pushed += 2
			} else {
				ordinary += 2
			}
			for _, d := range []*descriptors.Descriptor{s, r, back, forth} {
				d.Rearm()
			}
			copy(out[0], pattern(100, uint64(i)))
			copy(backOut[0], pattern(100, uint64(i)+1000))
			p.postRecv(forth)
			post(&v.recv, recv, way, descriptors.DoorbellRecv, r)
			post(&v.send, send, way, descriptors.DoorbellSend, s)
			p.postSend(back)
			w.run("two messages", func() bool {
				return s.Status().Done() && r.Status().Done() && back.Status().Done() && forth.Status().Done()
			})
			mustEqual(t, forthIn[0], pattern(100, uint64(i)))
			mustEqual(t, in[0], pattern(100, uint64(i)+1000))
		}
		if blocks() != pushed || reads() != ordinary {
			t.Errorf("%d tokens were pushed, %d not; %d blocks taken, %d read", pushed, ordinary, blocks(), reads())
		}
	}
}

// TestEagerTokensHostile: tokens that the host pushes and that name nothing end as those in
// host memory do, and the VI works on.
func TestEagerTokensHostile(t *testing.T) {
	w := newWorld(t)
	v, send, _ := w.a.eagerVI(w.a.withSRAM(1<<20), w.a.memory(0, 0), 0, unreliable)
	p := w.b.newVI(w.b.memory(0, 0), unreliable)
	connect(v, p)
	for b := range send.status {
		send.status[b] = descriptors.EagerValid // never pushed
	}
	d, _ := v.descriptor(10)
	good := d.Token()
	for i, bad := range []descriptors.Token{{}, {Address: good.Address, Handle: ^uint32(0)}, {Address: good.Address + 1, Handle: good.Handle},
		{Address: ^uint64(0) &^ 63, Handle: good.Handle}, {Address: good.Address, Handle: good.Handle, Flags: 1}} {
		blocks := w.a.counted(descriptors.CounterEagerBlocks)
		at := v.send.producer % uint32(len(send.tokens))
		send.tokens[at], v.send.tokens[at] = bad, good
		v.send.producer++
		w.a.e.Doorbell(descriptors.EndpointPage(v.id)+descriptors.DoorbellSend, v.send.producer)
		w.settle()
		q := descriptors.Reply[descriptors.EndpointReply](do(w.a, descriptors.OpQueryEndpoint, descriptors.EndpointBody{Endpoint: v.id}))
		if q.State != descriptors.StateConnected || q.SendCompleted != v.send.producer || blocks() != 1 {
			t.Errorf("token %d: %+v after %d posts, %d blocks taken", i, *q, v.send.producer, blocks())
		}
	}
	d.Rearm()
	send.tokens[v.send.producer%uint32(len(send.tokens))] = good
	v.postSend(d)
	w.run("the next message", func() bool { return d.Status().Done() })
	if d.Status().Failed() {
		t.Error(d.Status())
	}
}

// TestEagerTokensRefused: what has no room, no device memory, or no tokens of its own takes
// nothing; what was taken is there again once the VI is destroyed, or the device reset.
func TestEagerTokensRefused(t *testing.T) {
	w := newWorld(t)
	n := w.a
	body := descriptors.CreateEndpointBody{SendIOVA: busBase, RecvIOVA: busBase + 8192, MaxTransfer: 1 << 20,
		SendCQ: descriptors.NoCQ, RecvCQ: descriptors.NoCQ, SendVector: descriptors.NoVector, RecvVector: descriptors.NoVector,
		Kind: descriptors.KindVI, Reliability: descriptors.ReliableDelivery, SendLog2: 8, RecvLog2: 8, Options: descriptors.EndpointEager}
	refused(t, n, "no device memory", descriptors.OpCreateEndpoint, body, descriptors.ResultNotSupported)
	n.withSRAM(sramFrom + 2*4096) // one ring of 4 KiB and its status, not two
	free := n.e.FreeSRAM()
	before := n.e.Counter(descriptors.CounterEagerRefused)
	refused(t, n, "no room for the receive ring", descriptors.OpCreateEndpoint, body, descriptors.ResultResource)
	large := body
	large.SendLog2, large.RecvLog2 = 9, 9
	refused(t, n, "no room for the send ring", descriptors.OpCreateEndpoint, large, descriptors.ResultResource)
	if got := n.e.Counter(descriptors.CounterEagerRefused); got != before+2 || n.e.FreeSRAM() != free {
		t.Errorf("%d refusals were counted, %d bytes are free of %d", got-before, n.e.FreeSRAM(), free)
	}
	frame := body
	frame.Kind, frame.Reliability, frame.MaxTransfer = descriptors.KindFrame, descriptors.Unreliable, 1500
	refused(t, n, "kind Frame", descriptors.OpCreateEndpoint, frame, descriptors.ResultInvalidParameter)
	body.SendLog2, body.RecvLog2 = 4, 4
	id := descriptors.Reply[descriptors.EndpointCreated](do(n, descriptors.OpCreateEndpoint, body)).Endpoint
	taken := n.e.FreeSRAM()
	if taken >= free {
		t.Errorf("%d bytes are free of %d", taken, free)
	}
	modify := descriptors.ModifyEndpointBody{Endpoint: id, MaxTransfer: 1000, Reliability: descriptors.Unreliable}
	refused(t, n, "ordinary by MODIFY_ENDPOINT", descriptors.OpModifyEndpoint, modify, descriptors.ResultInvalidParameter)
	modify.Options = descriptors.EndpointEager
	do(n, descriptors.OpModifyEndpoint, modify)
	if n.e.FreeSRAM() != taken {
		t.Errorf("modified: %d bytes are free, %d were", n.e.FreeSRAM(), taken)
	}
	do(n, descriptors.OpDestroyEndpoint, descriptors.EndpointBody{Endpoint: id})
	if n.e.FreeSRAM() != free {
		t.Errorf("destroyed: %d bytes are free of %d", n.e.FreeSRAM(), free)
	}
	do(n, descriptors.OpCreateEndpoint, body)
	n.e.Reset()
	if n.e.FreeSRAM() != free {
		t.Errorf("reset: %d bytes are free of %d", n.e.FreeSRAM(), free)
	}
}
