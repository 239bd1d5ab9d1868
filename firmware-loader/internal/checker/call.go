package checker

import (
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker/internal/scalar"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

type argument uint8

const (
	argumentNumber argument = iota
	argumentMap
	argumentKey   // the address of a key of the map
	argumentValue // the address of a value of the map
)

// helper describes a helper: its arguments in R1, R2 and so on, and what it
// answers in R0.
type helper struct {
	arguments []argument
	answer    kind // kindNumber or kindValueOrNull
	writes    bool // to the map
}

var helpers = map[abi.Helper]helper{
	abi.HelperMapLookup: {arguments: []argument{argumentMap, argumentKey}, answer: kindValueOrNull},
	abi.HelperMapUpdate: {
		arguments: []argument{argumentMap, argumentKey, argumentValue, argumentNumber},
		answer:    kindNumber, writes: true,
	},
	abi.HelperMapDelete: {arguments: []argument{argumentMap, argumentKey}, answer: kindNumber, writes: true},
	abi.HelperTime:      {answer: kindNumber},
}

// call checks a call of a helper. Afterwards R1 to R5 hold nothing.
func (e *explorer) call(s *state, ins *Instruction) *Refusal {
	called := abi.Helper(ins.Constant)
	h := helpers[called]
	var m *abi.Map
	var mapIndex uint8
	for i, want := range h.arguments {
		n := uint8(i + 1)
		if r := readable(s, n); r != nil {
			return r
		}
		arg := &s.regs[n]
		switch want {
		case argumentNumber:
			if arg.isPointer() {
				return refuse(ErrArgument, "r%d of %v is %v, not a number", n, called, arg)
			}
		case argumentMap:
			if arg.kind != kindMap {
				return refuse(ErrArgument, "r%d of %v is %v, not a map", n, called, arg)
			}
			mapIndex = arg.mapIndex
			m = &e.maps[mapIndex]
			if h.writes && m.Flags&abi.MapReadOnly != 0 {
				return refuse(ErrReadOnly, "%v on map %q, which is read only", called, m.Name)
			}
		case argumentKey, argumentValue:
			size := m.Key
			if want == argumentValue {
				size = m.Value
			}
			if !isMemory(arg.kind) {
				return refuse(ErrArgument, "r%d of %v is %v, not the address of %d bytes", n, called, arg, size)
			}
			if r := e.access(s, arg, 0, int(size), useArgument); r != nil {
				r.Detail = "argument of " + called.String() + ": " + r.Detail
				return r
			}
		}
	}
	for r := 1; r <= 5; r++ {
		s.regs[r] = register{}
	}
	s.regs[0] = number(scalar.Unknown())
	if h.answer == kindValueOrNull {
		s.regs[0] = register{kind: kindValueOrNull, mapIndex: mapIndex, id: e.newID()}
	}
	return nil
}

// isMemory reports whether helpers may be given addresses of that kind.
func isMemory(k kind) bool { return k == kindStack || k == kindPacket || k == kindValue }
