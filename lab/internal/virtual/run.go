package virtual

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// ErrStalled: nothing more can happen although frames are under way. It means an
// error in this package.
var ErrStalled = errors.New("the pipeline stands still")

// checkEvery is the number of events that happen between two looks at the context: some tens of
// microseconds.
const checkEvery = 1 << 8

// Run moves the frames and returns what was measured. Errors are *option.Error,
// *pipeline.ParameterError, or the cause of the end of ctx.
func Run(ctx context.Context, o Options) (*Result, error) {
	m, err := newMachine(o)
	if err != nil {
		return nil, err
	}
	m.run(ctx)
	var bad *option.Error
	switch {
	case ctx.Err() != nil && errors.Is(m.err, context.Cause(ctx)):
		return nil, m.err
	case errors.As(m.err, &bad):
		return nil, bad
	case m.err != nil:
		return nil, fmt.Errorf("virtual time: %w", m.err)
	}
	for i := range m.flows {
		if got := m.flows[i].delivered; got != m.total {
			return nil, fmt.Errorf("virtual time: %w after %d of %d frames", ErrStalled, got, m.total)
		}
	}
	return m.result(), nil
}

func newMachine(o Options) (*machine, error) {
	m := &machine{o: o, total: o.Warmup + o.Count, random: rand.New(rand.NewPCG(o.Seed, 0))}
	var lengths []Frame
	if o.Frames != nil {
		m.o.Count, m.o.Payload = len(o.Frames), o.Frames[0].Bytes
		m.total = o.Warmup + m.o.Count
		lengths = append(slices.Repeat(o.Frames[:1], o.Warmup), o.Frames...)
	}
	m.join()
	buffers := cmp.Or(o.Plan.Buffers, o.Profile.NIC.Buffers)
	for i := range m.flows {
		f := &m.flows[i]
		f.payload, f.lengths = m.o.Payload, lengths
		var err error
		send := pipeline.Shape{Sources: 1, Buffers: buffers}
		if o.Trunk != nil {
			send.Packet = o.Trunk.Packet
		}
		if f.send, err = pipeline.NewPaths(o.Plan.Send, send); err != nil {
			return nil, err
		}
		if f.receive, err = pipeline.NewDevice(o.Plan.Receive(), buffers); err != nil {
			return nil, err
		}
		f.fetchedAt, f.landedAt = make([]profile.Time, buffers), make([]profile.Time, buffers)
		f.cost = [dmalog.Engines]profile.Cost{f.from.bus.Read, o.Profile.Link.Pulse, o.Profile.Link.Pulse, f.to.bus.Write}
		f.postTime = make([]profile.Time, 0, m.total)
		f.deliveredTime = make([]profile.Time, 0, m.total)
	}
	if o.Trunk != nil {
		return m, m.newTrunk()
	}
	return m, nil
}

// join makes the flows and their NICs: two, or two for each sender of a trunk.
func (m *machine) join() {
	flows, nics := 1, 2
	switch {
	case m.o.Bidirectional:
		flows = 2
	case m.o.Trunk != nil:
		flows, nics = m.o.Trunk.Senders, 2*m.o.Trunk.Senders
	}
	m.flows, m.nics = make([]flow, flows), make([]nic, nics)
	for n := range m.nics {
		m.nics[n].bus = []*profile.Bus{&m.o.Profile.Sender, &m.o.Profile.Receiver}[n%2]
	}
	for i := range m.flows {
		f, from, to := &m.flows[i], i, 1-i
		if m.o.Trunk != nil {
			from, to = 2*i, 2*i+1
		}
		f.number, f.from, f.to = i, &m.nics[from], &m.nics[to]
		f.from.out, f.to.in = f, f
	}
	m.schedule()
}

func (m *machine) run(ctx context.Context) {
	for i := range m.flows {
		m.post(&m.flows[i])
	}
	for n := range m.nics {
		m.look(&m.nics[n])
	}
	for happened := 0; m.err == nil; happened++ {
		if happened%checkEvery == 0 && ctx.Err() != nil {
			m.err = context.Cause(ctx)
			return
		}
		if !m.Next() {
			return
		}
		if m.Now > MaxTime {
			m.err = m.tooMuch("at most 1000000 s of virtual time")
		}
	}
}

// tooMuch is the error of a run that goes beyond a limit.
func (m *machine) tooMuch(limit string) error {
	return &option.Error{Option: "count", Value: fmt.Sprint(m.o.Count), Allowed: limit + "; take fewer or shorter payloads, or longer pulses"}
}

