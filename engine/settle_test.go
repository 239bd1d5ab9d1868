package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestSettledAfterAnswer: a message that carries an acknowledgement is handed over
// first, and the send that it acknowledges is completed in the next round, or before
// anything that ends the connection in between.
func TestSettledAfterAnswer(t *testing.T) {
	for name, next := range map[string]func(w *world, v *vi){
		"next round": func(w *world, _ *vi) { w.a.e.Step() },
		"disconnect": func(w *world, v *vi) {
			start(w.a, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, v, p := pair(t, nil)
			w.settle()
			question, out := v.descriptor(10)
			copy(out[0], pattern(10, 1))
			answer, back := p.descriptor(20)
			copy(back[0], pattern(20, 2))
			forQuestion, _ := p.descriptor(10)
			forAnswer, in := v.descriptor(20)
			p.postRecv(forQuestion)
			v.postRecv(forAnswer)
			w.settle()
			v.postSend(question)
			w.a.e.Step()
			w.b.e.Step()
			if !forQuestion.Status().Done() {
				t.Fatal("the question has not come")
			}
			p.postSend(answer)
			w.b.e.Step()
			w.a.e.Step()
			if forAnswer.Status().Failed() || !forAnswer.Status().Done() {
				t.Fatalf("answer: %v", forAnswer.Status())
			}
			mustEqual(t, in[0], pattern(20, 2))
			if question.Status() != 0 {
				t.Fatalf("question: %v with the answer, want it later", question.Status())
			}
			next(w, v)
			if question.Status() != datasheet.StatusDone {
				t.Errorf("question: %v, want done", question.Status())
			}
		})
	}
}

// TestRefusalOfAnOldMessage: a peer that fails on a message which it has taken long
// ago does not complete others with that.
func TestRefusalOfAnOldMessage(t *testing.T) {
	x := newImpostor(t, nil)
	if sent, _, _ := message(x.p, x.v, []byte("taken")); sent.Failed() {
		t.Fatal(sent)
	}
	r, _ := x.v.descriptor(100)
	x.v.postRecv(r)
	x.w.settle()
	x.w.b.port.spoil = func([]byte) [][]byte { return nil }
	s, _ := x.p.descriptor(100)
	x.p.postSend(s)
	x.w.settle()
	b := alignedBytes(datasheet.HeaderSize)
	h := datasheet.HeaderAt(b)
	*h = x.good
	h.Type, h.PSN, h.Ack, h.Credit = datasheet.FrameDisconnect, 0, 0, 0
	h.Message, h.Immediate = 0, uint32(datasheet.ResultRemoteDescriptor)
	x.arrive(b)
	if st := s.Status(); st.Done() && !st.Failed() {
		t.Errorf("the send that was under way: %v", st)
	}
}
