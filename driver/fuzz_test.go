package driver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// FuzzAdminEntries lets the device write anything into the admin ring while
// commands of each kind are under way. Whatever they answer, nothing breaks.
func FuzzAdminEntries(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, datasheet.AdminEntrySize))
	f.Add([]byte{1, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0})
	f.Fuzz(func(t *testing.T, entries []byte) {
		d := newFake(t)
		n := must.Get(driver.New(t.Context(), d, driver.Options{Logger: quiet, CommandTimeout: 2 * time.Millisecond}))(t)
		n.OnEvent(func(datasheet.Event) {})
		d.with(func() {
			// The payload of every answer, and behind the first one raw entries.
			d.tamper = func(e *datasheet.AdminEntry) {
				for i := range min(len(e.Payload), len(entries)) {
					e.Payload[i] = uint64(entries[i]) * 0x0101010101010101
				}
			}
			for i := 0; i+datasheet.AdminEntrySize <= len(entries) && i < 64*datasheet.AdminEntrySize; i += datasheet.AdminEntrySize {
				to := d.memory(d.admin.acq+uint64(i), datasheet.AdminEntrySize)
				copy(to, entries[i:])
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		m, _ := n.Alloc(ctx, 4096, driver.MemoryAttributes{})
		c, _ := n.CreateCQ(ctx, 4)
		v, _ := n.CreateVI(ctx, driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, SendDepth: 2, RecvDepth: 2}, c, nil)
		if v != nil {
			if v.Number() == 0 || v.Number() >= fakeEndpoints {
				t.Errorf("VI %d", v.Number())
			}
			_, _ = v.Query(ctx)
			_, _ = v.ConnectRequest(ctx, driver.Address{}, "")
		}
		if r, err := n.ConnectWait(ctx, ""); err == nil && len(r.Discriminator) > datasheet.MaxDiscriminator {
			t.Errorf("discriminator of %d bytes", len(r.Discriminator))
		}
		if m != nil && v != nil {
			_ = v.PostSend(descriptor(t, m, 0, 64))
			_, _ = v.SendDone()
		}
		should.OK(t, n.Close())
	})
}

// FuzzCompletions lets the device write anything into a completion queue and
// over the descriptors. What is handed out was posted, in order, and no longer
// than posted.
func FuzzCompletions(f *testing.F) {
	f.Add([]byte{1, 0, 1, 1}, uint32(64), uint32(datasheet.StatusDone))
	f.Add([]byte{1, 0, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1}, uint32(0), uint32(datasheet.StatusDone))
	f.Add([]byte{1, 0, 1, 3}, uint32(0xffffffff), uint32(datasheet.StatusDone))
	f.Add([]byte{0, 0, 1, 1}, uint32(1), uint32(0xffffffff))
	f.Fuzz(func(t *testing.T, entries []byte, length, status uint32) {
		r := &rig{d: newFake(t)}
		r.n = must.Get(driver.New(t.Context(), r.d, driver.Options{Logger: quiet}))(t)
		defer func() {
			should.OK(t, r.n.Close())
		}()
		r.m = must.Get(r.n.Alloc(t.Context(), 16384, driver.MemoryAttributes{}))(t)
		r.sendCQ = must.Get(r.n.CreateCQ(t.Context(), 8))(t)
		r.v = must.Get(r.n.CreateVI(t.Context(), driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, SendDepth: 4, RecvDepth: 4}, r.sendCQ, r.sendCQ))(t)
		for _, d := range r.descriptors(t, 3) {
			must.OK(t, r.v.PostSend(d))
		}
		r.d.with(func() {
			// Each entry as the fuzzer says: endpoint, index, status, flags.
			ring := datasheet.CompletionsAt(r.d.memory(r.d.admin.cqs[0].IOVA, 8*datasheet.CompletionSize))
			for i := 0; i+4 <= len(entries) && i/4 < len(ring); i += 4 {
				ring[i/4].Endpoint, ring[i/4].Index, ring[i/4].Status = uint32(entries[i]), uint32(entries[i+1]), uint32(entries[i+2])
				ring[i/4].Publish(uint32(entries[i+3]))
			}
			for i := range uint32(3) {
				r.d.complete(1, false, i, length, datasheet.Status(status))
			}
		})
		for i := uint32(0); ; i++ {
			e, err := r.sendCQ.Done()
			if err != nil {
				break
			}
			if e.VI != r.v || e.Index != i || i >= 3 || e.Queue != driver.SendQueue {
				t.Fatalf("entry %d: %+v", i, e)
			}
		}
		for range 3 {
			d, err := r.v.SendDone()
			if err == nil && (d == nil || d.Length() > 64 || d.Status()&datasheet.StatusReserved != 0) {
				t.Fatalf("handed out as sound: %d bytes, %v", d.Length(), d.Status())
			}
			if d == nil && !errors.Is(err, descriptors.ErrNotDone) {
				t.Fatal(err)
			}
		}
	})
}
