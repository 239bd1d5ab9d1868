package checker

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// maxOffset bounds offsets of addresses, as BPF_MAX_VAR_OFF does in the kernel
// (linux/bpf_verifier.h): no sum of a few of them overflows.
const maxOffset = 1 << 29

type use uint8

const (
	useLoad use = iota
	useStore
	useAtomic
	useArgument // of a helper, which reads
)

// load checks a load and sets its destination.
func (e *explorer) load(s *state, ins *Instruction) *Refusal {
	base := &s.regs[ins.Src]
	if r := readable(s, ins.Src); r != nil {
		return r
	}
	// The kernel rewrites loads from the context, so each is one or is not.
	from := &e.loads[e.at]
	if *from != kindNone && (*from == kindContext) != (base.kind == kindContext) {
		return refuse(ErrPointer, "a load from %v on one path and from %v on another", *from, base.kind)
	}
	*from = base.kind
	var value register
	var r *Refusal
	switch base.kind {
	case kindContext:
		value, r = e.loadContext(base, ins)
	case kindStack:
		value, r = e.loadFromStack(s, base, ins)
	default:
		value, r = loaded(ins), e.access(s, base, ins.Offset, ins.Size, useLoad)
	}
	if r == nil {
		s.regs[ins.Dst] = value
	}
	return r
}

func (e *explorer) loadFromStack(s *state, base *register, ins *Instruction) (register, *Refusal) {
	lowest, highest, r := e.stackExtent(base, ins.Offset, ins.Size, ins.Size)
	if r != nil {
		return register{}, r
	}
	if highest-lowest != ins.Size {
		return loaded(ins), s.readStack(lowest, highest)
	}
	value, r := s.loadStack(lowest, ins.Size)
	if r != nil || !ins.Extend {
		return value, r
	}
	if value.isPointer() {
		return value, refuse(ErrPointer, "an address is loaded with its sign extended")
	}
	if !value.num.Fits(8*ins.Size - 1) {
		value.forget()
	}
	value.num = value.num.SignExtend(ins.Size)
	return value, nil
}

// store checks a store of a register or of a constant, and enters it.
func (e *explorer) store(s *state, ins *Instruction, value *register) *Refusal {
	base := &s.regs[ins.Dst]
	if r := readable(s, ins.Dst); r != nil {
		return r
	}
	if base.kind == kindStack {
		lowest, highest, r := e.stackExtent(base, ins.Offset, ins.Size, ins.Size)
		switch {
		case r != nil:
			return r
		case highest-lowest == ins.Size:
			if ins.Register && value.num.Fits(8*ins.Size) {
				e.share(value)
			}
			return s.storeStack(lowest, ins.Size, value)
		case value.isPointer():
			return refuse(ErrPointer, "%v is stored at an offset of the stack that is not known", value)
		}
		s.blurStack(lowest, highest)
		return nil
	}
	if r := e.access(s, base, ins.Offset, ins.Size, useStore); r != nil {
		return r
	}
	if value.isPointer() {
		return refuse(ErrLeak, "%v would be stored in %v", value, base.kind)
	}
	return nil
}

// atomic checks an atomic operation and enters what it does.
func (e *explorer) atomic(s *state, ins *Instruction) *Refusal {
	base := s.regs[ins.Dst]
	if r := readable(s, ins.Dst); r != nil {
		return r
	}
	operands := []uint8{ins.Src}
	if ins.Atomic == asm.CmpXchg {
		operands = append(operands, 0)
	}
	for _, n := range operands {
		if r := readable(s, n); r != nil {
			return r
		}
		if s.regs[n].isPointer() {
			return refuse(ErrLeak, "%v would be stored by an atomic operation", &s.regs[n])
		}
	}
	if r := e.access(s, &base, ins.Offset, ins.Size, useAtomic); r != nil {
		return r
	}
	if fetched, ok := ins.fetches(); ok {
		s.regs[fetched] = loaded(ins)
	}
	return nil
}

