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
	held   map[*client]uint64
}

// claim is of the bytes of one frame. nil is the NIC's port.
type claim struct {
	from  *client
	bytes uint32
	end   uint32 // position behind them
}

// admit reports whether a sender may put one more frame into memory of size bytes, of which those from
// freed to head are used.
func (c *claims) admit(from *client, freed, head, size uint32) bool {
	for ; c.first < len(c.frames) && int32(c.frames[c.first].end-freed) <= 0; c.first++ {
		f := c.frames[c.first]
		if c.held[f.from] -= uint64(f.bytes); c.held[f.from] == 0 {
			delete(c.held, f.from)
		}
	}
	if 2*c.first >= len(c.frames) {
		c.frames, c.first = c.frames[:copy(c.frames, c.frames[c.first:])], 0
	}
	return c.held[from] <= greed*uint64(size-(head-freed))
}

// add takes note of a frame that stands from head to end.
func (c *claims) add(from *client, head, end uint32) {
	if c.held == nil {
		c.held = map[*client]uint64{}
	}
	c.held[from] += uint64(end - head)
	c.frames = append(c.frames, claim{from, end - head, end})
}
