package driver_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestCommandResults checks that each result of the device has its error.
func TestCommandResults(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	n := openFake(t, d)
	for result, want := range map[datasheet.Result]error{
		datasheet.ResultInvalidParameter: descriptors.ErrInvalidParameter, datasheet.ResultResource: descriptors.ErrResource,
		datasheet.ResultTimeout: descriptors.ErrTimeout, datasheet.ResultReject: descriptors.ErrReject,
		datasheet.ResultInvalidReliability: descriptors.ErrInvalidReliability, datasheet.ResultInvalidMTU: descriptors.ErrInvalidMTU,
		datasheet.ResultInvalidQoS: descriptors.ErrInvalidQoS, datasheet.ResultInvalidPtag: descriptors.ErrInvalidPtag,
		datasheet.ResultInvalidRDMARead: descriptors.ErrInvalidRDMARead, datasheet.ResultInvalidState: descriptors.ErrInvalidState,
		datasheet.ResultNoMatch: descriptors.ErrNoMatch, datasheet.ResultNotReachable: descriptors.ErrNotReachable,
		datasheet.ResultNotSupported: descriptors.ErrNotSupported, datasheet.ResultBadOpcode: driver.ErrBadOpcode,
		datasheet.ResultAborted: driver.ErrAborted, datasheet.ResultDMAFault: driver.ErrDMAFault,
		datasheet.ResultConnectionLost: descriptors.ErrPeerLost, datasheet.ResultWithdrawn: descriptors.ErrWithdrawn,
	} {
		d.with(func() {
			d.answer = func(*datasheet.Command) (datasheet.Result, bool) { return result, true }
		})
		_, err := n.CreatePtag(t.Context())
		if !errors.Is(err, want) {
			t.Errorf("result %d: %v, want %v", result, err, want)
		}
		var c *driver.CommandError
		if !errors.As(err, &c) || c.Opcode != datasheet.OpCreatePtag || c.Result != result {
			t.Errorf("result %d: %#v", result, c)
		}
	}
	// A result that nobody knows is an error all the same.
	d.with(func() {
		d.answer = func(*datasheet.Command) (datasheet.Result, bool) { return 999, true }
	})
	var c *driver.CommandError
	if _, err := n.CreatePtag(t.Context()); !errors.As(err, &c) || c.Result != 999 {
		t.Error(err)
	}
	d.with(func() { d.answer = nil })
	if _, err := n.CreatePtag(t.Context()); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

// TestGarbageAdminEntries has the device write what it must not: the command
// that waits fails at once with ErrProtocol, as does everything after it, and
// the NIC can be closed.
func TestGarbageAdminEntries(t *testing.T) {
	for _, c := range []struct {
		name   string
		tamper func(*datasheet.AdminEntry)
		says   string
	}{
		{"unknown kind", func(e *datasheet.AdminEntry) { e.Kind = 77 }, "kind 77"},
		{"kind zero", func(e *datasheet.AdminEntry) { e.Kind = 0 }, "kind 0"},
		{"unknown ID", func(e *datasheet.AdminEntry) { e.ID ^= 5 }, "not given"},
		{"old use of the same slot", func(e *datasheet.AdminEntry) { e.ID -= 2048 }, "not given"},
		{"reserved flags", func(e *datasheet.AdminEntry) { e.Flags |= 0x80 }, "flags"},
		{"all ones", func(e *datasheet.AdminEntry) { e.Kind, e.ID, e.Flags = 0xffff, 0xffff, 0xffffffff }, "flags"},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkLeaks(t)
			d := newFake(t)
			n := openFake(t, d)
			d.with(func() { d.tamper = c.tamper })
			_, err := n.CreatePtag(contextFor(t))
			if !errors.Is(err, driver.ErrProtocol) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want ErrProtocol with %q", err, c.says)
			}
			d.with(func() { d.tamper = nil })
			if _, err := n.CreatePtag(contextFor(t)); !errors.Is(err, driver.ErrProtocol) {
				t.Errorf("afterwards: %v", err)
			}
			if h, err := n.Health(contextFor(t)); err != nil || !h.Ready {
				t.Errorf("health afterwards: %+v, %v", h, err)
			}
		})
	}
}

