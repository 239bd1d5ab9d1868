package coherence

import "math/rand/v2"

// Order is the order in which a program writes the words of its message.
type Order string

// Orders of writing.
const (
	Sequential Order = "sequential" // from the first word to the last
	Stride     Order = "stride"     // the first word of each block, then the second of each, and so on
	Random     Order = "random"     // each word once, shuffled
)

// Orders are all of them.
var Orders = []Order{Sequential, Stride, Random}

// words returns the order of n words, of which a block has perBlock.
func (o Order) words(n, perBlock int, seed uint64) []int {
	order := make([]int, 0, n)
	switch o {
	case Stride:
		for first := range perBlock {
			for w := first; w < n; w += perBlock {
				order = append(order, w)
			}
		}
	case Random:
		return rand.New(rand.NewPCG(seed, 0)).Perm(n)
	default:
		for w := range n {
			order = append(order, w)
		}
	}
	return order
}
