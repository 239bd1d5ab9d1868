package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestStepFor: a step for a queue ends with its first completion, and goes on with the rest when it is called
// again. A step for no queue, or another one, takes all that has come.
func TestStepFor(t *testing.T) {
	const messages = 3
	for _, tt := range []struct {
		name    string
		receive bool
		other   bool // the step is for another endpoint
		first   int  // messages that the first step completes
	}{
		{name: "receive", receive: true, first: 1},
		{name: "send", first: messages},
		{name: "another endpoint", receive: true, other: true, first: messages},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, v, p, _ := slotsPair(t, nil)
			var received []*descriptors.Descriptor
			for range messages {
				r, _ := p.descriptor(64)
				received = append(received, r)
			}
			p.postRecv(received...)
			w.settle()
			for range messages {
				s, _ := v.descriptor(64)
				v.postSend(s)
			}
			id := p.id
			if tt.other {
				id++
			}
			done := func() (n int) {
				for _, r := range received {
					if r.Status().Done() {
						n++
					}
				}
				return n
			}
			worked, completed := p.n.e.StepFor(id, tt.receive)
			if got := done(); !worked || completed != (tt.receive && !tt.other) || got != tt.first {
				t.Errorf("worked %v, completed %v, %d messages, want %d", worked, completed, got, tt.first)
			}
			for range messages {
				p.n.e.StepFor(id, tt.receive)
			}
			should.Be(t, done(), messages, "messages")
		})
	}
}

// TestStepForSend: of a send that a frame of the peer has acknowledged a step tells before it looks at the wire. It
// raises the interrupt that was asked for.
func TestStepForSend(t *testing.T) {
	const vector = 1
	w, v, p, _ := slotsPair(t, func(b *datasheet.CreateEndpointBody) { b.SendVector = vector })
	mustArrive(t, v, p, 64, 1)
	first, _ := v.descriptor(64)
	r, _ := v.descriptor(64)
	v.postRecv(r)
	in, _ := p.descriptor(64)
	p.postRecv(in)
	w.settle()
	v.postSend(first)
	v.n.e.Doorbell(datasheet.EndpointPage(v.id)+datasheet.DoorbellSendArm, datasheet.ArmWord(1)) // the first was taken
	p.n.e.StepFor(p.id, true)
	answer, _ := p.descriptor(64)
	p.postSend(answer)
	if _, received := v.n.e.StepFor(v.id, true); !received || first.Status().Done() {
		t.Fatalf("received %v, sent %v", received, first.Status())
	}
	if _, sent := v.n.e.StepFor(v.id, false); !sent || !first.Status().Done() {
		t.Errorf("sent %v, %v", sent, first.Status())
	}
	should.Be(t, v.n.irqs[vector], 1, "interrupts")
}

// TestAnswersAcknowledge: the sends of two ends that answer each other complete, if no look at the wire is ever in
// vain.
func TestAnswersAcknowledge(t *testing.T) {
	w, v, p, _ := slotsPair(t, nil)
	mustArrive(t, v, p, 64, 1)
	mustArrive(t, p, v, 64, 2)
	type end struct {
		*vi
		send, recv *descriptors.Descriptor
	}
	ends := [2]end{{vi: v}, {vi: p}}
	for i := range ends {
		e := &ends[i]
		e.send, _ = e.descriptor(64)
		e.recv, _ = e.descriptor(64)
		e.postRecv(e.recv)
	}
	w.settle()
	for n := range 1000 {
		from, to := &ends[n%2], &ends[(n+1)%2]
		if n >= 2 {
			if _, sent := from.n.e.StepFor(from.id, false); !sent {
				t.Fatalf("message %d: the one before is not acknowledged", n)
			}
		}
		renew(from.send, 64)
		from.postSend(from.send)
		if _, received := to.n.e.StepFor(to.id, true); !received {
			t.Fatalf("message %d has not arrived", n)
		}
		renew(to.recv, 64)
		to.postRecv(to.recv)
	}
}
