package images

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// view loads what all pulse programs look at: R2 the frame's length, R3 what has
// arrived, R0 what of it has not been sent.
func view() asm.Instructions {
	return asm.Instructions{
		note(asm.LoadMem(asm.R2, asm.R1, abi.PulseLength, asm.Word), "length"),
		note(asm.LoadMem(asm.R3, asm.R1, abi.PulseArrived, asm.Word), "arrived"),
		note(asm.LoadMem(asm.R4, asm.R1, abi.PulseSent, asm.Word), "sent"),
		note(asm.Mov.Reg(asm.R0, asm.R3), "available = arrived - sent"),
		asm.Sub.Reg(asm.R0, asm.R4),
	}
}

// storeAndForward is pipeline.StoreAndForward.
func storeAndForward() asm.Instructions {
	return append(view(),
		note(asm.JEq.Reg(asm.R3, asm.R2, "all"), "the frame has arrived: all of it"),
		note(asm.Mov.Imm(asm.R0, 0), "wait"),
		asm.Return().WithSymbol("all"),
	)
}

// cutThrough is pipeline.Static with a pulse of MINPULSE bytes.
func cutThrough() asm.Instructions {
	return append(view(),
		note(asm.LoadMem(asm.R5, asm.R1, abi.PulseMinimum, asm.Word), "pulse = minimum"),
		asm.JGE.Reg(asm.R0, asm.R5, "pulse"),
		note(asm.JEq.Reg(asm.R3, asm.R2, "all"), "the end of the frame"),
		note(asm.Mov.Imm(asm.R0, 0), "wait"),
		asm.Ja.Label("all"),
		asm.Mov.Reg(asm.R0, asm.R5).WithSymbol("pulse"),
		asm.Return().WithSymbol("all"),
	)
}

// amp is pipeline.Eager with a threshold of MINPULSE bytes.
func amp() asm.Instructions {
	return append(view(),
		note(asm.LoadMem(asm.R5, asm.R1, abi.PulseMinimum, asm.Word), "threshold = minimum"),
		note(asm.JGE.Reg(asm.R0, asm.R5, "all"), "enough: all that is there"),
		note(asm.JEq.Reg(asm.R3, asm.R2, "all"), "the end of the frame"),
		note(asm.Mov.Imm(asm.R0, 0), "wait"),
		asm.Return().WithSymbol("all"),
	)
}
