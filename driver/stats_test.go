package driver_test

import (
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestStatsTags: each field is a counter of the data sheet, in its order, with help and unit.
func TestStatsTags(t *testing.T) {
	s := reflect.TypeFor[driver.Stats]()
	if s.NumField() != int(datasheet.CounterCount) {
		t.Fatalf("%d fields, the device has %d counters", s.NumField(), datasheet.CounterCount)
	}
	for i := range s.NumField() {
		f := s.Field(i)
		if name := datasheet.Counter(i).String(); f.Tag.Get("json") != name {
			t.Errorf("%s has the key %q, the counter is %q", f.Name, f.Tag.Get("json"), name)
		}
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
	if err := y.v.PostRecv(y.descriptor(t, 0, 64)); err != nil {
		t.Fatal(err)
	}
	if err := x.v.PostSend(x.descriptor(t, 0, 64)); err != nil {
		t.Fatal(err)
	}
	if _, err := y.v.RecvWait(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := x.v.SendWait(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	s, err := a.Stats()
	if err != nil || s.MessagesSent != 1 || s.BytesSent < 64 || s.FramesSent == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	counters, err := a.Counters()
	if err != nil {
		t.Fatal(err)
	}
	later, err := a.Stats()
	if err != nil {
		t.Fatal(err)
	}
	before, after := reflect.ValueOf(s), reflect.ValueOf(later)
	for i := range before.NumField() {
		key := before.Type().Field(i).Tag.Get("json")
		if n := counters[key]; n < before.Field(i).Uint() || n > after.Field(i).Uint() {
			t.Errorf("%s is %d and then %d, Counters says %d in between", key, before.Field(i).Uint(), after.Field(i).Uint(), n)
		}
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if _, err := a.Stats(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("of a closed NIC: %v", err)
	}
}
