package driver_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// unanswered is a device that never answers the commands that wait for a peer,
// and knows how many of them it has.
func unanswered(d *fakeDevice) (count func(datasheet.Opcode) int) {
	d.with(func() {
		d.answer = func(c *datasheet.Command) (datasheet.Result, bool) {
			switch c.Opcode {
			case datasheet.OpConnectWait, datasheet.OpConnectAccept, datasheet.OpConnectRequest:
				return 0, false
			case datasheet.OpAbort:
				id := datasheet.Body[datasheet.AbortBody](c).ID
				for i, u := range d.admin.unanswered {
					if u.ID == id {
						d.admin.unanswered = append(d.admin.unanswered[:i], d.admin.unanswered[i+1:]...)
						d.reply(&u, datasheet.ResultAborted)
						return datasheet.ResultSuccess, true
					}
				}
				return datasheet.ResultInvalidParameter, true
			}
			return datasheet.ResultSuccess, true
		}
	})
	return func(op datasheet.Opcode) (n int) {
		d.with(func() {
			for _, u := range d.admin.unanswered {
				if u.Opcode == op {
					n++
				}
			}
		})
		return n
	}
}

// TestWaitsForPeersAreApart fills the device with each kind of command that waits
// for a peer: the other kinds still get through, and so does everything else.
func TestWaitsForPeersAreApart(t *testing.T) {
	const many = 600 // more than may be outstanding
	vi := func(t *testing.T, n *driver.NIC) *driver.VI {
		return must.Get(n.CreateVI(t.Context(), driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, SendDepth: 2, RecvDepth: 2}, nil, nil))(t)
	}
	var offers chan *driver.Connection // each can be answered once
	kinds := map[datasheet.Opcode]func(ctx context.Context, n *driver.NIC, v *driver.VI) error{
		datasheet.OpConnectWait: func(ctx context.Context, n *driver.NIC, v *driver.VI) error {
			_, err := n.ConnectWait(ctx, "x")
			return err
		},
		datasheet.OpConnectRequest: func(ctx context.Context, n *driver.NIC, v *driver.VI) error {
			_, err := v.ConnectRequest(ctx, driver.Address{Discriminator: "x"}, "")
			return err
		},
		datasheet.OpConnectAccept: func(ctx context.Context, n *driver.NIC, v *driver.VI) error {
			_, err := (<-offers).Accept(ctx, v)
			return err
		},
	}
	for full, fill := range kinds {
		t.Run(full.String(), func(t *testing.T) {
			checkLeaks(t)
			d := newFake(t)
			n := openFake(t, d)
			offers = make(chan *driver.Connection, many+2)
			for range cap(offers) {
				offer := must.Get(n.ConnectWait(t.Context(), "x"))(t)
				offers <- offer
			}
			count := unanswered(d)
			v := vi(t, n)
			ctx, cancel := context.WithCancel(t.Context())
			ends := make(chan error, many)
			for range many {
				go func() { ends <- fill(ctx, n, v) }()
			}
			waittest.Until(t, "many of them are with the device", func() bool { return count(full) >= 500 })
			for op, try := range kinds {
				if op == full {
					continue
				}
				one, stop := context.WithCancel(t.Context())
				end := make(chan error, 1)
				go func() { end <- try(one, n, v) }()
				waittest.Until(t, op.String()+" gets through", func() bool { return count(op) == 1 })
				stop()
				should.Fail(t, <-end, context.Canceled, "%v", op)
			}
			if _, err := n.CreatePtag(contextFor(t)); err != nil {
				t.Errorf("a command that waits for nobody: %v", err)
			}
			cancel()
			for range many {
				should.Fail(t, <-ends, context.Canceled, "%v", full)
			}
			should.Be(t, count(full), 0, "are left with the device")
			// The slots can be used again.
			short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			should.Fail(t, fill(short, n, v), context.DeadlineExceeded, "afterwards")
		})
	}
}

// asked is a context that says when something begins to wait for its end.
type asked struct {
	context.Context
	once  sync.Once
	waits chan struct{}
}

func (a *asked) Done() <-chan struct{} {
	a.once.Do(func() { close(a.waits) })
	return a.Context.Done()
}

// TestTurnAfterClose: a VI is closed while its ConnectRequest waits for its turn, and its number is another's then. The request
// fails, and connects nothing.
func TestTurnAfterClose(t *testing.T) {
	const most = 512 // requests that may be outstanding
	checkLeaks(t)
	d := newFake(t)
	n := openFake(t, d)
	vi := func() *driver.VI {
		return must.Get(n.CreateVI(t.Context(), driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, SendDepth: 2, RecvDepth: 2}, nil, nil))(t)
	}
	count := unanswered(d)
	full, late := vi(), vi()
	request := func(ctx context.Context, v *driver.VI) <-chan error {
		end := make(chan error, 1)
		go func() {
			_, err := v.ConnectRequest(ctx, driver.Address{Discriminator: "x"}, "")
			end <- err
		}()
		return end
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ends []<-chan error
	for range most {
		ends = append(ends, request(ctx, full))
	}
	waittest.Until(t, "all are with the device", func() bool { return count(datasheet.OpConnectRequest) == most })
	ask := &asked{Context: contextFor(t), waits: make(chan struct{})}
	end := request(ask, late)
	<-ask.waits
	must.OK(t, late.Abandon(t.Context()))
	must.Be(t, vi().Number(), late.Number(), "a number anew")
	cancel()
	for _, end := range ends {
		should.Fail(t, <-end, context.Canceled)
	}
	waittest.Until(t, "the late one had its turn", func() bool { return len(end) == 1 || count(datasheet.OpConnectRequest) > 0 })
	d.with(func() {
		for _, c := range d.admin.unanswered {
			if got := datasheet.Body[datasheet.ConnectRequestBody](&c).Endpoint; got == late.Number() {
				t.Error("it connects the VI that has the number now")
			}
		}
	})
	if len(end) == 1 {
		should.Fail(t, <-end, descriptors.ErrClosed)
	}
}
