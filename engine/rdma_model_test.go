package engine_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestRDMASchedules runs random schedules of sends, writes, reads and fences in both
// directions, over wires that lose, double, reorder and damage frames, or lose nothing,
// with either side slow, stalled or killed. Time is virtual, so that a seed is a schedule.
func TestRDMASchedules(t *testing.T) {
	n := uint64(300)
	switch {
	case *schedules > 0:
		n = *schedules
	case soak.Wanted():
		n = 20_000
	case testing.Short():
		n = 50
	}
	for seed := *firstSchedule; seed < *firstSchedule+n; seed++ {
		if runSchedule(t, seed); t.Failed() {
			t.Fatalf("-first-schedule %d", seed)
		}
	}
}

var (
	schedules     = flag.Uint64("schedules", 0, "how many schedules TestRDMASchedules runs; zero: as many as there is time for")
	firstSchedule = flag.Uint64("first-schedule", 0, "seed of the first of them")
)

// scheduleMemory gives nodes as little memory as a schedule needs.
var scheduleMemory = memory(1 << 19)

// A schedule's memory: what the peer may write and read, and how long operations are.
const (
	sharedSize = 6000
	longest    = 2500
)

// modelOp is an operation that was posted.
type modelOp struct {
	kind   datasheet.Control
	d      *descriptors.Descriptor
	takes  bool   // a receive
	fence  bool   // all reads before it came first
	at     int    // in the peer's memory
	data   []byte // sent or written
	local  []byte // where a read goes
	number uint32 // immediate data
}

// modelSide is one end, and what must become of what it has posted.
type modelSide struct {
	v      *vi
	shared target // memory of this end's host, for its peer
	posted []*modelOp
	ended  int // of posted, that have completed
	failed bool
	// Of the peer's messages.
	receives []*descriptors.Descriptor
	rooms    [][]byte
	received int
	taken    []*modelOp // the peer's, that take receives
}

// schedule is one run.
type schedule struct {
	t     *testing.T
	w     *world
	r     *rand.Rand
	sides [2]*modelSide
	dead  int       // side that was killed, -1 for none
	ends  [2]*exact // over a wire that loses nothing
}

// runSchedule runs the schedule of a seed.
func runSchedule(t *testing.T, seed uint64) {
	s := &schedule{t: t, r: rand.New(rand.NewPCG(seed, 15)), dead: -1}
	r := s.r
	var options []option
	switch r.IntN(6) {
	case 0:
		options = append(options, exactly(&s.ends))
	case 1, 2:
		options = append(options, exactly(&s.ends), withSlots)
	case 3:
	default:
		share := func() float64 { return max(0, 0.3*r.Float64()-0.1) }
		options = append(options, lossy(seed, share(), share(), share(), share()))
	}
	w := newWorld(t, append(options, scheduleMemory)...)
	s.w = w
	for i, n := range []*node{w.a, w.b} {
		v := n.newVI(n.memory(0, 0), withRights(bothRights))
		side := &modelSide{v: v, shared: v.target(sharedSize, bothRights)}
		s.sides[i] = side
	}
	connect(s.sides[0].v, s.sides[1].v)
	s.run()
}

// run posts, lets pass, and checks, until all has completed.
func (s *schedule) run() {
	const rounds = 12
	for round := range rounds {
		for i := range s.sides {
			s.postSome(i, round == rounds-1)
		}
		if s.r.IntN(10) == 0 {
			s.stall(s.r.IntN(2))
		}
		for range s.r.IntN(30) {
			switch s.r.IntN(3) { // one side may be slow
			case 0:
				s.w.a.e.Step()
			case 1:
				s.w.b.e.Step()
			default:
				if busy := s.w.a.e.Step(); !s.w.b.e.Step() && !busy {
					s.w.now += s.w.idle
				}
			}
			s.look()
		}
		if s.t.Failed() {
			return
		}
	}
	if s.r.IntN(8) == 0 {
		s.kill(s.r.IntN(2))
	}
	for range 500_000 {
		if s.over() {
			break
		}
		busyA := s.dead != 0 && s.w.a.e.Step()
		busyB := s.dead != 1 && s.w.b.e.Step()
		if !busyA && !busyB {
			s.w.now += s.w.idle
		}
		s.look()
		if s.t.Failed() {
			return
		}
	}
	s.finish()
}

