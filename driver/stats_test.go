package driver_test

import (
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/statstest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestStatsTags: each field is a counter of the data sheet, in its order, with help and unit.
func TestStatsTags(t *testing.T) {
	s := reflect.TypeFor[driver.Stats]()
	must.Be(t, s.NumField(), int(datasheet.CounterCount), "fields, the device has %d counters", datasheet.CounterCount)
	for i := range s.NumField() {
		f := s.Field(i)
		should.Be(t, f.Tag.Get("json"), datasheet.Counter(i).String(), "%s has the key, the counter", f.Name)
		if help := f.Tag.Get("help"); !strings.HasSuffix(help, ".") || f.Tag.Get("unit") == "" {
			t.Errorf("%s: help %q, unit %q", f.Name, help, f.Tag.Get("unit"))
		}
	}
}

// TestStats: the fields have what Counters says under their keys, once messages have gone.
func TestStats(t *testing.T) {
	checkLeaks(t)
	_, _, a, b := newPair(t, emulator.PairOptions{})
	x, y := connected(t, a, b, layout{})
	must.OK(t, y.v.PostRecv(y.descriptor(t, 0, 64)))
	must.OK(t, x.v.PostSend(x.descriptor(t, 0, 64)))
	must.Get(y.v.RecvWait(contextFor(t)))(t)
	must.Get(x.v.SendWait(contextFor(t)))(t)
	s, err := a.Stats()
	if err != nil || s.MessagesSent != 1 || s.BytesSent < 64 || s.FramesSent == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	counters := must.Get(a.Counters())(t)
	later := must.Get(a.Stats())(t)
	before, after := reflect.ValueOf(s), reflect.ValueOf(later)
	for i := range before.NumField() {
		key := before.Type().Field(i).Tag.Get("json")
		if n := counters[key]; n < before.Field(i).Uint() || n > after.Field(i).Uint() {
			t.Errorf("%s is %d and then %d, Counters says %d in between", key, before.Field(i).Uint(), after.Field(i).Uint(), n)
		}
	}
	should.OK(t, errors.Join(a.Close(), b.Close()))
	should.Refuse(a.Stats())(t, net.ErrClosed, "of a closed NIC")
}

func TestQueueStatsTags(t *testing.T) { statstest.Check(t, driver.VIStats{}, driver.CQStats{}) }

// TestVIStats: what is posted, taken back and failed counts; what waits has not completed.
func TestVIStats(t *testing.T) {
	checkLeaks(t)
	_, _, a, b := newPair(t, emulator.PairOptions{})
	x, y := connected(t, a, b, layout{})
	for range 3 {
		deliver(t, x, y, []byte("counted"))
	}
	must.OK(t, y.v.PostRecv(y.descriptor(t, 1, 64)))
	s, err := x.v.Stats()
	if want := (driver.VIStats{SendsPosted: 3, SendsCompleted: 3}); s != want || err != nil {
		t.Errorf("sender: %+v, %v, want %+v", s, err, want)
	}
	s, err = y.v.Stats()
	if want := (driver.VIStats{ReceivesPosted: 4, ReceivesCompleted: 3}); s != want || err != nil {
		t.Errorf("receiver: %+v, %v, want %+v", s, err, want)
	}
	must.OK(t, y.v.Disconnect(contextFor(t)))
	should.Refuse(y.v.RecvWait(contextFor(t)))(t, descriptors.ErrDescriptor, "a receive that Disconnect has flushed")
	s, err = y.v.Stats()
	if want := (driver.VIStats{ReceivesPosted: 4, ReceivesCompleted: 4, ReceivesFailed: 1}); s != want || err != nil {
		t.Errorf("flushed: %+v, %v, want %+v", s, err, want)
	}
	must.OK(t, y.v.Close(contextFor(t)))
	should.Refuse(y.v.Stats())(t, net.ErrClosed, "of a closed VI")
	should.OK(t, errors.Join(a.Close(), b.Close()))
	should.Refuse(x.v.Stats())(t, net.ErrClosed, "of a closed NIC")
}
