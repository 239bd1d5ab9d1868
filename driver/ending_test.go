package driver_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestEndings: how a connection ended is known when the first flushed descriptor is
// taken, whether the device has reported it by then or does so with the answer to a
// question, and is not made up if the device has lost the event.
func TestEndings(t *testing.T) {
	ends := []error{descriptors.ErrDisconnected, descriptors.ErrPeerLost, descriptors.ErrConnectionBroken}
	const early, late, never = 0, 1, 2
	for _, c := range []struct {
		name    string
		idle    bool // never connected
		event   int
		detail  datasheet.Result
		state   datasheet.State
		refused bool // the question is
		want    error
		asked   int
	}{
		{"reported", false, early, datasheet.ResultSuccess, 0, false, descriptors.ErrDisconnected, 0},
		{"reported late", false, late, datasheet.ResultConnectionLost, datasheet.StateError, false, descriptors.ErrPeerLost, 1},
		{"broken", false, late, datasheet.ResultDescriptor, datasheet.StateError, false, descriptors.ErrConnectionBroken, 1},
		{"an unknown result", false, early, 4711, 0, false, descriptors.ErrConnectionBroken, 0},
		{"event lost", false, never, 0, datasheet.StateError, false, descriptors.ErrConnectionBroken, 1},
		{"nobody can tell", false, never, 0, 0, true, nil, 1},
		{"somebody disconnects", false, never, 0, datasheet.StateIdle, false, nil, 2},
		{"never connected", true, early, datasheet.ResultSuccess, datasheet.StateIdle, false, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil, 0, 0)
			if !c.idle {
				if _, err := r.v.ConnectRequest(contextFor(t), driver.Address{}, ""); err != nil {
					t.Fatal(err)
				}
			}
			report := func() {
				r.d.event(datasheet.Event{Code: datasheet.EventConnectionLost, Endpoint: r.v.Number(), CQ: datasheet.NoCQ, Detail: uint32(c.detail)})
			}
			asked := 0
			r.d.with(func() {
				r.d.answer = func(cmd *datasheet.Command) (datasheet.Result, bool) {
					if cmd.Opcode != datasheet.OpQueryEndpoint {
						return datasheet.ResultSuccess, true
					}
					if asked++; c.event == late {
						report()
					}
					if c.refused {
						return datasheet.ResultInvalidParameter, true
					}
					return datasheet.ResultSuccess, true
				}
				r.d.tamper = func(e *datasheet.AdminEntry) {
					if e.Kind == datasheet.EntryReply {
						datasheet.Reply[datasheet.EndpointReply](e).State = c.state
					}
				}
			})
			if c.event == early {
				r.d.with(report)
				r.n.Poll()
			}
			if n, err := r.v.PostRecvBatch(r.descriptors(t, 2)); n != 2 || err != nil {
				t.Fatal(n, err)
			}
			for i := range uint32(2) {
				r.complete(true, i, 0, datasheet.StatusDone|datasheet.StatusFlushed)
				_, err := r.v.RecvDone()
				for _, end := range ends {
					if errors.Is(err, end) != (end == c.want) {
						t.Errorf("receive %d: %v, want %v", i, err, c.want)
					}
				}
				var s *driver.StatusError
				if !errors.As(err, &s) || s.Status&datasheet.StatusFlushed == 0 {
					t.Errorf("receive %d: %v", i, err)
				}
			}
			r.d.with(func() { r.d.tamper = nil })
			if asked != c.asked {
				t.Errorf("the device was asked %d times, want %d", asked, c.asked)
			}
		})
	}
}
