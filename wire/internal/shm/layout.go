package shm

import (
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// creditsSize is the size of the credit words of one direction.
const creditsSize = ends.CreditWords * 8

// fileSize is the size of the memory of a connection.
func fileSize(ring int) int { return 2 * (line.Size(ring) + creditsSize) }

// lay lays both directions over the memory of a connection, as the side that listens sees them, or the other.
func lay(mem []byte, ring int, listening bool) (to, from line.Half, credits ends.CreditEnd) {
	size := line.Size(ring)
	to, from = line.Lay(mem, ring), line.Lay(mem[size:], ring)
	words := line.WordsAt(mem[2*size:][:2*creditsSize])
	credits = ends.CreditEnd{Sends: words[:ends.CreditWords], Receives: words[ends.CreditWords:]}
	if !listening {
		to, from = from, to
		credits.Sends, credits.Receives = credits.Receives, credits.Sends
	}
	return to, from, credits
}
