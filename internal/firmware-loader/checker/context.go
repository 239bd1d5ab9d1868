package checker

import (
	"github.com/trapeze-nic/trapeze/firmware-loader/abi"
	"github.com/trapeze-nic/trapeze/internal/firmware-loader/checker/internal/scalar"
)

// frameFields has what a load of each field of a frame's context gives.
var frameFields = map[int]kind{
	abi.FrameData:      kindPacket,
	abi.FrameDataEnd:   kindPacketEnd,
	abi.FrameMeta:      kindMeta,
	abi.FrameInterface: kindNumber,
	abi.FrameQueue:     kindNumber,
}

// loadContext checks a load from the context and returns what it gives.
func (e *explorer) loadContext(base *register, ins *instruction) (register, *Refusal) {
	if base.off != 0 {
		return register{}, refuse(ErrPointer, "the context's address was changed by %d", base.off)
	}
	if e.hook.IsPulse() {
		switch {
		case ins.off < 0 || ins.off+ins.size > abi.PulseSize:
			return register{}, refuse(ErrBounds, "%d bytes at %d of a context of %d", ins.size, ins.off, abi.PulseSize)
		case ins.size > 4 || ins.off%ins.size != 0:
			return register{}, refuse(ErrAlignment, "%d bytes at %d of the context, whose fields have 4", ins.size, ins.off)
		}
		return loaded(ins), nil
	}
	if ins.off < 0 || ins.off+ins.size > abi.FrameContextSize {
		return register{}, refuse(ErrBounds, "%d bytes at %d of a context of %d", ins.size, ins.off, abi.FrameContextSize)
	}
	field, ok := frameFields[ins.off]
	switch {
	case !ok || ins.size != 4:
		return register{}, refuse(ErrAlignment, "%d bytes at %d of the context, whose fields are read whole", ins.size, ins.off)
	case field == kindNumber:
		return loaded(ins), nil
	case ins.extend:
		return register{}, refuse(ErrPointer, "an address is loaded with its sign extended")
	}
	return pointer(field), nil
}

// loaded is what a load from memory gives of which only the size is known.
func loaded(ins *instruction) register {
	if ins.extend {
		return number(scalar.Signed(ins.size))
	}
	return number(scalar.Unsigned(ins.size))
}
