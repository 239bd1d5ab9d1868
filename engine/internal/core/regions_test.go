package core

import (
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// bus is host memory from address 0 on; its windows are not larger than piece.
type bus struct {
	mem        []byte
	piece      uint64
	generation uint64
}

func (b *bus) Generation() uint64 { return b.generation }
func (b *bus) Window(iova, n uint64, _ bool) ([]byte, error) {
	if iova >= uint64(len(b.mem)) {
		return nil, errors.New("there is no memory")
	}
	return b.mem[iova : iova+min(n, b.piece-iova%b.piece, uint64(len(b.mem))-iova)], nil
}

func newTestRegions(piece uint64) (*Regions, *bus) {
	b := &bus{mem: make([]byte, 4*datasheet.PageSize), piece: piece}
	m := &Regions{counters: &counters{}, bus: b, Limits: DefaultLimits()}
	m.clear()
	return m, b
}

func (m *Regions) mustRegister(t *testing.T, body datasheet.RegisterMemoryBody) uint32 {
	t.Helper()
	reply, why := m.Register(&body)
	must.Be(t, why, Refusal{}, "register")
	return reply.Handle
}

func NewTestClock() (*Clock, *time.Duration) {
	now := new(time.Duration)
	c := &Clock{Read: func() time.Duration { return *now }, gap: time.Second}
	c.clear()
	return c, now
}

// TestClockLooks: the closer steps follow each other, the fewer of them look.
func TestClockLooks(t *testing.T) {
	for _, c := range []struct {
		name  string
		apart time.Duration
		looks int
	}{{"close", Closely / 2, 8}, {"far apart", Closely, 128}} {
		k, now := NewTestClock()
		looks := 0
		for range 128 {
			*now += c.apart
			if k.Step++; k.Step >= k.NextLook {
				k.Look()
				looks++
			}
			if late := *now - k.Now; late > ClockSteps*Closely {
				t.Fatalf("%s: the clock is %v late", c.name, late)
			}
		}
		if looks > c.looks+1 || looks < c.looks-3 {
			t.Errorf("%s: %d looks in 128 steps, not about %d", c.name, looks, c.looks)
		}
	}
}
