package agent

// greed bounds what one sender may have in a client's memory: so many times the room that is left
// (dynamic thresholds, Choudhury and Hahne 1998, with alpha = 4). One that floods it leaves a fifth
// to others, two leave a ninth.
const greed = 4

// claims are of the frames in a client's memory that it has not released: whose they are. The goroutine
// that passes frames on has them.
type claims struct {
	frames []claim // oldest first, from first on
	first  int
	all    uint64 // bytes
	held   map[*client]uint64
}

// claim is of the bytes of one frame. nil is the NIC's port.
type claim struct {
	from  *client
	bytes uint64
	end   uint32 // position behind it
}

// A port's memory (wire/internal/line) has a slot for a frame in each leastClaim bytes, and a frame takes whole cache lines.
const (
	leastClaim = 256
	wholeClaim = 64
)

// admit reports whether a sender may put one more frame into memory of size bytes. The client has released the frames
// up to position taken.
func (c *claims) admit(from *client, taken, size uint32) bool {
	for ; c.first < len(c.frames) && int32(c.frames[c.first].end-taken) <= 0; c.first++ {
		f := c.frames[c.first]
		c.all -= f.bytes
		if c.held[f.from] -= f.bytes; c.held[f.from] == 0 {
			delete(c.held, f.from)
		}
	}
	if 2*c.first >= len(c.frames) {
		c.frames, c.first = c.frames[:copy(c.frames, c.frames[c.first:])], 0
	}
	return c.held[from] <= greed*(uint64(size)-min(c.all, uint64(size)))
}

// add takes note of a frame of n bytes with the position end behind it.
func (c *claims) add(from *client, n int, end uint32) {
	if c.held == nil {
		c.held = map[*client]uint64{}
	}
	bytes := uint64(max((n+wholeClaim-1)&^(wholeClaim-1), leastClaim))
	c.all += bytes
	c.held[from] += bytes
	c.frames = append(c.frames, claim{from, bytes, end})
}
