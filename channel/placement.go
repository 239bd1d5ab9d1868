package channel

import "github.com/trapeze-nic/trapeze/via"

// A placed message lands with its page of data aligned, without a copy (MINI's NFS packet). Its
// header ends page 0, the data fill page 1, and the trailer begins page 0, as offsets wrap at the
// end of the double page. Both ends know the header's length; the trailer's may vary.

// slack bounds the bytes behind a message: padding and trailer of AAL5, CRC and clock.
const slack = 55 + 2*Word

// header checks the length of a header and returns its first word.
func (c *Channel) header(op string, size, trailer int) (start int, err error) {
	page := c.recv.size
	if size < 0 || size%Word != 0 || trailer < 0 || size+trailer+slack > page-Word {
		return 0, refuse(c.nic, op, via.ErrInvalidParameter,
			"a header of %d bytes and a trailer of %d: the header has whole words, and both, with %d bytes more, must fit a page", size, trailer, slack)
	}
	return (page - size) / Word, nil
}

// SendPlaced sends header, page 1 of SendPages, and trailer as one message. It copies the header to
// the end of page 0, and the trailer to its beginning. The whole of page 1 is sent in place: clear
// what you do not use. Neither page may change, nor SendPlaced be called again, before the message
// has left: see Sent.
//
// It fails with via.ErrInvalidParameter if the header has no whole words, or if both and 71 bytes
// more do not fit a page less a word. Else it fails as Send does.
func (c *Channel) SendPlaced(p Priority, header, trailer []byte) error {
	start, err := c.header("send placed", len(header), len(trailer))
	if err != nil {
		return err
	}
	c.send.Put(start, header)
	stop := c.send.Put(0, trailer)
	return c.Send(p, start, stop)
}

// AllowPlaced makes room for one message of SendPlaced with a header of so many bytes, whole
// words. It fails as Allow does.
func (c *Channel) AllowPlaced(header int) error {
	start, err := c.header("allow placed", header, 0)
	if err != nil {
		return err
	}
	return c.Allow(start, start-1)
}

// Placed returns the parts of a message of SendPlaced in RecvPages; data are page 1. The bytes hold
// until AllowPlaced or Allow gives their room away. The trailer is filled up to whole words.
//
// Placed fails with m.Err, and with via.ErrClosed (bare). It fails with ErrLength (bare) if the
// message does not begin at the place of AllowPlaced, is shorter than the header and a page, or
// the channel is Spaced. Such a message may be one of Send: see View.
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
		return nil, nil, nil, via.ErrClosed
	}
	trailing := m.Length - header - c.recv.size
	return first[start*Word:], c.recv.Page(1), first[:trailing:trailing], nil
}
