package machine

import "github.com/trapeze-nic/trapeze/internal/abi"

// call runs a helper: arguments in R1 to R4, result in R0. It returns false for a
// trap. The Linux kernel leaves R1 to R5 undefined; here they keep their values.
func (p *Program) call(helper uint64) bool {
	r := &p.registers
	if abi.Helper(helper) == abi.HelperTime {
		r[0] = p.clock()
		return true
	}
	// A map that is none has a number that is too large.
	index := r[1] - regionHandles<<regionShift
	if index >= uint64(len(p.maps)) {
		return false
	}
	m := p.maps[index]
	key := p.read.at(r[2], m.spec.Key)
	if key == nil {
		return false
	}
	switch abi.Helper(helper) {
	case abi.HelperMapLookup:
		r[0] = 0
		if entry, ok := m.find(key); ok {
			r[0] = (regionMaps+index)<<regionShift + uint64(entry)*uint64(m.stride)
		}
		return true
	case abi.HelperMapUpdate:
		value := p.read.at(r[3], m.spec.Value)
		if value == nil || m.readOnly() {
			return false
		}
		r[0] = result(m.put(key, value, r[4]))
		return true
	case abi.HelperMapDelete:
		if m.readOnly() {
			return false
		}
		r[0] = result(m.remove(key))
		return true
	}
	return false
}

// result is an error as programs see it: negative.
func result(e Errno) uint64 { return -uint64(e) }
