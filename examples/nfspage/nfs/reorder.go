package nfs

import "encoding/binary"

// MaxPacket is the longest packet in bytes: the length of an IP packet has 16 bits.
const MaxPacket = 1<<16 - 1

// Parts of a packet in the order in which they are sent.
type Parts struct {
	Fixed []byte // Kind.FixedSize bytes: headers of IP and UDP, the words of the message, zeros
	Data  []byte // of the file, at most MaxPacket bytes less what is around them
	// Attributes are the fields that vary, in the order of the packet, and the padding of the data: of a
	// reply at most 400 bytes of verifier, 84 of attributes and 3, of a request twice 400 of
	// credentials and verifier, 64 of file handle and 3.
	Attributes []byte
}

// Reorder takes a packet apart: an IPv4 packet that is no fragment and has no options, with
// UDP. Data is then the packet's own memory; Fixed and Attributes are written to p's, which
// is used again: so nothing is allocated once they are large enough. It fails with an *Error that
// names the field, and p is then of no use: ErrOther if the packet is to be sent as it is, ErrShort
// and ErrLength if no reader should take it.
func Reorder(k Kind, packet []byte, p *Parts) error {
	if k >= kinds {
		return &Error{"kind", uint64(k), ErrOther}
	}
	if err := checkHeaders(packet); err != nil {
		return err
	}
	r := reader{left: packet[headersSize:]}
	p.Fixed = append(p.Fixed[:0], packet[:headersSize]...)
	p.Data, p.Attributes = nil, p.Attributes[:0]
	count := uint32(0)
	for _, f := range fields[k] {
		v, err := r.word(f.name)
		if err != nil {
			return err
		}
		p.Fixed = binary.BigEndian.AppendUint32(p.Fixed, v)
		body, isData, err := f.check(v, &count)
		if err != nil {
			return err
		}
		bytes, padding, err := r.bytes(f.name, body)
		if err != nil {
			return err
		}
		if isData {
			p.Data = bytes
		} else {
			p.Attributes = append(p.Attributes, bytes...)
		}
		p.Attributes = append(p.Attributes, padding...)
	}
	if len(r.left) > 0 {
		return &Error{"bytes behind the data", uint64(len(r.left)), ErrLength}
	}
	for len(p.Fixed) < k.FixedSize() {
		p.Fixed = append(p.Fixed, 0)
	}
	return nil
}

// Restore appends the packet that the parts were to b. They may be anything: what Reorder
// could not have made is refused with an *Error, and b is returned as it was.
func Restore(k Kind, p *Parts, b []byte) ([]byte, error) {
	if k >= kinds {
		return b, &Error{"kind", uint64(k), ErrOther}
	}
	if len(p.Fixed) != k.FixedSize() {
		return b, &Error{"fixed part", uint64(len(p.Fixed)), ErrLength}
	}
	start, count := len(b), uint32(0)
	out := append(b, p.Fixed[:headersSize]...)
	fixed, varying := reader{left: p.Fixed[headersSize:]}, reader{left: p.Attributes}
	data := reader{left: p.Data}
	for _, f := range fields[k] {
		v, err := fixed.word(f.name)
		if err != nil {
			return b, err
		}
		out = binary.BigEndian.AppendUint32(out, v)
		body, isData, err := f.check(v, &count)
		if err != nil {
			return b, err
		}
		from := &varying
		if isData {
			from = &data
		}
		bytes, err := from.take(f.name, int(body))
		if err != nil {
			return b, err
		}
		padding, err := varying.take(f.name, paddingOf(int(body)))
		if err != nil {
			return b, err
		}
		out = append(append(out, bytes...), padding...)
	}
	if n := len(data.left) + len(varying.left); n > 0 {
		return b, &Error{"bytes that belong to nothing", uint64(n), ErrLength}
	}
	for _, v := range fixed.left {
		if v != 0 {
			return b, &Error{"end of the fixed part", uint64(v), ErrLength}
		}
	}
	if err := checkHeaders(out[start:]); err != nil {
		return b, err
	}
	return out, nil
}

// Lengths returns how many bytes of data, 0 to MaxPacket, and of attributes belong to a first part,
// so that a receiver knows where they end: it holds them against what has come. It fails with an
// *Error, as Reorder does for the same words.
func Lengths(k Kind, fixed []byte) (data, attributes int, err error) {
	if k >= kinds {
		return 0, 0, &Error{"kind", uint64(k), ErrOther}
	}
	if len(fixed) != k.FixedSize() {
		return 0, 0, &Error{"fixed part", uint64(len(fixed)), ErrLength}
	}
	r, count := reader{left: fixed[headersSize:]}, uint32(0)
	for _, f := range fields[k] {
		v, err := r.word(f.name)
		if err != nil {
			return 0, 0, err
		}
		body, isData, err := f.check(v, &count)
		if err != nil {
			return 0, 0, err
		}
		if isData {
			data = int(body)
		} else {
			attributes += int(body)
		}
		attributes += paddingOf(int(body))
	}
	return data, attributes, nil
}

// check holds a field's word to the protocol and returns how many bytes follow it, without
// padding, and whether they are the data. count is the word that these are held against.
func (f *field) check(v uint32, count *uint32) (body uint32, isData bool, err error) {
	switch f.form {
	case constant:
		if v != f.value {
			return 0, false, &Error{f.name, uint64(v), ErrOther}
		}
	case counted:
		*count = v
	case opaque:
		if v > f.value {
			return 0, false, &Error{f.name, uint64(v), ErrLength}
		}
		return v, false, nil
	case optional:
		if v > 1 {
			return 0, false, &Error{f.name, uint64(v), ErrLength}
		}
		return v * f.value, false, nil
	case content:
		if v != *count || v > MaxPacket {
			return 0, false, &Error{f.name, uint64(v), ErrLength}
		}
		return v, true, nil
	}
	return 0, false, nil
}

// paddingOf returns how many bytes follow n others up to a multiple of four, RFC 4506, 4.10.
func paddingOf(n int) int { return -n & (wordSize - 1) }

// reader takes bytes from the front.
type reader struct{ left []byte }

func (r *reader) take(name string, n int) ([]byte, error) {
	if n > len(r.left) {
		return nil, &Error{name, uint64(n), ErrShort}
	}
	b := r.left[:n:n]
	r.left = r.left[n:]
	return b, nil
}

func (r *reader) word(name string) (uint32, error) {
	b, err := r.take(name, wordSize)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(b), nil
}

// bytes takes n bytes and what pads them.
func (r *reader) bytes(name string, n uint32) (bytes, padding []byte, err error) {
	if bytes, err = r.take(name, int(n)); err == nil {
		padding, err = r.take(name, paddingOf(int(n)))
	}
	return bytes, padding, err
}
