package ends_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// creditEnd is an end that takes the credit it gives.
func creditEnd() *ends.CreditEnd {
	words := make(ends.Credits, ends.CreditWords)
	return &ends.CreditEnd{Receives: words, Sends: words}
}

// TestCredits: a credit is found by the connection that it is for, and by no other.
func TestCredits(t *testing.T) {
	c := creditEnd()
	should.Be(t, c.TakeCredit(7, 1, 3), 3, "credit where none was given")
	if asked, asks, ok := c.GiveCredit(7, 1, 5); asked != 3 || !asks || !ok {
		t.Errorf("asked at 3, found %d, %v, %v", asked, asks, ok)
	}
	for _, tt := range []struct {
		name                       string
		endpoint, key, known, want uint32
	}{
		{"more", 7, 1, 3, 5},
		{"no more", 7, 1, 5, 5},
		{"less", 7, 1, 6, 6},
		{"another connection", 7, 2, 3, 3},
		{"another endpoint", 8, 1, 3, 3},
		{"no such endpoint", ends.CreditWords / 2, 1, 3, 3},
		{"the last number", ^uint32(0), 1, 3, 3},
	} {
		should.Be(t, c.TakeCredit(tt.endpoint, tt.key, tt.known), tt.want, "%s: credit", tt.name)
	}
	if _, asks, ok := c.GiveCredit(7, 1, 6); asks || !ok {
		t.Error("who asked last had another key")
	}
	c.GiveCredit(7, 1, 0xffffffff)
	should.Be(t, c.TakeCredit(7, 1, 0xfffffff0), 0xffffffff, "before numbers wrap")
	c.GiveCredit(7, 1, 2)
	should.Be(t, c.TakeCredit(7, 1, 0xfffffff0), 2, "after they")
	for _, endpoint := range []uint32{ends.CreditWords / 2, ^uint32(0)} {
		if _, _, ok := c.GiveCredit(endpoint, 1, 1); ok {
			t.Errorf("endpoint %d has words", endpoint)
		}
	}
	if _, _, ok := new(ends.CreditEnd).GiveCredit(0, 1, 1); ok {
		t.Error("there are words where there are none")
	}
}

// TestCreditsOfARace: of a side that gives and one that asks at the same time, one sees the
// other.
func TestCreditsOfARace(t *testing.T) {
	c := creditEnd()
	const rounds = 20000
	told := make(chan uint32, rounds)
	var both sync.WaitGroup
	both.Go(func() {
		answered := ^uint32(0)
		for credit := uint32(1); credit <= rounds; credit++ {
			if asked, asks, _ := c.GiveCredit(1, 9, credit); asks && asked != answered && credit != asked {
				answered = asked
				told <- credit
			}
			if credit%64 == 0 {
				runtime.Gosched()
			}
		}
	})
	both.Go(func() {
		for known := uint32(0); known < rounds; {
			credit := c.TakeCredit(1, 9, known)
			if credit == known {
				select {
				case credit = <-told:
				case <-time.After(30 * time.Second):
					t.Errorf("nobody has told of more than %d", known)
					return
				}
			}
			known = max(known, credit)
		}
	})
	both.Wait()
}

// TestScribbledCredits: whatever a peer writes, what is taken was given by a word of the
// connection, and lies ahead.
func TestScribbledCredits(t *testing.T) {
	c := creditEnd()
	r := rand.New(rand.NewPCG(3, 1))
	known := uint32(0)
	for range 1_000_000 {
		w := r.Uint64()
		if r.IntN(2) == 0 {
			w = 5<<32 | uint64(known+uint32(r.IntN(64))-32)
		}
		words := c.Sends
		words[r.IntN(8)] = w
		word := words[2]
		got := c.TakeCredit(1, 5, known)
		if got != known && (word>>32 != 5 || got != uint32(word) || int32(got-known) < 0) {
			t.Fatalf("word %#x: from %#x to %#x", word, known, got)
		}
		known = got
		if _, asks, ok := c.GiveCredit(1, 5, known); !ok || asks != (words[3]>>32 == 5) {
			t.Fatalf("asks %v, %v, the word is %#x", asks, ok, words[3])
		}
	}
}
