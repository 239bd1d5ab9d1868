package firmware

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// link replaces references to maps by name with their indices, as abi.Program
// has them, and refuses references to anything else.
func link(section string, source asm.Instructions, maps []abi.Map) (asm.Instructions, error) {
	insns := slices.Clone(source)
	at := 0
	for i := range insns {
		ins := &insns[i]
		*ins = clean(*ins)
		bad := func(format string, args ...any) error {
			return refuse(elfimage.ErrUnsupported, section, "instruction %d: "+format, append([]any{at}, args...)...)
		}
		ref := ins.Reference()
		switch {
		case ins.IsLoadFromMap() && ref != "":
			index := slices.IndexFunc(maps, func(m abi.Map) bool { return m.Name == ref })
			if index < 0 {
				return nil, bad("there is no map %q", ref)
			}
			// The loader has the offset in a variable in the high half already.
			high := int64(0)
			if ins.Src == asm.PseudoMapValue {
				high = ins.Constant >> 32 << 32
			}
			ins.Constant = high | int64(index)
			*ins = ins.WithReference("")
		case ins.OpCode.IsDWordLoad() && ins.Src != asm.R0:
			return nil, bad("a load of what only the Linux kernel has (source register %d)", ins.Src)
		case ins.IsFunctionCall(), ins.IsKfuncCall():
			return nil, bad("a call of a function; mark it static __always_inline")
		case ref != "":
			return nil, bad("it refers to %q, which is no map", ref)
		}
		at += int(ins.Width())
	}
	return insns, nil
}
