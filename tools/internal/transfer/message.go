package transfer

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Version of the protocol. A receiver refuses every other.
const Version = 1

// Sizes in bytes and bounds of the messages.
const (
	// PrefixSize is the length of the start of every message: the letters TZFT, version,
	// kind, two zero bytes, and a 64-bit number whose meaning depends on kind.
	// All numbers are little-endian.
	PrefixSize = 16
	// DigestSize is the size of a SHA-256.
	DigestSize = 32
	// MaxName is the longest file name; Linux takes no longer one.
	MaxName = 255
	// MaxText is the longest reason in an abort.
	MaxText = 512
	// MaxSize is the largest file.
	MaxSize = 1 << 60
	// UnknownSize stands in an offer for a stream whose length is not known.
	UnknownSize = 1<<64 - 1
	// MinMessage is the smallest message size that a link must be able to carry.
	MinMessage = PrefixSize + 8 + MaxText
)

const (
	magic     = "TZFT"
	versionAt = 4
	kindAt    = 5
	zeroAt    = 6
	numberAt  = 8
)

// Kind of a message.
type Kind uint8

// Kinds of message, in the order in which a transfer sees them.
const (
	KindOffer   Kind = 1 + iota // sender: Size, Mode, Name
	KindAccept                  // receiver
	KindChunk                   // sender: Offset, Data
	KindEnd                     // sender: Size, Digest
	KindReceipt                 // receiver: Size, Digest
	KindAbort                   // either: Reason, Text
)

var kindNames = [...]string{"", "offer", "accept", "chunk", "end", "receipt", "abort"}

func (k Kind) String() string {
	if k > 0 && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Message is any message; Kind says which fields count.
type Message struct {
	Kind   Kind
	Size   uint64 // whole file in bytes
	Offset uint64 // of Data in the file
	Mode   fs.FileMode
	Name   string
	Data   []byte // not copied: it lies in the parsed message
	Digest [DigestSize]byte
	Reason Reason
	Text   string
}

// Append appends the encoding of m to b. A message that Parse would not take
// is an error that wraps ErrProtocol.
func (m *Message) Append(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, magic...)
	b = append(b, Version, byte(m.Kind), 0, 0)
	le := binary.LittleEndian
	switch m.Kind {
	case KindOffer:
		b = le.AppendUint64(b, m.Size)
		b = le.AppendUint32(b, uint32(m.Mode))
		b = le.AppendUint32(b, uint32(len(m.Name)))
		b = append(b, m.Name...)
	case KindAccept:
		b = le.AppendUint64(b, 0)
	case KindChunk:
		b = le.AppendUint64(b, m.Offset)
		b = append(b, m.Data...)
	case KindEnd, KindReceipt:
		b = le.AppendUint64(b, m.Size)
		b = append(b, m.Digest[:]...)
	case KindAbort:
		b = le.AppendUint64(b, uint64(m.Reason))
		b = le.AppendUint32(b, 0)
		b = le.AppendUint32(b, uint32(len(m.Text)))
		b = append(b, m.Text...)
	}
	if _, err := Parse(b[start:]); err != nil {
		return b[:start], err
	}
	return b, nil
}

// PutChunkPrefix writes the prefix of a chunk into b, which has room for it.
// The data follows it in place.
func PutChunkPrefix(b []byte, offset uint64) {
	copy(b, magic)
	b[versionAt], b[kindAt] = Version, byte(KindChunk)
	b[zeroAt], b[zeroAt+1] = 0, 0
	binary.LittleEndian.PutUint64(b[numberAt:], offset)
}

// Parse decodes and checks one whole message. Errors wrap ErrProtocol, or
// ErrVersion for another version of the protocol.
func Parse(b []byte) (Message, error) {
	if len(b) < PrefixSize {
		return Message{}, malformed("message of %d bytes", len(b))
	}
	if string(b[:len(magic)]) != magic {
		return Message{}, malformed("message starts with %q", b[:len(magic)])
	}
	if b[versionAt] != Version {
		return Message{}, fmt.Errorf("%w: it speaks %d, this program speaks %d", ErrVersion, b[versionAt], Version)
	}
	m := Message{Kind: Kind(b[kindAt])}
	if b[zeroAt] != 0 || b[zeroAt+1] != 0 {
		return Message{}, malformed("reserved bytes of %v message are set", m.Kind)
	}
	number, body := binary.LittleEndian.Uint64(b[numberAt:]), b[PrefixSize:]
	var err error
	switch m.Kind {
	case KindOffer:
		err = m.parseOffer(number, body)
	case KindAccept:
		if number != 0 || len(body) != 0 {
			err = malformed("accept message of %d bytes", len(b))
		}
	case KindChunk:
		err = m.parseChunk(number, body)
	case KindEnd, KindReceipt:
		err = m.parseDigest(number, body)
	case KindAbort:
		err = m.parseAbort(number, body)
	default:
		err = malformed("message of unknown %v", m.Kind)
	}
	if err != nil {
		return Message{}, err
	}
	return m, nil
}

func (m *Message) parseOffer(size uint64, body []byte) error {
	if size > MaxSize && size != UnknownSize {
		return malformed("offer of %d bytes", size)
	}
	mode, name, err := numberAndText(body, MaxName)
	if err != nil {
		return err
	}
	if mode&^uint32(fs.ModePerm) != 0 {
		return malformed("offer with file mode %#o", mode)
	}
	if err := CheckName(name); err != nil {
		return err
	}
	m.Size, m.Mode, m.Name = size, fs.FileMode(mode), name
	return nil
}

func (m *Message) parseChunk(offset uint64, body []byte) error {
	if len(body) == 0 {
		return malformed("chunk without data")
	}
	if offset > MaxSize || uint64(len(body)) > MaxSize-offset {
		return malformed("chunk at %d", offset)
	}
	m.Offset, m.Data = offset, body
	return nil
}

func (m *Message) parseDigest(size uint64, body []byte) error {
	if size > MaxSize {
		return malformed("%v of %d bytes", m.Kind, size)
	}
	if len(body) != DigestSize {
		return malformed("%v with a digest of %d bytes", m.Kind, len(body))
	}
	m.Size = size
	copy(m.Digest[:], body)
	return nil
}

func (m *Message) parseAbort(reason uint64, body []byte) error {
	if reason == 0 || reason > uint64(reasonLast) {
		return malformed("abort for reason %d", reason)
	}
	zero, text, err := numberAndText(body, MaxText)
	if err != nil {
		return err
	}
	if zero != 0 {
		return malformed("reserved bytes of abort message are set")
	}
	if !printable(text) {
		return malformed("abort with an unprintable text")
	}
	m.Reason, m.Text = Reason(reason), text
	return nil
}

// numberAndText splits a body of a 32-bit number, a 32-bit length and so many
// bytes of text.
func numberAndText(body []byte, limit int) (uint32, string, error) {
	if len(body) < 8 {
		return 0, "", malformed("body of %d bytes", len(body))
	}
	n, text := binary.LittleEndian.Uint32(body[4:]), body[8:]
	if n > uint32(limit) || int(n) != len(text) {
		return 0, "", malformed("text of %d bytes", n)
	}
	return binary.LittleEndian.Uint32(body), string(text), nil
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
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
