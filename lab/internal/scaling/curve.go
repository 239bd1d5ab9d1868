package scaling

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// Curve says how one cost depends on one number.
type Curve struct {
	// Name is a key of Curves.
	Name string `json:"name"`
	// What is the cost of what, against the number of what.
	What string `json:"what"`
	// Of names what N counts, in the singular.
	Of     string  `json:"of"`
	Unit   string  `json:"unit"`
	Points []Point `json:"points"`
	Growth Growth  `json:"growth"`
}

// blocks is into how many parts a measurement is cut: each gives a mean, and
// these a median with quartiles.
const blocks = 11

// block has this many messages at least, so that two looks at the clock are
// nothing beside them.
const block = 512

// measure times one message each of f(i) with i = 0, 1, … in ns for about d,
// after one turn of every i below n, as the first message of a VI warms it up.
func measure(ctx context.Context, n int, d time.Duration, f func(i int) error) (Point, error) {
	for i := range n {
		if err := f(i); err != nil {
			return Point{}, err
		}
	}
	runtime.GC()
	var means []float64
	i := 0
	err := bench.Rounds(ctx, d, blocks, func() error {
		start := time.Now()
		count := 0
		for count < block || time.Since(start) < d/blocks {
			for range block / 8 {
				if err := f(i); err != nil {
					return err
				}
				i++
			}
			count += block / 8
		}
		means = append(means, float64(time.Since(start))/float64(count))
		return nil
	})
	if err != nil {
		return Point{}, err
	}
	return spread(n, means), nil
}

// spread makes a point of several measurements.
func spread(n int, values []float64) Point {
	slices.Sort(values)
	at := func(share float64) float64 { return values[int(share*float64(len(values)-1)+0.5)] }
	return Point{N: n, Value: at(0.5), Low: at(0.25), High: at(0.75)}
}

// shuffled is 0 to n-1 in an order that no prefetcher guesses, the same each time.
func shuffled(n int) []int {
	return rand.New(rand.NewPCG(1, uint64(n))).Perm(n)
}
