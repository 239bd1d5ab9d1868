package via_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// TestAsyncErrors: what the driver's events say in this package's words.
func TestAsyncErrors(t *testing.T) {
	nic, _ := conform.OnMemory(t, "", via.Options{})
	vi := conform.NewEnd(t, nic, conform.Setup{}).VI
	cq := must.Get(nic.CreateCQ(t.Context(), 16))(t)
	for _, c := range []struct {
		event datasheet.Event
		want  via.AsyncError
	}{
		{datasheet.Event{Code: datasheet.EventLink, CQ: datasheet.NoCQ, Detail: 1},
			via.AsyncError{Code: via.AsyncLink, Resource: via.ResourceNIC, Detail: 1}},
		{datasheet.Event{Code: datasheet.EventConnectionLost, CQ: datasheet.NoCQ, Endpoint: vi.Number()},
			via.AsyncError{Code: via.AsyncConnectionLost, Resource: via.ResourceVI, VI: vi}},
		{datasheet.Event{Code: datasheet.EventConnectionLost, CQ: datasheet.NoCQ, Endpoint: 4711, Descriptor: 128, Detail: 35},
			via.AsyncError{Code: via.AsyncConnectionLost, Resource: via.ResourceVI, Descriptor: 128, Detail: 35}},
		{datasheet.Event{Code: datasheet.EventCQOverrun, CQ: cq.Number()},
			via.AsyncError{Code: via.AsyncCQOverrun, Resource: via.ResourceCQ, CQ: cq}},
		{datasheet.Event{Code: datasheet.EventPostDescriptor, CQ: datasheet.NoCQ, Endpoint: 1 << 20, Descriptor: 64},
			via.AsyncError{Code: via.AsyncPostDescriptor, Resource: via.ResourceDescriptor, Descriptor: 64}},
		{datasheet.Event{Code: datasheet.EventCompletionProtect, CQ: datasheet.NoCQ, Endpoint: vi.Number(), Descriptor: 64, Detail: uint32(datasheet.StatusOpReceive)},
			via.AsyncError{Code: via.AsyncCompletionProtection, Resource: via.ResourceDescriptor, VI: vi, Descriptor: 64, Operation: via.OperationReceive}},
		{datasheet.Event{Code: datasheet.EventPostDescriptor, CQ: datasheet.NoCQ, Endpoint: vi.Number(), Detail: uint32(datasheet.StatusOpRDMARead)},
			via.AsyncError{Code: via.AsyncPostDescriptor, Resource: via.ResourceDescriptor, VI: vi, Operation: via.OperationRDMARead}},
		{datasheet.Event{Code: datasheet.EventReceiveQueueEmpty, CQ: datasheet.NoCQ, Endpoint: vi.Number()},
			via.AsyncError{Code: via.AsyncReceiveQueueEmpty, Resource: via.ResourceVI, VI: vi, Operation: via.OperationReceive}},
		{datasheet.Event{Code: datasheet.EventRDMAWriteProtection, CQ: datasheet.NoCQ, Endpoint: vi.Number(), Descriptor: 9, Detail: 77},
			via.AsyncError{Code: via.AsyncRDMAWriteProtection, Resource: via.ResourceVI, VI: vi, Descriptor: 9, Detail: 77, Operation: via.OperationRemoteRDMAWrite}},
		{datasheet.Event{Code: datasheet.EventRDMAWriteAbort, CQ: datasheet.NoCQ, Endpoint: vi.Number()},
			via.AsyncError{Code: via.AsyncRDMAWriteAbort, Resource: via.ResourceVI, VI: vi, Operation: via.OperationRemoteRDMAWrite}},
		{datasheet.Event{Code: datasheet.EventRDMAReadProtection, CQ: datasheet.NoCQ, Endpoint: vi.Number()},
			via.AsyncError{Code: via.AsyncRDMAReadProtection, Resource: via.ResourceVI, VI: vi, Operation: via.OperationRDMARead}},
	} {
		c.want.NIC = nic
		should.Be(t, nic.Tell(c.event), c.want, "%v", c.event.Code)
	}
}

// TestHandlerFromTheStart: a handler that is given when the NIC is opened gets what
// happens from then on.
func TestHandlerFromTheStart(t *testing.T) {
	d := newClosing(t)
	told := make(chan via.AsyncError, 8)
	nic := openDevice(t, d, via.Options{OnError: func(e via.AsyncError) { told <- e }})
	d.SetLink(false)
	nic.Poll()
	select {
	case e := <-told:
		if e.NIC != nic || e.Code != via.AsyncLink || e.Detail != 0 {
			t.Errorf("told %+v", e)
		}
	case <-time.After(conform.Timeout):
		t.Fatal("not told")
	}
}
