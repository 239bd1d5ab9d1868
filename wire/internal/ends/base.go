package ends

// Base has what ports of most wires do in the same way. Those whose data path is a line.Line do without: it takes time there.
type Base struct {
	Wake, Link Hook // what SetWake and OnLink have set
	Longest    int  // frame, in bytes
	Damages    bool // frames, on their way
}

// MTU returns the largest frame in bytes.
func (b *Base) MTU() int { return b.Longest }

// Checksum says whether frames need a checksum of their own.
func (b *Base) Checksum() bool { return b.Damages }

func (b *Base) SetWake(f func()) { b.Wake.Set(f) }

func (b *Base) OnLink(f func()) { b.Link.Set(f) }
