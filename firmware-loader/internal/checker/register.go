package checker

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker/internal/scalar"
)

type kind uint8

const (
	kindNone        kind = iota // nothing yet
	kindNumber                  // a number
	kindContext                 // the address of the context
	kindStack                   // an address relative to the end of the stack
	kindMap                     // a map
	kindValueOrNull             // the answer of a lookup
	kindValue                   // an address in a value of a map
	kindPacket                  // an address in the frame
	kindMeta                    // the same, from the context's data_meta
	kindPacketEnd               // the address behind the frame
	kindFrameHalf               // the low half of one of the last three
)

var kindNames = [...]string{
	"nothing", "a number", "the context", "the stack", "a map", "a value or null", "a map's value",
	"the frame", "the frame's metadata", "the end of the frame",
	"half of an address in the frame",
}

func (k kind) String() string { return kindNames[k] }

// register is the knowledge of a register or of a spilled one. An address is that of
// its memory's start (of the stack: its end) plus off plus num.
type register struct {
	kind     kind
	mapIndex uint8 // of kindMap, kindValue and kindValueOrNull
	moved    moved // of kindNumber with an id: a constant was added, which is off
	off      int32
	// verified, of kindPacket: so many bytes from the memory's start plus num
	// are known to lie in the frame.
	verified int32
	// id, if not zero, is shared by registers that hold the same number plus their
	// own off, the answer of the same lookup, or packet addresses with the same num.
	id  uint32
	num scalar.Number
}

// moved says how a constant was added to a number that others are known to be.
type moved uint8

const (
	notMoved moved = iota
	movedWide
	movedHalf // on 32 bits. What it was added to has no more.
)

// forget says that nothing learned of other registers says anything of a number.
func (r *register) forget() { r.id, r.off, r.moved = 0, 0, notMoved }

func number(n scalar.Number) register { return register{kind: kindNumber, num: n} }

func pointer(k kind) register { return register{kind: k} }

func (r *register) isPointer() bool { return r.kind > kindNumber }

// fixed returns the offset of an address that has no variable part.
func (r *register) fixed() (off int, ok bool) {
	v, ok := r.num.Const()
	return int(r.off) + int(int64(v)), ok
}

func (r *register) String() string {
	if r.kind == kindNumber {
		return "the number " + r.num.String()
	}
	if _, ok := r.fixed(); !ok {
		return fmt.Sprintf("%v%+d and %v more", r.kind, r.off, r.num)
	}
	if r.off != 0 {
		return fmt.Sprintf("%v%+d", r.kind, r.off)
	}
	return r.kind.String()
}

// low is the number that the low bytes of a number make, so many of them. If it is
// the same number it keeps the id.
func (r *register) low(bytes int) register {
	l := number(r.num.Truncate(bytes))
	if r.num.Fits(8 * bytes) {
		l.id, l.off, l.moved = r.id, r.off, r.moved
	}
	return l
}
