package engine

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// told is what a doorbells part has reported.
type told struct {
	page uint32
	rung rung
}

func newTestDoorbells(t *testing.T, shared bool) (*doorbells, *[]told) {
	got := new([]told)
	d := newDoorbells(8, 2, func(page uint32, r rung) { *got = append(*got, told{page, r}) })
	if shared {
		bar := aligned(10 * descriptors.PageSize)
		if d.share(bar[:len(bar)-1]) || !d.share(bar) {
			t.Fatal("share: a BAR is taken when it is too small, or not when it is large enough")
		}
	}
	return &d, got
}

func (d *doorbells) store(page uint32, offset uint64, value uint32) {
	atomic.StoreUint32(d.word(uint64(page)*descriptors.PageSize+offset), value)
}

// TestTrappedDoorbells: what is stored until the next look is one report for each page,
// with the last value of each doorbell.
func TestTrappedDoorbells(t *testing.T) {
	d, got := newTestDoorbells(t, false)
	for _, offset := range []uint64{4, descriptors.DoorbellRecvArm + 4, 10 * descriptors.PageSize, 1 << 40} {
		if d.ring(offset, 1) {
			t.Errorf("there is a doorbell at %#x", offset)
		}
	}
	if d.take() {
		t.Error("something was rung")
	}
	d.ring(3*descriptors.PageSize+descriptors.DoorbellSend, 5)
	d.ring(3*descriptors.PageSize+descriptors.DoorbellSend, 6)
	d.ring(3*descriptors.PageSize+descriptors.DoorbellRecvArm, 7)
	d.ring(9*descriptors.PageSize+descriptors.DoorbellCQArm, 8)
	if !d.take() || !slices.Equal(*got, []told{{3, rung{set: rungSend | rungRecvArm, send: 6, recvArm: 7}}, {9, rung{set: rungSend, send: 8}}}) {
		t.Errorf("reported %+v", *got)
	}
	*got = nil
	d.ring(3*descriptors.PageSize+descriptors.DoorbellRecv, 1)
	d.open(3, true) // a new endpoint is not told of a store that was for the old one
	if d.take(); len(*got) != 0 {
		t.Errorf("a new page reported %+v", *got)
	}
}

// TestSharedDoorbells: producer indices are reported when they change, arm words are
// taken, and only pages that are open are looked at, with marks and without.
func TestSharedDoorbells(t *testing.T) {
	for _, marked := range []bool{false, true} {
		d, got := newTestDoorbells(t, true)
		d.store(4, descriptors.DoorbellSend, 99) // of an endpoint that has gone
		for page := range uint32(7) {
			d.open(page, true)
		}
		d.open(8, true)
		d.open(9, false)
		if marked {
			atomic.StoreUint32(d.word(descriptors.MarksOn), 1)
		}
		store := func(page uint32, offset uint64, value uint32) {
			d.store(page, offset, value)
			if marked {
				descriptors.SetMarks(d.bar, uint64(page))
			}
		}
		for range 2 {
			if d.take() {
				t.Fatalf("marks %v: %+v was there before anything was stored", marked, *got)
			}
		}
		store(4, descriptors.DoorbellSend, 2)
		store(4, descriptors.DoorbellSendArm, 3)
		store(7, descriptors.DoorbellSend, 4) // is not open
		store(8, descriptors.DoorbellCQArm, 5)
		store(9, descriptors.DoorbellCQArm, 6) // cannot be armed
		if !d.take() || !slices.Equal(*got, []told{{4, rung{set: rungSend | rungSendArm, send: 2, sendArm: 3}}, {8, rung{set: rungSend, send: 5}}}) {
			t.Errorf("marks %v: reported %+v", marked, *got)
		}
		*got = nil
		d.close(4)
		store(4, descriptors.DoorbellSend, 3)
		store(5, descriptors.DoorbellRecv, 1)
		if d.takePage(5); len(*got) != 1 {
			t.Errorf("marks %v: one page reported %+v", marked, *got)
		}
		if d.take(); len(*got) != 1 {
			t.Errorf("marks %v: reported %+v again, or of a page that was closed", marked, *got)
		}
		d.clear()
		if d.take() || len(d.mapped) != 0 || atomic.LoadUint32(d.word(descriptors.MarksOn)) != 0 {
			t.Errorf("marks %v: something is left after clear", marked)
		}
	}
}
