package netmem

import (
	"math"
	"math/bits"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// Pages that are evicted go to the hosts with the oldest pages, in the way of GMS. Feeley, Morgan, Pighin,
// Karlin, Levy and Thekkath have that in "Implementing global memory management in a workstation
// cluster", SOSP 1995, section 3.2. An epoch begins with the ages of the frames of all other hosts. The oldest of them
// are to be replaced in it: host i has w_i of those, and a page goes there with a share of w_i. A page
// older than MinAge, the least age among them, goes nowhere. GMS has one node compute that for all; here
// each client does for itself, of what the hosts say, and there is no election.
const (
	// epochTime bounds an epoch. It ends sooner when as many pages were sent as are
	// to be replaced. GMS had 5 to 10 s.
	epochTime = 16 * tickTime
	// tickTime is the unit of ages.
	tickTime = 128 * time.Millisecond
	// leastReplaced bounds the pages that an epoch is for from below, and replacedPart, a part of all
	// frames, from above.
	leastReplaced = 64
	replacedPart  = 1. / 8
)

// ageBucket is the bucket of an age in ticks: bucket b has those below 2^b ticks, and the last the rest.
func ageBucket(age uint32) int { return min(bits.Len32(age), protocol.AgeBuckets-1) }

// epoch says where pages go.
type epoch struct {
	weights [protocol.MaxHosts]float64
	sum     float64
	sent    [protocol.MaxHosts]float64
	total   float64
	// minAge in ticks: pages that were not used for as long go nowhere.
	minAge uint32
}

// newEpoch weighs hosts by their oldest frames, of which so many are to be replaced as were in the last
// epoch. trust, from 0 to 1, says which part of a host's frames counts.
func newEpoch(hosts *[protocol.MaxHosts]protocol.Summary, trust *[protocol.MaxHosts]float64, replaced float64) epoch {
	var e epoch
	frames := 0.0
	for i := range hosts {
		for _, n := range hosts[i].Frames {
			frames += float64(n) * trust[i]
		}
	}
	replaced = min(max(leastReplaced, replaced), max(1, frames*replacedPart))
	for b := protocol.AgeBuckets - 1; b >= 0 && e.sum < replaced; b-- {
		var all float64
		for i := range hosts {
			all += float64(hosts[i].Frames[b]) * trust[i]
		}
		if all == 0 {
			continue
		}
		part := min(1, (replaced-e.sum)/all)
		for i := range hosts {
			e.weights[i] += float64(hosts[i].Frames[b]) * trust[i] * part
		}
		e.sum += all * part
		e.minAge = math.MaxUint32
		if b < protocol.AgeBuckets-1 {
			e.minAge = 1 << b
		}
	}
	return e
}

// choose returns the host, among those of a mask, to which a page of such an age goes; -1 for none.
// Hosts get pages in the ratio of their weights: each time the one that is furthest behind.
func (e *epoch) choose(age uint32, among uint16) int {
	best, most := -1, 0.0
	if age < e.minAge {
		for i, w := range e.weights {
			if behind := w / (e.sent[i] + 1); among&bitOf(i) != 0 && behind > most {
				best, most = i, behind
			}
		}
	}
	if best >= 0 {
		e.sent[best]++
		e.total++
	}
	return best
}
