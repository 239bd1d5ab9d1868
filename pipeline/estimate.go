package pipeline

// Memory of the estimates: an observation's weight falls by this factor with each
// later one, so about the last 20 count.
const forget = 0.95

// average is a running mean that forgets.
type average struct {
	value, weight float64
}

func (a *average) add(x float64) {
	a.weight = a.weight*forget + 1
	a.value += (x - a.value) / a.weight
}

// costs is a least-squares fit that forgets: a transfer of n bytes takes setup +
// n*perByte, and extra more if it is the first one of its frame, as one that has a
// header to send.
type costs struct {
	weight float64
	// Sums over transfers, weighted: bytes n, time t, and f, which is 1 for the first
	// transfer of a frame and 0 for others.
	n, t, f, nn, nt, nf, tf float64

	setup, perByte, extra float64
	known                 bool
}

func (c *costs) add(n float64, first bool, took float64) {
	c.weight = c.weight*forget + 1
	c.n = c.n*forget + n
	c.t = c.t*forget + took
	c.nn = c.nn*forget + n*n
	c.nt = c.nt*forget + n*took
	c.f, c.nf, c.tf = c.f*forget, c.nf*forget, c.tf*forget
	if first {
		c.f++
		c.nf += n
		c.tf += took
	}
}

// solve draws the conclusions from the sums. What they say nothing about keeps its
// last value: sizes that differ by less than 2 % the cost of a byte, first transfers
// that are always or never of one size that of being first.
func (c *costs) solve() {
	k := 1 / c.weight
	n, t, f := c.n*k, c.t*k, c.f*k // means
	nn, nf, ff := c.nn*k-n*n, c.nf*k-n*f, f-f*f
	nt, tf := c.nt*k-n*t, c.tf*k-t*f
	spread := nn > 4e-4*n*n
	if det := nn*ff - nf*nf; spread && ff > 0.01 && det > 0.02*nn*ff {
		c.extra = max((tf*nn-nt*nf)/det, 0)
	}
	if spread {
		c.perByte, c.known = max((nt-c.extra*nf)/nn, 0), true
	}
	// Where every transfer has the same size, its time is all there is to know.
	c.known = c.known || c.weight > 6
	rest := max(t-c.extra*f, 0)
	c.perByte = min(c.perByte, rest/n)
	c.setup = max(rest-c.perByte*n, 0)
}
