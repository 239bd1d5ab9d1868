package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// eagerQueue is a ring of tokens in device memory as its host knows it.
type eagerQueue struct {
	tokens []datasheet.Token
	status []byte
}

// eagerVI makes a VI with EndpointEager whose rings are skip bytes behind a multiple of 64.
func (n *node) eagerVI(sram []byte, handle uint32, skip uint64, change func(*datasheet.CreateEndpointBody)) (v *vi, send, recv eagerQueue) {
	n.w.t.Helper()
	const size = datasheet.TokenSize << queueLog2
	sendMem, _, sendIOVA := n.alloc(size + 64)
	recvMem, _, recvIOVA := n.alloc(size + 64)
	v = &vi{n: n, handle: handle}
	v.send.tokens, v.recv.tokens = datasheet.TokensAt(sendMem[skip:][:size]), datasheet.TokensAt(recvMem[skip:][:size])
	body := datasheet.CreateEndpointBody{SendIOVA: sendIOVA + skip, RecvIOVA: recvIOVA + skip, MaxTransfer: datasheet.MaxTransfer,
		SendCQ: datasheet.NoCQ, RecvCQ: datasheet.NoCQ, SendVector: datasheet.NoVector, RecvVector: datasheet.NoVector,
		Kind: datasheet.KindVI, Reliability: datasheet.ReliableDelivery, SendLog2: queueLog2, RecvLog2: queueLog2, Options: datasheet.EndpointEager}
	if change != nil {
		change(&body)
	}
	made := *datasheet.Reply[datasheet.EndpointCreated](do(n, datasheet.OpCreateEndpoint, body))
	v.id = made.Endpoint
	at := func(blocks uint32, iova uint64) eagerQueue {
		if blocks < sramFrom || blocks%64 != 0 || made.Handle != 0 || made.Table != 0 {
			n.w.t.Fatalf("%+v", made)
		}
		e := datasheet.EagerLayout(iova, size, datasheet.EagerLog2)
		return eagerQueue{datasheet.TokensAt(sram[blocks:][e.Lead:][:size]), sram[uint64(blocks)+e.BlockBytes():][:e.Count]}
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
		blocks, reads := w.a.counted(datasheet.CounterEagerBlocks), w.a.counted(datasheet.CounterEagerReads)
		const messages = 3<<queueLog2 + 5
		// post posts d as push says: to the device's memory only, to the host's only, or to the
		// host's while the device has another token that is not good.
		post := func(q *queue, e eagerQueue, way int, kind uint64, d *descriptors.Descriptor) {
			i := q.producer % uint32(len(q.tokens))
			for b := range e.status {
				e.status[b] = datasheet.EagerValid
			}
			b := (skip + uint64(i)*datasheet.TokenSize) / 64
			switch way {
			case 0:
				e.tokens[i], q.tokens[i] = d.Token(), datasheet.Token{Address: 64, Handle: 0xdead}
			case 1:
				e.tokens[i], q.tokens[i] = datasheet.Token{Address: 64, Handle: 0xdead}, d.Token()
				e.status[b] = 0
			case 2:
				e.tokens[i], q.tokens[i] = datasheet.Token{Address: 1 << 60, Flags: ^uint32(0)}, d.Token()
				e.status[b] = datasheet.EagerValid + 1
			}
			q.producer++
			w.a.e.Doorbell(datasheet.EndpointPage(v.id)+kind, q.producer)
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
			post(&v.recv, recv, way, datasheet.DoorbellRecv, r)
			post(&v.send, send, way, datasheet.DoorbellSend, s)
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

// TestEagerTokensRefused: what has no room, no device memory, or no tokens of its own takes
// nothing; what was taken is there again once the VI is destroyed, or the device reset.
func TestEagerTokensRefused(t *testing.T) {
	w := newWorld(t)
	n := w.a
	body := datasheet.CreateEndpointBody{SendIOVA: busBase, RecvIOVA: busBase + 8192, MaxTransfer: 1 << 20,
		SendCQ: datasheet.NoCQ, RecvCQ: datasheet.NoCQ, SendVector: datasheet.NoVector, RecvVector: datasheet.NoVector,
		Kind: datasheet.KindVI, Reliability: datasheet.ReliableDelivery, SendLog2: 8, RecvLog2: 8, Options: datasheet.EndpointEager}
	refused(t, n, "no device memory", datasheet.OpCreateEndpoint, body, datasheet.ResultNotSupported)
	n.withSRAM(sramFrom + 2*4096) // one ring of 4 KiB and its status, not two
	free := n.e.FreeSRAM()
	before := n.e.Counter(datasheet.CounterEagerRefused)
	refused(t, n, "no room for the receive ring", datasheet.OpCreateEndpoint, body, datasheet.ResultResource)
	large := body
	large.SendLog2, large.RecvLog2 = 9, 9
	refused(t, n, "no room for the send ring", datasheet.OpCreateEndpoint, large, datasheet.ResultResource)
	if got := n.e.Counter(datasheet.CounterEagerRefused); got != before+2 || n.e.FreeSRAM() != free {
		t.Errorf("%d refusals were counted, %d bytes are free of %d", got-before, n.e.FreeSRAM(), free)
	}
	frame := body
	frame.Kind, frame.Reliability, frame.MaxTransfer = datasheet.KindFrame, datasheet.Unreliable, 1500
	refused(t, n, "kind Frame", datasheet.OpCreateEndpoint, frame, datasheet.ResultInvalidParameter)
	body.SendLog2, body.RecvLog2 = 4, 4
	id := datasheet.Reply[datasheet.EndpointCreated](do(n, datasheet.OpCreateEndpoint, body)).Endpoint
	taken := n.e.FreeSRAM()
	if taken >= free {
		t.Errorf("%d bytes are free of %d", taken, free)
	}
	modify := datasheet.ModifyEndpointBody{Endpoint: id, MaxTransfer: 1000, Reliability: datasheet.Unreliable}
	refused(t, n, "ordinary by MODIFY_ENDPOINT", datasheet.OpModifyEndpoint, modify, datasheet.ResultInvalidParameter)
	modify.Options = datasheet.EndpointEager
	do(n, datasheet.OpModifyEndpoint, modify)
	should.Be(t, n.e.FreeSRAM(), taken, "modified: bytes are free")
	do(n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: id})
	should.Be(t, n.e.FreeSRAM(), free, "destroyed: bytes are free")
	do(n, datasheet.OpCreateEndpoint, body)
	n.e.Reset()
	should.Be(t, n.e.FreeSRAM(), free, "reset: bytes are free")
}
