package engine_test

import (
	"math/rand/v2"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// meddler is a host that changes its mind about policies, pulses, progress area
// and log all the time, and whose pulses make no sense half of the time.
type meddler struct {
	*pump
	r       *rand.Rand
	log     *logRing
	refused uint32
}

func newMeddler(n *node, r *rand.Rand) *meddler {
	return &meddler{pump: n.newPump(), r: r}
}

// policy draws one of the policies, of any size.
func (m *meddler) policy() pipeline.Policy {
	names := pipeline.PolicyNames()
	plan, err := pipeline.ByName(names[m.r.IntN(len(names))], pipeline.Parameters{
		MinPulseSend: 1 + m.r.IntN(3000), OptimalSend: []pipeline.Step{{Wait: 3, Bytes: 70}}, OptimalReceive: []pipeline.Step{{Wait: 64, Bytes: 64}},
	})
	must.OK(m.n.w.t, err)
	return plan.Send()
}

func (m *meddler) step() {
	e, d := m.n.e, engine.Direction(m.r.IntN(2))
	switch k := m.r.IntN(60); {
	case k < 20:
		s := e.DMAState().Movers[d]
		if there := s.Arrived - s.Sent; s.Active && there > 0 {
			m.pulse(d, uint8(s.Frame), uint32(1+m.r.IntN(there)))
		}
	case k < 30:
		m.pulse(d, uint8(m.r.Uint32()), m.r.Uint32N(1<<uint(1+m.r.IntN(24))))
	case k == 30:
		e.SetPulses(d, m.r.IntN(2) == 0)
	case k == 31:
		must.OK(m.n.w.t, e.SetPolicy(d, m.policy()))
	case k == 32:
		e.SetPulseDeadline(time.Duration(1+m.r.IntN(20_000)) * time.Microsecond)
	case k == 33:
		e.SetProgressArea([]uint64{0, m.iova, m.iova, 64}[m.r.IntN(4)]) // 64 is not mapped
	case k == 34 && m.log == nil:
		m.log = m.n.newLog(uint8(datasheet.MinLogLog2 + m.r.IntN(3)))
	case k == 35 && m.log != nil:
		e.StopLog()
		m.log = nil
	case k == 36 && m.log != nil && e.DMAState().Log:
		m.log.all()
	}
	m.progress(d)
	must.Be(m.n.w.t, e.DMAState().Refused, m.refused, "pulses refused, counted")
}

func (m *meddler) pulse(d engine.Direction, frame uint8, n uint32) {
	if !m.n.e.Pulse(d, frame, n) {
		m.refused++
	}
}

// forget is to be called after a reset of the NIC.
func (m *meddler) forget() {
	m.log, m.refused = nil, 0
	m.n.e.SetProgressArea(m.iova)
}
