package cells

// Cutter cuts the PDUs of one channel into cells. Its zero value has nothing to send.
//
// The bytes of a PDU stay where they are until their cell's turn comes. So for each cell
// the Cutter is asked twice: Next says how many bytes the cell takes, the caller puts them
// at the beginning of its payload, and Seal adds padding and trailer where they belong.
type Cutter struct {
	crc    CRC
	left   int // bytes of the PDU that have not been taken
	tail   Trailer
	active bool // cells are still to be sent
	cut    bool // given up: the next cell is the last
}

// Start begins a PDU of length bytes, 1 to MaxPDU, with the users' byte UU. It fails with
// ErrLength, and with ErrUnfinished while cells of another PDU are still to be sent; then
// nothing has changed.
func (c *Cutter) Start(length int, uu uint8) error {
	switch {
	case c.active:
		return ErrUnfinished
	case length < 1 || length > MaxPDU:
		return ErrLength
	}
	*c = Cutter{crc: StartCRC, left: length, tail: Trailer{UU: uu, Length: uint16(length)}, active: true}
	return nil
}

// Active reports whether cells are still to be sent.
func (c *Cutter) Active() bool { return c.active }

// CRC returns the state behind the cells that were sealed.
func (c *Cutter) CRC() CRC { return c.crc }

// Next returns how many bytes of the PDU the next cell carries, 0 to PayloadSize, and
// whether it is the last cell. It may be asked again and changes nothing. A PDU whose
// trailer has no room behind its last bytes ends with a cell that carries none. Without a
// PDU it answers 0 and false.
func (c *Cutter) Next() (bytes int, last bool) {
	if !c.active {
		return 0, false
	}
	if c.cut {
		return 0, true
	}
	return min(c.left, PayloadSize), c.left <= PayloadSize-TrailerSize
}

// Whole returns the number of next cells that carry PayloadSize bytes of the PDU each. It does not
// count the last cell, which has at least the trailer.
func (c *Cutter) Whole() int { return c.left / PayloadSize }

// SealRun is Seal for as many of the next cells as there are payloads, at most Whole. It fails
// with ErrLength, and changes nothing, if there are more.
func (c *Cutter) SealRun(payloads [][PayloadSize]byte) error {
	if len(payloads) > c.Whole() {
		return ErrLength
	}
	c.left -= len(payloads) * PayloadSize
	c.crc = c.crc.run(payloads)
	return nil
}

// Seal completes the next cell, of which the caller has put in as many bytes as Next said:
// the rest becomes padding and, in the last cell, trailer. Without a PDU it does nothing.
func (c *Cutter) Seal(payload *[PayloadSize]byte) {
	if !c.active {
		return
	}
	if c.Whole() > 0 {
		c.left -= PayloadSize
		c.crc = c.crc.cell(payload)
		return
	}
	bytes, last := c.Next()
	c.left -= bytes
	clear(payload[bytes:])
	if !last {
		c.crc = c.crc.cell(payload)
		return
	}
	const at = PayloadSize - TrailerSize
	trailer := (*[TrailerSize]byte)(payload[at:])
	c.tail.Put(trailer)
	c.tail.CRC = c.crc.lastCell(payload).Sum()
	c.tail.Put(trailer)
	c.crc, c.active = residue, false // as it is behind every PDU
}

// Abort gives up the PDU that is under way: its next cell is the last and tells so with the
// length 0 (I.363.5, 9.2.1.2). The receiver then discards what it has and is ready for
// the next PDU. Without a PDU it does nothing.
func (c *Cutter) Abort() {
	if c.active {
		c.left, c.cut, c.tail.Length = 0, true, 0
	}
}
