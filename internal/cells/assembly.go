package cells

// Assembly is the PDU that is arriving on one channel. Its zero value awaits the first
// cell. It keeps no data: payloads go where the caller wants them, as they are, and the
// padding and the trailer of the last cell with them.
type Assembly struct {
	crc   CRC
	cells int
}

// CRC returns the state behind the cells that have come; StartCRC between PDUs. What stood
// at the end of a PDU is in its trailer.
func (a *Assembly) CRC() CRC {
	if a.cells == 0 {
		return StartCRC
	}
	return a.crc
}

// Reset forgets what has come of a PDU.
func (a *Assembly) Reset() { *a = Assembly{} }

// AddRun takes the next cells of the channel that carry users' data (Header.User), of which only the last one may be
// the last of a PDU. With that cell it returns the PDU's trailer, or says what is wrong with it: ErrCRC, ErrLength
// or ErrAborted. In either case the next cell begins another PDU. Of a PDU that has more than MaxCells cells, each
// further run fails with ErrLength, the last one too. Without any cells it fails with ErrLength and changes nothing.
func (a *Assembly) AddRun(payloads [][PayloadSize]byte, last bool) (Trailer, error) {
	n := len(payloads)
	if n == 0 {
		return Trailer{}, ErrLength
	}
	crc := a.CRC().run(payloads)
	// A PDU that never ends is not counted any further.
	cells := min(a.cells+n, MaxCells+1)
	if !last {
		a.crc, a.cells = crc, cells
		if cells > MaxCells {
			return Trailer{}, ErrLength
		}
		return Trailer{}, nil
	}
	a.Reset()
	t := ParseTrailer((*[TrailerSize]byte)(payloads[n-1][PayloadSize-TrailerSize:]))
	switch {
	case cells > MaxCells:
		return t, ErrLength
	case crc != residue:
		return t, ErrCRC
	case t.Length == 0:
		return t, ErrAborted
	case Count(int(t.Length)) != cells:
		return t, ErrLength
	}
	return t, nil
}
