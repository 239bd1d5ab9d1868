package driver_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestClaims: who has a descriptor, and when it is free again.
func TestClaims(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	other, err := r.n.CreateVI(contextFor(t), r.v.Attributes(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ds := r.descriptors(t, 3)
	d := ds[0]
	if err := r.v.PostSend(d); err != nil {
		t.Fatal(err)
	}
	refused := func(when string, want error, vis ...*driver.VI) {
		t.Helper()
		for _, v := range vis {
			for _, post := range []func(*descriptors.Descriptor) error{v.PostSend, v.PostRecv} {
				if err := post(d); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", when, err, want)
				}
			}
		}
	}
	refused("posted", driver.ErrPosted, r.v, other)
	r.complete(false, 0, 0, datasheet.StatusDone)
	refused("completed", driver.ErrPosted, r.v, other)
	d.Rearm()
	refused("completed and rearmed", driver.ErrPosted, r.v, other)
	r.complete(false, 0, 0, datasheet.StatusDone)
	if got, err := r.v.SendDone(); got != d || err != nil {
		t.Fatal(err)
	}
	refused("taken back", driver.ErrNotRearmed, r.v, other)
	d.Rearm()
	if err := other.PostRecv(d); err != nil {
		t.Errorf("taken back and rearmed: %v", err)
	}
	refused("posted to another VI", driver.ErrPosted, r.v, other)

	// A VI that is destroyed gives back what was posted to it.
	if err := other.Close(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	d.Rearm()
	if err := r.v.PostRecv(d); err != nil {
		t.Errorf("after the VI that had it was destroyed: %v", err)
	}

	// One that has an owner stays that VI's.
	second, err := r.n.CreateVI(contextFor(t), r.v.Attributes(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d = ds[1]
	r.v.Own(d)
	refused("another VI's", driver.ErrOtherVI, second)
	if err := r.v.PostSend(d); err != nil {
		t.Error(err)
	}
	refused("its own VI's, posted", driver.ErrPosted, r.v)
	refused("another VI's, posted", driver.ErrOtherVI, second)
	r.complete(false, 1, 0, datasheet.StatusDone)
	if _, err := r.v.SendDone(); err != nil {
		t.Fatal(err)
	}
	d.Rearm()
	refused("another VI's, taken back", driver.ErrOtherVI, second)
}
