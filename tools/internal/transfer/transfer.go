// Package transfer sends one file over a stream of bytes, as a via.Stream is one.
//
//	sender    {"name":…,"size":…,"mode":…}  chunk … chunk  0  {"bytes":…,"sha256":…}
//	receiver                                                                          {"bytes":…,"sha256":…}
//
// Braces stand for one line of JSON. A chunk is its length in four bytes, the lowest first, and
// so many bytes of the file; a length of 0 ends them. So a sender can send a stream of unknown
// size, and say in the middle why it gives up. The receiver compares the SHA-256, makes the file
// durable, and only then answers. A side that fails sends a line with a reason in place of the
// digest. The other side is not trusted: each field is checked, and an odd one ends the transfer
// with ErrProtocol.
package transfer

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds in bytes.
const (
	MaxName = 255 // of a file; Linux takes no longer one
	MaxText = 512 // of a reason's details
	MaxSize = 1 << 60
	maxLine = 4 << 10   // holds a name, or a reason with its details, with every byte escaped
	chunk   = 256 << 10 // with its length, as one message of the link
	prefix  = 4         // a chunk's length
)

// UnknownSize stands in an offer for a stream whose length is not known.
const UnknownSize = -1

// abortTimeout bounds how long a side that ends a transfer tries to tell why, or to learn it.
const abortTimeout = 500 * time.Millisecond

// Conn carries the bytes. It is a via.Stream.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// Offer describes the file that a sender offers.
type Offer struct {
	Name string      `json:"name"` // a base name, see CheckName
	Size int64       `json:"size"` // bytes, or UnknownSize
	Mode fs.FileMode `json:"mode"` // permission bits
}

func (o *Offer) check() error {
	switch {
	case o.Size > MaxSize || o.Size < UnknownSize:
		return malformed("offer of %d bytes", o.Size)
	case o.Mode&^fs.ModePerm != 0:
		return malformed("offer with file mode %#o", uint32(o.Mode))
	}
	return CheckName(o.Name)
}

// limit is the largest number of bytes that may come.
func (o *Offer) limit() int64 {
	if o.Size == UnknownSize {
		return MaxSize
	}
	return o.Size
}

// complete compares the offer with the number of bytes in the file.
func (o *Offer) complete(n int64) error {
	switch {
	case n > o.limit():
		return fmt.Errorf("%w: there are more than %d bytes", ErrSize, o.limit())
	case o.Size != UnknownSize && n < o.Size:
		return fmt.Errorf("%w: it ended after %d of %d bytes", ErrSize, n, o.Size)
	}
	return nil
}

// ending is the last line of either side: the file that it has sent or stored, or why it failed.
type ending struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Reason Reason `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
}

// endingOf is the line about a failure. Paths of this machine do not go to the peer; the system's
// word about them is useful.
func endingOf(err error) ending {
	e := ending{Reason: reasonOf(err)}
	var path *fs.PathError
	switch {
	case errors.As(err, &path):
		e.Text = plain(path.Err.Error())
	case errors.Is(err, ErrProtocol):
		e.Text = plain(err.Error())
	}
	return e
}

// readEnding waits for the other side's line. A failure becomes a RemoteError.
func readEnding(in *bufio.Reader) (e ending, err error) {
	if err := readLine(in, &e); err != nil {
		return e, err
	}
	digest, err := hex.DecodeString(e.SHA256)
	switch {
	case len(e.Text) > MaxText || len(e.Reason) > MaxText || !printable(string(e.Reason)+e.Text):
		return e, malformed("it fails for reason %.64q: %.64q", string(e.Reason), e.Text)
	case e.Reason != "":
		return e, &RemoteError{Reason: e.Reason, Text: e.Text}
	case e.Bytes < 0 || err != nil || len(digest) != 32:
		return e, malformed("end of %d bytes with the digest %.64q", e.Bytes, e.SHA256)
	}
	return e, nil
}

// line encodes an Offer or an ending, which cannot fail.
func line(v any) []byte {
	b, _ := json.Marshal(v)
	return append(b, '\n')
}

// readLine reads one line into v.
func readLine(in *bufio.Reader, v any) error {
	b, err := in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return malformed("a line is longer than %d bytes", maxLine)
	case err != nil:
		return Lost(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return malformed("%v", err)
	}
	return nil
}

// chunks reads the file out of a stream.
type chunks struct {
	in       *bufio.Reader
	offer    *Offer
	got      int64  // bytes of the chunks so far
	left     uint32 // of the chunk
	progress func(n int)
}

func (c *chunks) Read(p []byte) (n int, err error) {
	if c.left == 0 {
		var length [prefix]byte
		if _, err := io.ReadFull(c.in, length[:]); err != nil {
			return 0, Lost(err)
		}
		if c.left = binary.LittleEndian.Uint32(length[:]); c.left == 0 {
			return 0, io.EOF
		}
		if c.got += int64(c.left); c.got > c.offer.limit() {
			return 0, c.offer.complete(c.got)
		}
	}
	n, err = c.in.Read(p[:min(len(p), int(c.left))])
	c.left -= uint32(n)
	if c.progress != nil {
		c.progress(n)
	}
	return n, Lost(err)
}

// CheckName says whether name can be a file's name in any directory: a base
// name of printable characters. Errors wrap ErrProtocol.
func CheckName(name string) error {
	switch {
	case name == "" || len(name) > MaxName:
		return malformed("file name of %d bytes", len(name))
	case name == "." || name == ".." || strings.ContainsRune(name, '/'):
		return malformed("file name %q is not a base name", name)
	case !printable(name):
		return malformed("file name %q is not printable", name)
	}
	return nil
}

// printable refuses what could steer a terminal.
func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// plain makes s fit a reason's details.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	return strings.ToValidUTF8(s[:min(len(s), MaxText)], "")
}