// post schedules the next frame of a flow. Warm-up frames go one by one, and the
// measured ones begin when all flows have delivered theirs.
func (m *machine) post(f *flow) {
	k := len(f.postTime)
	if k == m.total {
		return
	}
	when := m.Now
	switch {
	case k == m.o.Warmup:
		for n := range m.flows {
			if m.flows[n].delivered < k {
				return // deliver posts it
			}
			when = max(when, m.flows[n].hostRcvFree)
		}
		m.origin = when
	case k < m.o.Warmup:
		if f.delivered < k {
			return // deliver posts it
		}
		when = max(when, f.hostRcvFree)
	case m.o.Frames != nil:
		when = m.origin + m.o.Frames[k-m.o.Warmup].Posted
	default:
		when = f.postTime[k-1] + m.gap()
	}
	// Half of the hosts' cost later the NIC has it.
	f.postTime = append(f.postTime, when)
	f.hostSendFree = max(f.hostSendFree, when) + m.o.Profile.Host/2
	m.Set(f.events[posted], f.hostSendFree)
}

func (m *machine) deliver(f *flow) {
	if f.hostRcvFree = max(f.hostRcvFree, m.Now); !f.held.lost[f.delivered] {
		f.hostRcvFree += m.o.Profile.Host - m.o.Profile.Host/2
	}
	f.deliveredTime = append(f.deliveredTime, f.hostRcvFree)
	f.delivered++
	switch {
	case f.delivered == m.o.Warmup:
		for n := range m.flows {
			if len(m.flows[n].postTime) == m.o.Warmup {
				m.post(&m.flows[n])
			}
		}
	case f.delivered < m.o.Warmup:
		m.post(f)
	}
}

// notes charges a NIC's processor for a record of the firmware's own log, which it writes before
// it decides anything else.
func (m *machine) notes(c *nic, cost profile.Time) {
	if m.o.LogCosts {
		c.notes = max(c.notes, m.Now) + cost
	}
}

// record notes a transfer of a payload.
func (m *machine) record(f *flow, e dmalog.Engine, packet int, start, end profile.Time, bytes int) {
	m.transfers++
	if m.transfers > MaxTransfers || m.o.Log && m.transfers > MaxRecords {
		m.err = m.tooMuch(fmt.Sprintf("at most %d transfers, %d if they are logged", MaxTransfers, MaxRecords))
	}
	if m.o.Log && packet >= m.o.Warmup {
		m.log = append(m.log, m.measured(f, e, packet, start, end, bytes))
		if e == dmalog.HostTx {
			m.log[len(m.log)-1].Queued = f.hostTx.queued
		}
	}
}

// ahead records the control message ahead of a payload.
func (m *machine) ahead(f *flow, e dmalog.Engine, packet int, start, end profile.Time) {
	if m.o.Log && packet >= m.o.Warmup {
		m.control = append(m.control, m.measured(f, e, packet, start, end, m.o.Profile.Link.Header))
	}
}

// measured counts packets and time from the first measured frame.
func (m *machine) measured(f *flow, e dmalog.Engine, packet int, start, end profile.Time, bytes int) dmalog.Record {
	return dmalog.Record{Packet: packet - m.o.Warmup, Flow: f.number, Engine: e, Start: int64(start - m.origin), End: int64(end - m.origin), Bytes: bytes}
}

func (m *machine) result() *Result {
	r := &Result{Transfers: m.transfers, Log: m.log, Control: m.control, Holds: m.holds, Busy: [2]profile.Time{m.nics[0].busy, m.nics[1].busy}}
	for k := m.o.Warmup; k < m.total; k++ {
		r.Delivered = append(r.Delivered, m.flows[0].deliveredTime[k]-m.flows[0].postTime[k])
	}
	r.Latency = r.Delivered[0]
	for i := range m.flows {
		f := &m.flows[i]
		if m.trunk != nil {
			r.Senders = append(r.Senders, m.sender(f))
		}
		r.Bandwidth += m.bandwidth(f)
	}
	return r
}

// bandwidth of a flow in MB/s, over the second half of its frames: the first ones
// find an idle system and say nothing about a stream. A lone frame counts from its
// posting.
func (m *machine) bandwidth(f *flow) float64 {
	last := m.total - 1
	if m.o.Count == 1 && f.held.lost[last] {
		return 0
	}
	if m.o.Count == 1 {
		return float64(f.length(last)) / (f.deliveredTime[last] - f.postTime[last]).Microseconds()
	}
	from, bytes := min(m.o.Warmup+m.o.Count/2, last-1), 0
	for k := from + 1; k <= last; k++ {
		if !f.held.lost[k] {
			bytes += f.length(k)
		}
	}
	return float64(bytes) / (f.deliveredTime[last] - f.deliveredTime[from]).Microseconds()
}

func (m *machine) gap() profile.Time {
	if !m.o.Random {
		return m.o.Gap
	}
	return profile.Time(math.Round(float64(m.o.Gap) * m.random.ExpFloat64()))
}