// stall has only the other side run for some time.
func (s *schedule) stall(side int) {
	n := []*node{s.w.a, s.w.b}[1-side]
	for end := s.w.now + time.Duration(s.r.IntN(500))*time.Millisecond; s.w.now < end; {
		if !n.e.Step() {
			s.w.now += 10 * s.w.idle
		}
		s.look()
	}
}

// kill stops a side for good: it answers nothing any more, and its end of a wire that loses nothing goes with it.
func (s *schedule) kill(side int) {
	s.dead = side
	if s.ends[0] != nil {
		s.ends[0].wire.number = 0
	}
}

// over reports whether all that lives has ended.
func (s *schedule) over() bool {
	for i, side := range s.sides {
		if i != s.dead && side.ended < len(side.posted) {
			return false
		}
	}
	return true
}

// postSome posts a few operations and receives of a side; in the last round as many
// receives as the peer may need.
func (s *schedule) postSome(i int, last bool) {
	side, peer := s.sides[i], s.sides[1-i]
	var ops []*descriptors.Descriptor
	for n := s.r.IntN(4); n > 0 && len(side.posted)-side.ended < 1<<queueLog2-4; n-- {
		ops = append(ops, s.operation(side, peer).d)
	}
	side.v.postSend(ops...)
	want := s.r.IntN(4)
	if last {
		want = len(peer.posted) + 12
	}
	var ds []*descriptors.Descriptor
	for ; want > 0 && len(side.receives)+len(ds)-side.received < 1<<queueLog2-1; want-- {
		d, in := side.v.descriptor(longest)
		ds = append(ds, d)
		side.rooms = append(side.rooms, in[0])
	}
	side.receives = append(side.receives, ds...)
	side.v.postRecv(ds...)
}

// operation makes a random operation.
func (s *schedule) operation(side, peer *modelSide) *modelOp {
	n := s.r.IntN(longest)
	if s.r.IntN(10) == 0 {
		n = 0
	}
	op := &modelOp{at: s.r.IntN(sharedSize - n), number: s.r.Uint32()}
	switch s.r.IntN(4) {
	case 0:
		var out [][]byte
		op.data, op.takes = pattern(n, s.r.Uint64()), true
		op.d, out = side.v.descriptor(n)
		copy(out[0], op.data)
		op.d.SetImmediate(op.number)
	case 1, 2:
		op.kind, op.data = datasheet.OpRDMAWrite, pattern(n, s.r.Uint64())
		op.d = side.v.write(peer.shared, op.at, op.data, n/2, n-n/2)
		if op.takes = s.r.IntN(3) == 0; op.takes {
			op.d.SetImmediate(op.number)
		}
	case 3:
		var in [][]byte
		op.kind = datasheet.OpRDMARead
		op.d, in = side.v.read(peer.shared, op.at, n)
		op.local = in[0]
	}
	if op.fence = s.r.IntN(4) == 0; op.fence {
		op.d.SetFence()
	}
	side.posted = append(side.posted, op)
	if op.takes {
		peer.taken = append(peer.taken, op)
	}
	return op
}

// look checks what has completed since the last time.
func (s *schedule) look() {
	for i, side := range s.sides {
		peer := s.sides[1-i]
		for side.ended < len(side.posted) && side.posted[side.ended].d.Status().Done() {
			s.completed(i, side, peer, side.posted[side.ended])
			side.ended++
		}
		for j := side.ended + 1; j < len(side.posted); j++ {
			if side.posted[j].d.Status().Done() && !side.posted[side.ended].d.Status().Done() {
				s.t.Errorf("side %d: operation %d completed before %d", i, j, side.ended)
			}
		}
		for side.received < len(side.receives) && side.receives[side.received].Status().Done() {
			s.arrived(i, side, peer)
			side.received++
		}
	}
}

// completed checks an operation that has ended. One without error has landed, and with it
// all before.
func (s *schedule) completed(i int, side, peer *modelSide, op *modelOp) {
	st := op.d.Status()
	if st.Failed() {
		if s.dead < 0 {
			s.t.Errorf("side %d: operation %d: %v", i, side.ended, st)
		}
		side.failed = side.failed || op.kind != datasheet.OpRDMARead // sends may have passed it
		return
	}
	should.Be(s.t, side.failed, false, "side %d: operation %d completed well behind one that failed", i, side.ended)
	if want := map[datasheet.Control]datasheet.Status{datasheet.OpSend: 0, datasheet.OpRDMAWrite: datasheet.StatusOpRDMAWrite,
		datasheet.OpRDMARead: datasheet.StatusOpRDMARead}[op.kind]; st != want|datasheet.StatusDone {
		s.t.Errorf("side %d: operation %d: status %#x", i, side.ended, uint32(st))
	}
	if op.kind == datasheet.OpRDMARead {
		s.checkRead(i, side, peer, op)
	}
	if op.kind == datasheet.OpRDMAWrite {
		s.checkBytes(fmt.Sprintf("side %d: write %d", i, side.ended), side, peer.shared.mem, op.at, op.data, side.ended)
	}
}

