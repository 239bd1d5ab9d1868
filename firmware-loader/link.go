package firmware

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// link gives references to maps their indices, as abi.Program has them, and refuses references to anything
// else. Lines of the source become comments.
func link(section string, source asm.Instructions, maps []abi.Map) (asm.Instructions, error) {
	insns := slices.Clone(source)
	at, line := 0, ""
	for i := range insns {
		ins := &insns[i]
		*ins = ins.WithSymbol("")
		if s := sourceLine(ins); s != "" && s != line { // compilers repeat a line for each column
			line, *ins = s, ins.WithSource(asm.Comment(s))
		} else {
			*ins = ins.WithSource(nil)
		}
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

// sourceLine returns the line of the source that starts with an instruction, as "file:line: text", or "". It is
// printable, whatever the file holds.
func sourceLine(ins *asm.Instruction) string {
	source := ins.Source()
	if source == nil {
		return ""
	}
	text := strings.TrimSpace(source.String())
	if at, ok := source.(interface {
		FileName() string
		LineNumber() uint32
	}); ok && text != "" && at.FileName() != "" {
		text = fmt.Sprintf("%s:%d: %s", at.FileName(), at.LineNumber(), text)
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
