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

// SendPlaced sends header, page 1 of SendPages as it is, and trailer as one message. The
// header is copied behind the end of page 0's rest, the trailer to its beginning. None of the
// three may change before the message has left, see Left.
func (c *Channel) SendPlaced(p Priority, header, trailer []byte) error {
	start, err := c.header("send placed", len(header), len(trailer))
	if err != nil {
		return err
	}
	c.send.Put(start, header)
	stop := c.send.Put(0, trailer)
	return c.Send(p, start, stop)
}

// AllowPlaced makes room for a message of SendPlaced with a header of so many bytes.
func (c *Channel) AllowPlaced(header int) error {
	start, err := c.header("allow placed", header, 0)
	if err != nil {
		return err
	}
	return c.Allow(start, start-1)
}

// Placed returns the parts of a message of SendPlaced that has come, where they are in
// RecvPages. The trailer is filled up to whole words. It fails with m.Err, and with ErrLength
// if the message is shorter than a header of that size and a page.
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
