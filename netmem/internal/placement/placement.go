// Package placement says which servers hold a page, by consistent hashing: when a
// server comes or goes, only its own share of the pages moves (Karger et al.,
// "Consistent Hashing and Random Trees", STOC 1997).
package placement

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
)

// points is the number of a server's places on the circle. Shares of the pages then
// differ by some 10 % (the deviation goes with the root of their number).
const points = 128

// Placement is where pages are. It does not change, and may be used by several
// goroutines.
type Placement struct {
	circle []point // sorted by hash
	copies int
}

type point struct {
	hash   uint64
	server int32
}

// New places pages on servers, which it knows by their names alone: the same names give
// the same places, in whatever order. Each page is on as many different servers as
// there are to be copies.
func New(names []string, copies int) (*Placement, error) {
	if copies < 1 || copies > len(names) {
		return nil, fmt.Errorf("%d copies on %d servers: 1 to as many as there are servers", copies, len(names))
	}
	p := &Placement{copies: copies}
	for i, name := range names {
		if slices.Index(names, name) != i {
			return nil, fmt.Errorf("server %q is named twice", name)
		}
		h := fnv.New64a()
		h.Write([]byte(name)) // never fails
		for n := range uint64(points) {
			p.circle = append(p.circle, point{mix(h.Sum64() + n*golden), int32(i)})
		}
	}
	slices.SortFunc(p.circle, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.server, b.server))
	})
	return p, nil
}

// Of puts the servers that hold a page into into, as many as there are copies: their numbers in
// the order of New's names. The first is the one that decides between two writers.
func (p *Placement) Of(page uint64, into []int) {
	at, _ := slices.BinarySearchFunc(p.circle, mix(page), func(p point, hash uint64) int { return cmp.Compare(p.hash, hash) })
	for n := 0; n < p.copies; at++ {
		if s := int(p.circle[at%len(p.circle)].server); !slices.Contains(into[:n], s) {
			into[n] = s
			n++
		}
	}
}

// golden is 2^64 divided by the golden ratio, which spreads consecutive numbers.
const golden = 0x9e3779b97f4a7c15

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom
// Number Generators", OOPSLA 2014).
func mix(x uint64) uint64 {
	x += golden
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
