package mqnic_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/fakemqnic"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

func clockOf(t testing.TB) (*fakemqnic.Device, ethernet.Port, ethernet.Clock) {
	t.Helper()
	d, _, p := rings(t, ethernet.Options{})
	c := p.(ethernet.Clocked).Clock()
	if c == nil {
		t.Fatal("no clock")
	}
	return d, p, c
}

func TestClock(t *testing.T) {
	d, _, c := clockOf(t)
	reads := func(want int64) {
		t.Helper()
		if now, err := c.Read(); now != want || err != nil {
			t.Errorf("it is %d, %v, want %d", now, err, want)
		}
	}
	reads(1_700_000_000_000_000_000)
	for _, at := range []int64{0, 999_999_999, 1_000_000_000, 1<<62 + 7} { // more than 32 bits of seconds
		if err := c.Set(at); err != nil {
			t.Fatal(err)
		}
		reads(at)
	}
	if err := c.Set(1e9); err != nil {
		t.Fatal(err)
	}
	if err := c.Shift(-300 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	reads(700_000_000)
	if err := c.Shift(300*time.Millisecond + 5); err != nil {
		t.Fatal(err)
	}
	reads(1_000_000_005)
	for _, by := range []time.Duration{999_999_999, -999_999_999, 600_000_001, -600_000_001} { // more than the register's 30 bits
		if err := c.Shift(by); err != nil {
			t.Fatal(err)
		}
		reads(1_000_000_005 + max(0, int64(by)))
	}
	for ppb, want := range map[float64]uint64{0: 4 << 32, 1e6: 4<<32 + 17179869, -1e6: 4<<32 - 17179869, 1: 4<<32 + 17, 1e8: 4<<32 + 1717986918} {
		if err := c.Trim(ppb); err != nil {
			t.Fatal(err)
		}
		d.With(func() {
			if got := uint64(d.Get(fakemqnic.PHC+0x7c))<<32 | uint64(d.Get(fakemqnic.PHC+0x78)); got != want {
				t.Errorf("trimmed by %g: the period is %d, want %d", ppb, got, want)
			}
		})
	}
	if n := c.Outputs(); n != 1 {
		t.Errorf("%d outputs", n)
	}
	if err := c.Pulse(0, 5_000_000_007, 1500*time.Millisecond, time.Microsecond); err != nil {
		t.Fatal(err)
	}
	d.With(func() {
		for offset, want := range map[uint64]uint32{0x0c: 1, 0x14: 7, 0x18: 5, 0x24: 500_000_000, 0x28: 1, 0x34: 1000, 0x38: 0} {
			if got := d.Get(fakemqnic.Perout + offset); got != want {
				t.Errorf("the output's register %#x is %d, want %d", offset, got, want)
			}
		}
	})
	if err := c.Pulse(0, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	d.With(func() {
		if d.Get(fakemqnic.Perout+0x0c) != 0 {
			t.Error("the output is still on")
		}
	})
}

func TestClockRefuses(t *testing.T) {
	d, p, c := clockOf(t)
	for name, err := range map[string]error{
		"a time before 0": c.Set(-1), "a shift of a second": c.Shift(time.Second), "a shift back": c.Shift(-time.Second),
		"a rate": c.Trim(2e8), "no number": c.Trim(math.NaN()), "output -1": c.Pulse(-1, 0, 2, 1), "output 1": c.Pulse(1, 0, 2, 1),
		"no width": c.Pulse(0, 0, 2, 0), "a width of the period": c.Pulse(0, 0, 2, 2), "a period": c.Pulse(0, 0, -1, 1), "a start": c.Pulse(0, -1, 2, 1),
	} {
		if !errors.Is(err, ethernet.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A clock that goes backward, one that counts wrong, and one that is gone.
	now, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	d.With(func() { d.Time = now - 1 })
	if _, err := c.Read(); !errors.Is(err, ethernet.ErrProtocol) {
		t.Errorf("backward: %v", err)
	}
	d.With(func() { d.Time = now })
	if again, err := c.Read(); again != now || err != nil {
		t.Errorf("%d, %v", again, err)
	}
	d.With(func() {
		d.OnRead = func(offset uint64, v uint32) uint32 {
			if offset == fakemqnic.PHC+0x34 {
				v = 1e9
			}
			return v
		}
	})
	if _, err := c.Read(); !errors.Is(err, ethernet.ErrProtocol) {
		t.Errorf("10^9 ns: %v", err)
	}
	d.With(func() { d.OnRead = nil })
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(); !errors.Is(err, ethernet.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestClockPending: a clock applies nothing, or it has something to apply yet from before.
func TestClockPending(t *testing.T) {
	d, _, p := rings(t, ethernet.Options{Timeout: 20 * time.Millisecond})
	c := p.(ethernet.Clocked).Clock()
	for pending, change := range map[uint32]func() error{
		1 << 24: func() error { return c.Set(5e9) },
		1 << 25: func() error { return c.Shift(7) },
		1 << 28: func() error { return c.Trim(1000) },
	} {
		d.With(func() {
			d.OnRead = func(offset uint64, v uint32) uint32 {
				if offset == fakemqnic.PHC+0x0c {
					v |= pending
				}
				return v
			}
		})
		if err := change(); !errors.Is(err, ethernet.ErrNotReady) {
			t.Errorf("bit %#x stays set: %v", pending, err)
		}
		d.With(func() { d.OnRead = nil; d.Set(fakemqnic.PHC+0x0c, pending) })
		if err := change(); err != nil {
			t.Errorf("bit %#x was set: %v", pending, err)
		}
	}
	d.With(func() {
		if period := uint64(d.Get(fakemqnic.PHC+0x7c))<<32 | uint64(d.Get(fakemqnic.PHC+0x78)); period != 4<<32+17179 {
			t.Errorf("the period is %d", period)
		}
	})
}

// TestStamps: time stamps have 16 bits of seconds, and get the others, also around their end.
func TestStamps(t *testing.T) {
	d, p, c := clockOf(t)
	q := p.Queue(0).(ethernet.StampedQueue)
	frames, at := make([]ethernet.Frame, 32), make([]int64, 16)
	for _, base := range []int64{1e9, 65536e9 - 1, 65536e9, 3 * 65536e9, 1_700_000_000e9} {
		if err := c.Set(base); err != nil {
			t.Fatal(err)
		}
		for _, after := range []int64{0, 1, 999_999_999, 30_000e9, -1e9} {
			want := base + after
			d.With(func() { d.Time = want })
			for range 20 {
				d.Arrive(0, porttest.FrameTo(own, 60))
			}
			for _, most := range []int{16, 4} {
				n, err := q.ReceiveAt(frames, at)
				if n != most || err != nil {
					t.Fatalf("received %d, %v", n, err)
				}
				for i := range n {
					if at[i] != want {
						t.Errorf("%d after %d: stamped %d", after, base, at[i])
					}
				}
				q.Cache().Free(frames[:n])
			}
		}
	}
}
