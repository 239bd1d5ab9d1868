package channel

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/cells"
)

// cellFIFO is the receive FIFO: cells that have come and are not stored yet, of all channels
// in their order.
type cellFIFO struct {
	Config   core.Cells
	ring     []arrival                 // nil as long as there was no channel
	payloads [][cells.PayloadSize]byte // of the cells in ring
	first, N int
	Highest  int // value of n
}

// arrival is a cell in the receive FIFO.
type arrival struct {
	ep    *core.Endpoint
	era   uint32 // of ep when it came
	last  bool   // of its PDU
	stamp uint64 // when it came, in units of the clock of SPEC.md 2.6
}

// of reports whether the cell is of the same connection as another.
func (a *arrival) of(other *arrival) bool { return a.ep == other.ep && a.era == other.era }

func (f *cellFIFO) open() {
	if f.ring == nil {
		f.ring, f.payloads = make([]arrival, f.Config.FIFO), make([][cells.PayloadSize]byte, f.Config.FIFO)
	}
}

func (f *cellFIFO) clear() { *f = cellFIFO{Config: f.Config} }

// high reports whether there is more in it than peers should have sent.
func (f *cellFIFO) high() bool { return f.N > f.Config.Stop && !f.Config.NeverStop }

// push makes room for one with a copy of payload at the end; there must be some.
func (f *cellFIFO) push(payload *[cells.PayloadSize]byte) *arrival {
	at := f.first + f.N
	if at >= len(f.ring) {
		at -= len(f.ring)
	}
	f.N++
	f.Highest = max(f.Highest, f.N)
	f.payloads[at] = *payload
	return &f.ring[at]
}

// oldest is the cell that pop takes first.
func (f *cellFIFO) oldest() *arrival { return &f.ring[f.first] }

// run returns the payloads of the oldest cell and of those behind it that belong to the same
// PDU and lie behind it in memory, most at least one, and the last one of these cells.
func (f *cellFIFO) run(most int) ([][cells.PayloadSize]byte, *arrival) {
	in := f.ring[f.first:min(f.first+min(f.N, most), len(f.ring))]
	n := 1
	for n < len(in) && !in[n-1].last && in[n].of(&in[0]) {
		n++
	}
	return f.payloads[f.first : f.first+n], &in[n-1]
}

// pop takes out cells of a run.
func (f *cellFIFO) pop(n int) {
	for i := range n {
		f.ring[f.first+i].ep = nil
	}
	if f.first += n; f.first == len(f.ring) {
		f.first = 0
	}
	f.N -= n
}
