package fit

type limit struct{ low, high float64 }

// expectation is a value that a parameter has unless the rows say otherwise;
// sigma 0 = none.
type expectation struct{ value, sigma float64 }

// known holds what is known of a platform before any row is looked at, in the order of Own: read
// and write bandwidth (MB/s), overhead (us), hosts' cost (us); of a platform with firmware of its
// own also completion (us) and link (MB/s).
type known struct {
	start    []float64
	limits   []limit
	expected []expectation
}

// Sources of the limits and expectations:
//   - 32-bit 33 MHz PCI carries 120 to 132 MB/s (CS-1997-20, section 1).
//   - P6/Natoma and 440LX reach more than 120 MB/s in both directions (figure 1).
//   - Alcor reads at up to 128 MB/s and writes at about half of that (cut-through
//     paper, section 4.1).
//   - A hostRcv of 368 bytes took 7 us on P6/Natoma (figure 4), so a transfer's
//     overhead is about 4 us; other platforms are expected to be like it.
//   - What the earlier firmware got out of its link is not published: section 4.1 assumes a
//     gigabit link. Its bus has the two figures of that section.
//   - Miata is a 33 MHz PCI of the same kind as the Pentiums'.
var (
	commodity = []limit{{120, 132}, {120, 132}, {0.2, 8}, {1, 60}}
	overhead  = expectation{4.2, 1.5}

	knowledge = map[string]known{
		"p6-natoma": {
			start: []float64{130, 124, 4, 10}, limits: commodity, expected: []expectation{{}, {}, overhead, {}},
		},
		"pii-440lx": {
			start: []float64{130, 124, 4, 10}, limits: commodity, expected: []expectation{{}, {}, overhead, {}},
		},
		"alcor": {
			start:    []float64{124, 62, 3, 15},
			limits:   []limit{{90, 128}, {45, 80}, {0.2, 8}, {1, 60}},
			expected: []expectation{{128, 6}, {64, 6}, overhead, {}},
		},
		"alcor-miata": {
			start:    []float64{126, 122, 4, 12},
			limits:   []limit{{90, 128}, {90, 132}, {0.2, 8}, {1, 60}},
			expected: []expectation{{128, 6}, {126, 6}, overhead, {}},
		},
		"alcor-hpdc97": {
			start:    []float64{128, 64, 1, 30, 1, 110},
			limits:   []limit{{128, 128}, {64, 64}, {0.2, 8}, {1, 60}, {0.01, 12}, {80, 160}},
			expected: make([]expectation, 6),
		},
	}

	sharedStart  = []float64{1.1, 0.5, 5.6, 0.35} // decision, packet, completion, pulse (us)
	sharedLimits = []limit{{0.1, 5}, {0.1, 10}, {0.1, 12}, {0.05, 3}}
)

// clamp moves values into their limits and returns a penalty that grows with how
// far they were outside.
func clamp(x []float64, limits []limit) (inside []float64, penalty float64) {
	inside = make([]float64, len(x))
	for i, v := range x {
		l := limits[i]
		inside[i] = min(max(v, l.low), l.high)
		d := 10 * (v - inside[i]) / inside[i]
		penalty += d * d
	}
	return inside, penalty
}
