package pipeline

// maxChain bounds the chains of transfers that are considered.
const maxChain = 32

// planner holds what has been learned about an engine and its source, and what follows
// from it if bytes arrive at a steady rate. Times are in picoseconds.
type planner struct {
	arrival float64 // bytes per picosecond
	setup   float64 // a transfer of n bytes takes setup + n*perByte, the decision included
	perByte float64
	along   float64 // bytes that arrive during a decision

	// Chains of m+1 transfers without a pause, by m: how many bytes of a frame must be
	// there when the first starts, and when the last ends, counted from the moment when
	// no byte was there.
	length int
	count  int
	wait   [maxChain]float64
	ends   [maxChain]float64
}

// lay computes the chains for a frame. If each transfer takes what arrived during the
// one before, n[k+1] = growth*n[k] + refill, so that the sum of m sizes is
// n[1]*sizes + refill*extra.
func (p *planner) lay(length int) {
	growth, refill := p.arrival*p.perByte, p.refill()
	sizes, extra := 1.0, 0.0
	p.count, p.length = 0, length
	for m := range maxChain {
		first := (float64(length) - refill*extra) / sizes
		if first < 1 {
			break
		}
		p.wait[m] = max(first-p.along, 1)
		p.ends[m] = p.wait[m]/p.arrival + float64(m+1)*p.setup + float64(length)*p.perByte
		p.count = m + 1
		extra += sizes
		sizes = 1 + growth*sizes
	}
}

// refill returns the bytes that arrive while a transfer is set up.
func (p *planner) refill() float64 { return p.arrival * p.setup }

// best returns the chain with the fewest transfers, or the most, among those that end
// by less than slack picoseconds later than the one that ends first.
func (p *planner) best(slack float64, most bool) (m int) {
	for k := range p.count {
		if p.ends[k] < p.ends[m] {
			m = k
		}
	}
	limit := p.ends[m] + slack
	for k := range p.count {
		if p.ends[k] < limit && (most && k > m || !most && k < m) {
			m = k
		}
	}
	return m
}

// between returns the threshold halfway between chains k/2 and (k+1)/2, which is that
// of a chain for even k; 0 if there is no such chain.
func (p *planner) between(k int) int {
	low, high := k>>1, (k+1)>>1
	switch {
	case low < 0 || high >= p.count:
		return 0
	case high == 0:
		return p.length // all that are there in time
	}
	return int((p.wait[low] + p.wait[high]) / 2)
}
