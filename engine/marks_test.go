package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// marked is an engine with many endpoints whose host marks its doorbells.
type marked struct {
	*world
	bar []byte
	vis []*vi
}

func newMarked(t *testing.T, count int) *marked {
	m := &marked{world: newWorld(t, memory(roomy))}
	limits := m.a.e.Limits
	m.bar = alignedBytes(int(limits.Endpoints+limits.CQs) * datasheet.PageSize)
	must.Be(t, m.a.e.MapDoorbells(m.bar), true, "a good BAR was refused")
	if m.a.e.Features()&datasheet.FeatureDoorbellMarks == 0 {
		t.Error("the engine looks for doorbells in memory and wants no marks")
	}
	h := m.a.memory(0, 0)
	for range count {
		m.vis = append(m.vis, m.a.newVI(h, func(b *datasheet.CreateEndpointBody) { b.RecvVector = 4 }))
	}
	return m
}

func (m *marked) at(offset uint64) *uint32 { return datasheet.IndexAt(m.bar[offset:]) }

// arm asks for an interrupt and reports whether one step has seen that.
func (m *marked) arm(v *vi, mark bool) bool {
	bell := m.at(datasheet.EndpointPage(v.id) + datasheet.DoorbellRecvArm)
	datasheet.StoreIndex(bell, datasheet.ArmWord(0))
	if mark {
		datasheet.SetMarks(m.bar, uint64(v.id))
	}
	m.a.e.Step()
	return *bell == 0
}

// TestMarks: the next step finds a marked doorbell, however many pages there are,
// and only looks where there is a mark. A reset clears those that are left.
func TestMarks(t *testing.T) {
	m := newMarked(t, 300)
	for i, v := range m.vis {
		must.Be(t, m.arm(v, true), true, "doorbell of VI %d is not seen", i)
	}
	last := m.vis[len(m.vis)-1]
	should.Be(t, m.arm(last, false), false, "a doorbell without a mark is seen: pages are still looked at in turn")
	datasheet.SetMarks(m.bar, uint64(last.id)+datasheet.MarkCount)
	m.a.e.Step()
	should.Be(t, *m.at(datasheet.EndpointPage(last.id) + datasheet.DoorbellRecvArm), 0, "a mark is not taken to be about all its pages")
	c := m.a.newCQ(4, 3)
	page := datasheet.CQPage(m.a.e.Limits.Endpoints, c.id)
	datasheet.StoreIndex(m.at(page), datasheet.ArmWord(0))
	datasheet.SetMarks(m.bar, page/datasheet.PageSize)
	m.a.e.Step()
	should.Be(t, *m.at(page), 0, "the arm word of a completion queue is not seen")
	datasheet.SetMarks(m.bar, 1)
	m.a.e.Reset()
	for _, offset := range []uint64{datasheet.MarkGroups, datasheet.MarkBase} {
		for i := uint64(0); i < 32; i++ {
			should.Be(t, m.bar[offset+i], 0, "byte %#x is left", offset+i)
		}
	}
}

// TestMarksFlood: a host that marks everything all the time, with values that
// make no sense, keeps nobody from being heard.
func TestMarksFlood(t *testing.T) {
	m := newMarked(t, 200)
	for range 50 {
		for i := range uint64(32) {
			m.bar[datasheet.MarkGroups+i] = 0xff
		}
		for i := range uint64(datasheet.MarkCount) {
			m.bar[datasheet.MarkBase+i] = byte(0x80 + i)
		}
		m.a.e.Step()
	}
	v := m.vis[150]
	bell := m.at(datasheet.EndpointPage(v.id) + datasheet.DoorbellRecvArm)
	datasheet.StoreIndex(bell, datasheet.ArmWord(0))
	datasheet.SetMarks(m.bar, uint64(v.id))
	m.run("the doorbell", func() bool { return *bell == 0 })
	should.Be(t, m.a.e.Counter(datasheet.CounterBadDoorbells), 0, "bad doorbells, of marks alone")
}