// checkRead checks the bytes of a read: each is that of the last write before it, or of a
// write behind it that had been posted by now; with a fence there is none.
func (s *schedule) checkRead(i int, side, peer *modelSide, op *modelOp) {
	at := side.ended
	for k, got := range op.local {
		place := op.at + k
		ok := got == lastWritten(side.posted[:at], place)
		for _, later := range side.posted[at+1:] {
			if ok || later.fence {
				break
			}
			ok = later.covers(place) && later.data[place-later.at] == got
		}
		if !ok {
			s.t.Errorf("side %d: read %d has %#x at %d", i, at, got, place)
			return
		}
	}
}

// covers reports whether an operation writes a place of the peer's memory.
func (op *modelOp) covers(place int) bool {
	return op.kind == datasheet.OpRDMAWrite && op.at <= place && place < op.at+len(op.data)
}

// lastWritten is what a place holds after all of ops.
func lastWritten(ops []*modelOp, place int) byte {
	for j := len(ops) - 1; j >= 0; j-- {
		if ops[j].covers(place) {
			return ops[j].data[place-ops[j].at]
		}
	}
	return 0
}

// checkBytes checks that data is in mem at a place, but for what operations behind number
// have written since.
func (s *schedule) checkBytes(what string, side *modelSide, mem []byte, at int, data []byte, number int) {
	for k, want := range data {
		place := at + k
		if mem[place] == want {
			continue
		}
		later := false
		for _, op := range side.posted[number+1:] {
			later = later || op.covers(place)
		}
		if !later {
			s.t.Errorf("%s: %#x at %d, want %#x", what, mem[place], place, want)
			return
		}
	}
}

// arrived checks a receive that has completed: the peer's next message, and all that the
// peer had posted before it has landed.
func (s *schedule) arrived(i int, side, peer *modelSide) {
	d := side.receives[side.received]
	if d.Status().Failed() {
		if s.dead < 0 {
			s.t.Errorf("side %d: receive %d: %v", i, side.received, d.Status())
		}
		return
	}
	if side.received >= len(side.taken) {
		s.t.Errorf("side %d: receive %d of nothing", i, side.received)
		return
	}
	op := side.taken[side.received]
	want := datasheet.StatusDone | datasheet.StatusImmediate | datasheet.StatusOpReceive
	if op.kind == datasheet.OpRDMAWrite {
		want |= datasheet.StatusOpRemoteRDMAWrite
	} else if room := side.rooms[side.received]; !bytes.Equal(room[:len(op.data)], op.data) {
		s.t.Errorf("side %d: message %d has other bytes", i, side.received)
	}
	if v, _ := d.Immediate(); d.Status() != want || v != op.number || int(d.Length()) != len(op.data) {
		s.t.Errorf("side %d: receive %d: status %#x, immediate data %#x, %d bytes; want %#x, %#x, %d", i, side.received,
			uint32(d.Status()), v, d.Length(), uint32(want), op.number, len(op.data))
	}
	for j, before := range peer.posted {
		if before.kind == datasheet.OpRDMAWrite {
			s.checkBytes(fmt.Sprintf("side %d: receive %d came before write %d", i, side.received, j), peer, side.shared.mem, before.at, before.data, j)
		}
		if before == op {
			break
		}
	}
}

// finish checks the end: all of what lives has completed, and memory is as it must be.
func (s *schedule) finish() {
	for i, side := range s.sides {
		if i != s.dead && side.ended != len(side.posted) {
			s.t.Errorf("side %d: %d of %d operations have completed", i, side.ended, len(side.posted))
		}
		if s.dead >= 0 {
			continue
		}
		peer := s.sides[1-i]
		for place, got := range side.shared.mem {
			if want := lastWritten(peer.posted, place); got != want {
				s.t.Errorf("side %d: its memory holds %#x at %d, want %#x", i, got, place, want)
				break
			}
		}
		for _, n := range []*node{s.w.a, s.w.b} {
			should.Be(s.t, len(n.events), 0, "events %v", n.events)
		}
	}
}
