package pipeline

// planner decides when to start a transfer of a frame of which left bytes have not
// been sent, if bytes arrive at a steady rate and n bytes take setup + n*perByte.
// Times are in picoseconds.
type planner struct {
	arrival, setup, perByte, left float64
	along                         float64 // bytes that arrive while a transfer is being set up
	early                         float64 // share of them that a frame's last transfer counts on
	bonus                         float64 // time that starting now is held to gain

	// Chains of m+1 transfers without a pause, by m: how many bytes must be there
	// when the first starts, and when the last ends, counted from the moment when
	// no byte was there.
	count int
	wait  [autoMaxTransfers]float64
	ends  [autoMaxTransfers]float64
}

// lay computes the chains. If each transfer takes what arrived during the one
// before, n[k+1] = growth*n[k] + refill, so that the sum of m sizes is
// n[1]*sizes + refill*extra.
func (p *planner) lay() {
	growth, refill := p.arrival*p.perByte, p.arrival*p.setup
	sizes, extra := 1.0, 0.0
	p.count = 0
	for m := range autoMaxTransfers {
		first := (p.left - refill*extra) / sizes
		if first < 1 {
			break
		}
		p.wait[m] = first - p.along
		if m == 0 {
			// One byte less than all, so that the mover need not be told of the end.
			p.wait[m] = first - max(p.along*p.early, 1)
		}
		p.ends[m] = p.wait[m]/p.arrival + float64(m+1)*p.setup + p.left*p.perByte
		p.count = m + 1
		extra += sizes
		sizes = 1 + growth*sizes
	}
}

// best returns the chain that ends first among those that begin with more than n
// bytes, and its end; m is -1 if there is none.
func (p *planner) best(n float64) (m int, end float64) {
	m = -1
	for k := range p.count {
		if p.wait[k] > n && (m < 0 || p.ends[k] < end) {
			m, end = k, p.ends[k]
		}
	}
	return m, end
}

// start reports whether to start now that n bytes are there, rather than wait for
// the first transfer of a chain that ends earlier.
func (p *planner) start(n float64) bool {
	m, end := p.best(n)
	if m < 0 {
		return true
	}
	with := n + p.along
	if with >= p.left {
		with = n + p.along*p.early
	}
	return p.run(with)-p.bonus <= end-n/p.arrival
}

// run returns when the frame ends if a transfer of n bytes starts now and each
// later one as soon as the engine is idle.
func (p *planner) run(n float64) float64 {
	n = min(n, p.left)
	left, there := p.left-n, 0.0
	now := 0.0
	for range autoMaxTransfers {
		took := p.setup + n*p.perByte
		now += took
		if left < 1 {
			return now
		}
		if there += took * p.arrival; there > left {
			there = left
		}
		n = there
		left -= n
		there = 0
	}
	// Still not at the end: from here on the engine keeps pace with its source.
	return now + left/p.arrival + p.setup + n*p.perByte
}
