package igb_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

func TestFilters(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{})
	porttest.Filters(t, p, func(b []byte) bool {
		arrived := d.Arrive(b)
		if frames, _ := porttest.ReceiveAll(t, p.Queue(0)); (len(frames) == 1) != arrived {
			t.Errorf("%d frames came", len(frames))
		}
		return arrived
	})
}