// access checks an access to memory of any kind that may be accessed so, except
// loads from and stores to the stack.
func (e *explorer) access(s *state, base *register, off, size int, use use) *Refusal {
	switch base.kind {
	case kindValue:
		return e.accessValue(base, off, size, use)
	case kindPacket:
		return e.accessPacket(base, off, size, use)
	case kindStack:
		return e.useStack(s, base, off, size, use)
	case kindValueOrNull:
		return refuse(ErrNull, "the answer of the lookup was not compared with null")
	case kindNumber:
		return refuse(ErrNotPointer, "%v is used as an address", base)
	case kindContext:
		if use == useStore || use == useAtomic {
			return refuse(ErrReadOnly, "the context is read only")
		}
	}
	return refuse(ErrNotPointer, "%v is not accessible memory here", base.kind)
}

func (e *explorer) accessValue(base *register, off, size int, use use) *Refusal {
	m := &e.maps[base.mapIndex]
	if m.Flags&abi.MapReadOnly != 0 && (use == useStore || use == useAtomic) {
		return refuse(ErrReadOnly, "map %q is read only", m.Name)
	}
	start := int64(base.off) + int64(off)
	if base.num.SMin() < 0 {
		return refuse(ErrBounds, "the variable part of the offset in a value of map %q, %v, may be negative", m.Name, base.num)
	}
	lowest, highest := start+base.num.SMin(), start+int64(base.num.UMax())+int64(size)
	if lowest < 0 || highest > int64(m.Value) {
		return refuse(ErrBounds, "bytes %d to %d of a value of map %q, which has %d", lowest, highest-1, m.Name, m.Value)
	}
	if use == useAtomic && !aligned(base, off, size) {
		return refuse(ErrAlignment, "an atomic operation on %d bytes at %d of a value", size, lowest)
	}
	return nil
}

func (e *explorer) accessPacket(base *register, off, size int, use use) *Refusal {
	switch {
	case use == useAtomic:
		return refuse(ErrNotPointer, "atomic operations on the frame do not exist")
	case use == useStore && e.hook != abi.FilterTx && e.hook != abi.FilterRx:
		return refuse(ErrReadOnly, "only filter hooks may store to the frame")
	case base.num.SMin() < 0:
		return refuse(ErrBounds, "the variable part of the offset in the frame, %v, may be negative", base.num)
	}
	start := int64(base.off) + int64(off)
	if start < 0 || start+int64(size) > int64(base.verified) {
		return refuse(ErrBounds, "bytes %d to %d of the frame, of which a comparison with its end has shown %d to be there",
			start, start+int64(size)-1, base.verified)
	}
	return nil
}

// useStack checks an atomic operation on the stack, or a helper's argument in it.
func (e *explorer) useStack(s *state, base *register, off, size int, use use) *Refusal {
	alignment := 1
	if use == useAtomic {
		alignment = size
	}
	lowest, highest, r := e.stackExtent(base, off, size, alignment)
	if r != nil {
		return r
	}
	if use == useAtomic && highest-lowest != size {
		return refuse(ErrBounds, "an atomic operation at an offset of the stack that is not known")
	}
	if r := s.readStack(lowest, highest); r != nil {
		return r
	}
	if use == useAtomic {
		s.blurStack(lowest, highest)
	}
	return nil
}

// stackExtent checks an access of the stack and returns the first offset that it may
// touch and the one behind the last.
func (e *explorer) stackExtent(base *register, off, size, alignment int) (lowest, highest int, r *Refusal) {
	start := int64(base.off) + int64(off)
	from, to := start+base.num.SMin(), start+base.num.SMax()+int64(size)
	if from < -abi.StackSize || to > 0 {
		return 0, 0, refuse(ErrBounds, "r10%+d to r10%+d, of a stack from r10-%d to r10-1", from, to-1, abi.StackSize)
	}
	if !aligned(base, off, alignment) {
		return 0, 0, refuse(ErrAlignment, "%d bytes at r10%+d", size, from)
	}
	e.stack = max(e.stack, -int(from))
	return int(from), int(to), nil
}

// aligned reports whether an address is a multiple of size, a power of two. All
// memory starts at multiples of 8.
func aligned(base *register, off, size int) bool {
	at := uint64(int64(base.off) + int64(off))
	return base.num.Bits().AddConst(at).Aligned(uint64(size))
}

func readable(s *state, r uint8) *Refusal {
	if s.regs[r].kind == kindNone {
		return refuse(ErrUninitialized, "r%d holds nothing on some path to here", r)
	}
	return nil
}

// fitsOffset reports whether an offset is one that addresses may have.
func fitsOffset(off int64) bool { return off > -maxOffset && off < maxOffset }
