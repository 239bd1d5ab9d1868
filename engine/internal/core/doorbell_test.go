package core

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// told is what a doorbells part has reported.
type told struct {
	page  uint32
	bell  Bell
	value uint32
}

func newTestDoorbells(t *testing.T, shared bool) (*doorbells, *[]told) {
	got := new([]told)
	d := newDoorbells(8, 2, func(page uint32, b Bell, value uint32) { *got = append(*got, told{page, b, value}) })
	if shared {
		bar := Aligned(10 * datasheet.PageSize)
		if d.Share(bar[:len(bar)-1]) || !d.Share(bar) {
			t.Fatal("share: a BAR is taken when it is too small, or not when it is large enough")
		}
	}
	return &d, got
}

func (d *doorbells) store(page uint32, offset uint64, value uint32) {
	atomic.StoreUint32(d.word(uint64(page)*datasheet.PageSize+offset), value)
}

// ringAt takes a store at an offset in BAR2, and reports whether there is a doorbell.
func (d *doorbells) ringAt(offset uint64, value uint32) bool {
	page, b, ok := d.Find(offset)
	if ok {
		d.Ring(page, b, value)
	}
	return ok
}

// TestTrappedDoorbells: the last value of each doorbell that was stored to since the last
// look is reported once, in the order in which pages were stored to first.
func TestTrappedDoorbells(t *testing.T) {
	d, got := newTestDoorbells(t, false)
	for _, offset := range []uint64{4, datasheet.DoorbellRecvArm + 4, 10 * datasheet.PageSize, 1 << 40} {
		if d.ringAt(offset, 1) {
			t.Errorf("there is a doorbell at %#x", offset)
		}
	}
	for range 2 {
		if *got = nil; d.Take() {
			t.Error("something was rung")
		}
		d.ringAt(9*datasheet.PageSize+datasheet.DoorbellCQArm, 8)
		d.ringAt(3*datasheet.PageSize+datasheet.DoorbellSend, 5)
		d.ringAt(3*datasheet.PageSize+datasheet.DoorbellSend, 6)
		d.ringAt(5*datasheet.PageSize+datasheet.DoorbellRecv, 4)
		d.ringAt(3*datasheet.PageSize+datasheet.DoorbellRecvArm, 7)
		if !d.Take() || !slices.Equal(*got, []told{{9, BellSend, 8}, {3, BellSend, 6}, {3, bellRecvArm, 7}, {5, BellRecv, 4}}) {
			t.Errorf("reported %+v", *got)
		}
	}
	*got = nil
	d.ringAt(3*datasheet.PageSize+datasheet.DoorbellRecv, 1)
	d.ringAt(4*datasheet.PageSize+datasheet.DoorbellRecv, 2)
	if d.TakePage(4); !slices.Equal(*got, []told{{4, BellRecv, 2}}) {
		t.Errorf("one page reported %+v", *got)
	}
	*got = nil
	d.Open(3, BellSend, true) // a new endpoint is not told of a store that was for the old one
	if d.Take() || len(*got) != 0 {
		t.Errorf("a new page reported %+v", *got)
	}
	d.ringAt(3*datasheet.PageSize+datasheet.DoorbellRecv, 2)
	if d.clear(); d.Take() || len(*got) != 0 {
		t.Errorf("reported %+v after clear", *got)
	}
	d.ringAt(3*datasheet.PageSize+datasheet.DoorbellRecv, 3)
	if !d.Take() || len(*got) != 1 {
		t.Errorf("reported %+v of a page that was linked when everything was cleared", *got)
	}
}

// TestTrappedDoorbellsAtOnce: of several goroutines that store to the same pages while
// another one looks, none has its last store lost.
func TestTrappedDoorbellsAtOnce(t *testing.T) {
	const pages, last = 10, 20_000
	seen := map[uint32][bellRecvArm + 1]uint32{}
	d := newDoorbells(8, 2, func(page uint32, b Bell, value uint32) {
		s := seen[page]
		if s[b] > value {
			t.Errorf("page %d, doorbell %d: %d after %d", page, b, value, s[b])
		}
		s[b] = value
		seen[page] = s
	})
	var hosts sync.WaitGroup
	for b := range bellRecvArm + 1 {
		hosts.Go(func() {
			for i := uint32(1); i <= last; i++ {
				for page := range uint32(pages) {
					d.Ring(page, b, i)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { hosts.Wait(); close(done) }()
	for over := false; !over; d.Take() {
		select {
		case <-done:
			over = true
		default:
		}
	}
	for page := range uint32(pages) {
		if want := [...]uint32{last, last, last, last}; seen[page] != want {
			t.Errorf("page %d: %v in the end, want %v", page, seen[page], want)
		}
	}
}

// TestSharedDoorbells: producer indices are reported when they change, arm words are
// taken, and only pages that are open are looked at: few of them at each look, others if they are marked.
func TestSharedDoorbells(t *testing.T) {
	for _, marked := range []bool{false, true} {
		d, got := newTestDoorbells(t, true)
		d.store(4, datasheet.DoorbellSend, 99) // of an endpoint that has gone
		for page := range uint32(7) {
			if marked || page == 4 || page == 5 {
				d.Open(page, BellSend, true)
			}
		}
		d.Open(8, BellSend, true)
		d.Open(9, BellSend, false)
		store := func(page uint32, offset uint64, value uint32) {
			d.store(page, offset, value)
			if marked {
				datasheet.SetMarks(d.Bar, uint64(page))
			}
		}
		for range 2 {
			if d.Take() {
				t.Fatalf("marks %v: %+v was there before anything was stored", marked, *got)
			}
		}
		store(4, datasheet.DoorbellSend, 2)
		store(4, datasheet.DoorbellSendArm, 3)
		store(7, datasheet.DoorbellSend, 4) // is not open
		store(8, datasheet.DoorbellCQArm, 5)
		store(9, datasheet.DoorbellCQArm, 6) // cannot be armed
		if !d.Take() || !slices.Equal(*got, []told{{4, BellSend, 2}, {4, BellSendArm, 3}, {8, BellSend, 5}}) {
			t.Errorf("marks %v: reported %+v", marked, *got)
		}
		*got = nil
		d.Close(4)
		store(4, datasheet.DoorbellSend, 3)
		store(5, datasheet.DoorbellRecv, 1)
		if d.TakePage(5); len(*got) != 1 {
			t.Errorf("marks %v: one page reported %+v", marked, *got)
		}
		if d.Take(); len(*got) != 1 {
			t.Errorf("marks %v: reported %+v again, or of a page that was closed", marked, *got)
		}
		d.clear()
		if d.Take() || len(d.Mapped) != 0 {
			t.Errorf("marks %v: something is left after clear", marked)
		}
	}
}