// TestSpuriousReply: a second reply to a command.
func TestSpuriousReply(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	n := openFake(t, d)
	var last datasheet.AdminEntry
	d.with(func() { d.tamper = func(e *datasheet.AdminEntry) { last = *e } })
	if _, err := n.CreatePtag(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	d.with(func() {
		d.tamper = nil
		d.post(last)
	})
	waittest.Until(t, "the second reply is noticed", func() bool {
		_, err := n.CreatePtag(contextFor(t))
		return errors.Is(err, driver.ErrProtocol)
	})
}

// TestImpossibleNumbers has the device give out numbers that cannot be.
func TestImpossibleNumbers(t *testing.T) {
	create := func(ctx context.Context, n *driver.NIC) error {
		_, err := n.CreateVI(ctx, driver.VIAttributes{SendDepth: 1, RecvDepth: 1}, nil, nil)
		return err
	}
	createCQ := func(ctx context.Context, n *driver.NIC) error {
		_, err := n.CreateCQ(ctx, 4)
		return err
	}
	alloc := func(ctx context.Context, n *driver.NIC) error {
		_, err := n.AllocMemory(ctx, 4096, driver.MemoryAttributes{})
		return err
	}
	for _, c := range []struct {
		name   string
		before func(context.Context, *driver.NIC) error
		do     func(context.Context, *driver.NIC) error
		number uint32
	}{
		{"endpoint 0", nil, create, 0},
		{"endpoint that is not there", nil, create, fakeEndpoints},
		{"endpoint 2^32-1", nil, create, 0xffffffff},
		{"endpoint twice", create, create, 1},
		{"CQ that is not there", nil, createCQ, fakeCQs},
		{"CQ twice", createCQ, createCQ, 0},
		{"handle twice", alloc, alloc, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkLeaks(t)
			d := newFake(t)
			n := openFake(t, d)
			if c.before != nil {
				if err := c.before(contextFor(t), n); err != nil {
					t.Fatal(err)
				}
			}
			d.with(func() {
				d.tamper = func(e *datasheet.AdminEntry) { datasheet.Reply[datasheet.EndpointCreated](e).Endpoint = c.number }
			})
			if err := c.do(contextFor(t), n); !errors.Is(err, driver.ErrProtocol) {
				t.Error(err)
			}
		})
	}
}

// TestCommandTimeout: a device that does not answer.
func TestCommandTimeout(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	n, err := driver.New(contextFor(t), d, driver.Options{Logger: quiet, CommandTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	d.with(func() {
		d.answer = func(*datasheet.Command) (datasheet.Result, bool) { return 0, false }
	})
	_, err = n.AllocMemory(contextFor(t), 4096, driver.MemoryAttributes{})
	if !errors.Is(err, driver.ErrCommandTimeout) || !strings.Contains(err.Error(), "REGISTER_MEMORY") {
		t.Error(err)
	}
	// The device may still use the memory: it stays mapped until Close.
	d.with(func() {
		if len(d.dma) != 2 {
			t.Errorf("%d DMA mappings, want the admin rings and the memory", len(d.dma))
		}
		// The answer comes after all, when nobody waits for it.
		d.answer = nil
		for _, c := range d.admin.unanswered {
			d.reply(&c, datasheet.ResultSuccess)
		}
	})
	if _, err := n.CreatePtag(contextFor(t)); err != nil {
		t.Errorf("after a late answer: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// TestManyCommands wraps both rings more than once, from several goroutines.
func TestManyCommands(t *testing.T) {
	checkLeaks(t)
	n := openFake(t, newFake(t))
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[uint32]bool{}
	for range 4 {
		wg.Go(func() {
			for range 700 {
				p, err := n.CreatePtag(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[p] {
					t.Errorf("ptag %d was handed to two", p)
				}
				seen[p] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// pausing is a fake that must be polled. Its second poll answers what the first one, during
// which the program is not run for a while, did not.
type pausing struct {
	*fakeDevice
	polls, pauseAt int
	pause          time.Duration
}

func (p *pausing) Poll() bool {
	p.polls++
	if p.polls == p.pauseAt {
		time.Sleep(p.pause)
	} else if p.polls > p.pauseAt {
		p.with(func() {
			for _, c := range p.admin.unanswered {
				p.reply(&c, datasheet.ResultSuccess)
			}
			p.admin.unanswered = nil
		})
	}
	return false
}

// TestTimeAwayDoesNotCount: a device has its time for a command also where the program that
// waits is not run for longer.
func TestTimeAwayDoesNotCount(t *testing.T) {
	checkLeaks(t)
	const timeout = 200 * time.Millisecond
	d := &pausing{fakeDevice: newFake(t), pause: 2 * timeout}
	n, err := driver.New(contextFor(t), d, driver.Options{Logger: quiet, CommandTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	d.with(func() {
		d.answer = func(*datasheet.Command) (datasheet.Result, bool) { return 0, false }
	})
	d.pauseAt = d.polls + 1
	if _, err := n.CreatePtag(contextFor(t)); err != nil {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}
