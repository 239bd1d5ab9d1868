package checker

import (
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker/internal/scalar"
	"github.com/trapeze-nic/trapeze/internal/abi"
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
func (e *explorer) loadContext(base *register, ins *Instruction) (register, *Refusal) {
	if base.off != 0 {
		return register{}, refuse(ErrPointer, "the context's address was changed by %d", base.off)
	}
	if e.hook.IsPulse() {
		switch {
		case ins.Offset < 0 || ins.Offset+ins.Size > abi.PulseSize:
			return register{}, refuse(ErrBounds, "%d bytes at %d of a context of %d", ins.Size, ins.Offset, abi.PulseSize)
		case ins.Size > 4 || ins.Offset%ins.Size != 0:
			return register{}, refuse(ErrAlignment, "%d bytes at %d of the context, whose fields have 4", ins.Size, ins.Offset)
		}
		return loaded(ins), nil
	}
	if ins.Offset < 0 || ins.Offset+ins.Size > abi.FrameContextSize {
		return register{}, refuse(ErrBounds, "%d bytes at %d of a context of %d", ins.Size, ins.Offset, abi.FrameContextSize)
	}
	field, ok := frameFields[ins.Offset]
	switch {
	case !ok || ins.Size != 4:
		return register{}, refuse(ErrAlignment, "%d bytes at %d of the context, whose fields are read whole", ins.Size, ins.Offset)
	case field == kindNumber:
		return loaded(ins), nil
	case ins.Extend:
		return register{}, refuse(ErrPointer, "an address is loaded with its sign extended")
	}
	return pointer(field), nil
}

// loaded is the value of a load from memory of which only the size is known.
func loaded(ins *Instruction) register {
	if ins.Extend {
		return number(scalar.Signed(ins.Size))
	}
	return number(scalar.Unsigned(ins.Size))
}
