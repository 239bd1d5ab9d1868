package channel

import "github.com/trapeze-nic/trapeze/via"

// Placement has a page of data travel between a header and a trailer as one message and land
// aligned, copied by nobody (MINI's NFS packet): the header ends page 0, the data fill page 1,
// and the trailer, whose length may vary, begins page 0, since offsets wrap at the end of the
// double page. The header's length is fixed, so that both ends know where it begins.

// slack is what follows a message at most, in bytes: padding and trailer of AAL5 up to a
// whole cell, CRC and clock.
const slack = 55 + 2*Word

// header checks the length of a header and returns where it begins, in words.
func (c *Channel) header(op string, size, trailer int) (start int, err error) {
	page := c.recv.size
	if size < 0 || size%Word != 0 || trailer < 0 || size+trailer+slack > page-Word {
		return 0, refuse(c.nic, op, via.ErrInvalidParameter,
			"a header of %d bytes and a trailer of %d: the header has whole words, and both, with %d bytes more, must fit a page", size, trailer, slack)
	}
	return (page - size) / Word, nil
}

// SendPlaced sends header, page 1 of SendPages as it is, and trailer as one message. The header is
// copied to the end of page 0, the trailer to its beginning; the page is sent from where it is,
// whole, so that who has less data clears the rest. None of the three may change before the message
// has left, see Left: nor may SendPlaced be called again before that.
//
// It fails with via.ErrInvalidParameter if the header does not have whole words, or if the two
// and 71 bytes more do not fit a page less a word, and as Send does.
func (c *Channel) SendPlaced(p Priority, header, trailer []byte) error {
	start, err := c.header("send placed", len(header), len(trailer))
	if err != nil {
		return err
	}
	c.send.Put(start, header)
	stop := c.send.Put(0, trailer)
	return c.Send(p, start, stop)
}

// AllowPlaced makes room for a message of SendPlaced with a header of so many bytes, whole words.
// It is called before each one is sent, and fails as Allow does.
func (c *Channel) AllowPlaced(header int) error {
	start, err := c.header("allow placed", header, 0)
	if err != nil {
		return err
	}
	return c.Allow(start, start-1)
}

// Placed returns the parts of a message of SendPlaced that has come, where they are in RecvPages:
// data are page 1, aligned to its size. They are there until the next message may be stored. The
// trailer is filled up to whole words. Placed fails with m.Err, with ErrLength (bare) if the
// message did not begin where AllowPlaced had it, is shorter than a header of that size and a page,
// or the channel is Spaced, and with ErrClosed (bare). Such a message may be one of Send: see View.
func (c *Channel) Placed(m PDU, header int) (head, data, trailer []byte, err error) {
	start, err := c.header("read placed", header, 0)
	switch {
	case err != nil:
		return nil, nil, nil, err
	case m.Err != nil:
		return nil, nil, nil, m.Err
	case c.spaced || m.Start != start || m.Length < header+c.recv.size || m.Length > header+c.recv.size+start*Word:
		return nil, nil, nil, ErrLength
	}
	first := c.recv.Page(0)
	if first == nil {
		return nil, nil, nil, ErrClosed
	}
	trailing := m.Length - header - c.recv.size
	return first[start*Word:], c.recv.Page(1), first[:trailing:trailing], nil
}
