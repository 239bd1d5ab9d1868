package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// errBadAnswer: the kernel's structure contradicts itself.
var errBadAnswer = errors.New("the kernel's answer makes no sense")

// maxAnswer bounds how much the kernel may want to say in one structure.
const maxAnswer = 1 << 20

// askWithCaps asks for a structure whose first field is its size and that the
// kernel may want to append capabilities to: it then writes how much room that
// takes, and is asked again.
func askWithCaps(request []byte, ask func([]byte) error) ([]byte, error) {
	b := append([]byte(nil), request...)
	for range 4 { // what there is to say hardly changes between two questions
		if err := ask(b); err != nil {
			return nil, err
		}
		want := int(binary.NativeEndian.Uint32(b))
		if want <= len(b) {
			return b, nil
		}
		if want > maxAnswer {
			return nil, fmt.Errorf("%w: it would take %d bytes", errBadAnswer, want)
		}
		b = append(append([]byte(nil), request...), make([]byte, want-len(request))...)
		binary.NativeEndian.PutUint32(b, uint32(want))
	}
	return nil, fmt.Errorf("%w: it grows with each question", errBadAnswer)
}

// walkCaps calls f with each capability of a structure, the first at offset
// first. f is given the capability from its header to the end of b.
func walkCaps(b []byte, first uint32, f func(h capHeader, body []byte) error) error {
	last := uint32(0)
	for at := first; at != 0; {
		if at <= last || uint64(at) > uint64(len(b)) {
			return fmt.Errorf("%w: a capability at offset %d of %d bytes, after one at %d", errBadAnswer, at, len(b), last)
		}
		h, ok := load[capHeader](b[at:])
		if !ok {
			return fmt.Errorf("%w: the capability at offset %d is cut off", errBadAnswer, at)
		}
		if err := f(h, b[at:]); err != nil {
			return err
		}
		last, at = at, h.next
	}
	return nil
}

// rangesCap reads a capability that holds a count and as many pairs of 64 bits:
// sparse areas and IOVA ranges are both laid out so.
func rangesCap(body []byte) ([][2]uint64, error) {
	const header = 16
	if len(body) < header {
		return nil, fmt.Errorf("%w: a list is cut off", errBadAnswer)
	}
	n := uint64(binary.NativeEndian.Uint32(body[8:]))
	if n*16 > uint64(len(body)-header) {
		return nil, fmt.Errorf("%w: a list of %d entries in %d bytes", errBadAnswer, n, len(body))
	}
	list := make([][2]uint64, n)
	for i := range list {
		e := body[header+16*i:]
		list[i] = [2]uint64{binary.NativeEndian.Uint64(e), binary.NativeEndian.Uint64(e[8:])}
	}
	return list, nil
}
