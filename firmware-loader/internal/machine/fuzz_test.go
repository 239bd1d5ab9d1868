package machine_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// fuzzMaps are the maps of fuzzed programs.
var fuzzMaps = []abi.Map{
	{Name: "array", Type: abi.MapArray, Key: 4, Value: 20, Entries: 3},
	{Name: "hash", Type: abi.MapHash, Key: 5, Value: 12, Entries: 3},
	{Name: "constants", Type: abi.MapArray, Key: 4, Value: 8, Entries: 1, Flags: abi.MapReadOnly, Contents: []byte("constant")},
}

// FuzzProgram compiles and runs arbitrary instructions for every hook. Nothing may
// panic, run for ever, or change what is around frame and maps.
func FuzzProgram(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, code, frame []byte) {
		insns, err := asm.AppendInstructions(nil, bytes.NewReader(code), binary.LittleEndian, "linux")
		if err != nil || len(frame) > 4096 {
			return
		}
		insns = append(insns, asm.Return()) // more of them are programs then
		const guard = 64
		for hook := range abi.Hooks {
			var maps []*machine.Map
			memory := bytes.Repeat([]byte{0x5a}, 4096)
			at := guard
			for _, spec := range fuzzMaps {
				size := must.Get(machine.StorageSize(spec))(t)
				m := must.Get(machine.NewMap(spec, memory[at:at+int(size)]))(t)
				maps = append(maps, m)
				at += int(size) + guard
			}
			p, err := machine.Compile(abi.Program{Hook: hook, Instructions: insns, Maps: fuzzMaps}, maps, func() uint64 { return 7 })
			if err != nil {
				return // it is the same for every hook
			}
			buffer := bytes.Repeat([]byte{0x5a}, len(frame)+2*guard)
			copy(buffer[guard:], frame)
			inside := buffer[guard : guard+len(frame)]
			for range 2 {
				_ = ask(p, inside)
			}
			must.Hold(t, hook == abi.FilterTx || hook == abi.FilterRx || bytes.Equal(inside, frame), "%v changed the frame", hook)
			for i, b := range [][]byte{buffer[:guard], buffer[guard+len(frame):], memory[:guard], memory[at-guard:]} {
				must.Same(t, b, bytes.Repeat([]byte{0x5a}, len(b)), "%v changed what is around (%d)", hook, i)
			}
			for at := guard; ; {
				spec := maps[0].Spec()
				size, _ := machine.StorageSize(spec)
				at += int(size)
				must.Same(t, memory[at:at+guard], bytes.Repeat([]byte{0x5a}, guard), "%v changed what is behind map %s", hook, spec.Name)
				if at, maps = at+guard, maps[1:]; len(maps) == 0 {
					break
				}
			}
			c := memory
			must.Hold(t, bytes.Contains(c, []byte("constant")), "%v changed constants", hook)
		}
	})
}

// FuzzMapMemory uses a hash map whose memory somebody else writes: nothing may panic
// or go on for ever.
func FuzzMapMemory(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Fuzz(func(t *testing.T, script []byte) {
		spec := abi.Map{Name: "m", Type: abi.MapHash, Key: 1, Value: 8, Entries: 5}
		size := must.Get(machine.StorageSize(spec))(t)
		memory := make([]byte, size)
		m := must.Get(machine.NewMap(spec, memory))(t)
		for ; len(script) >= 3; script = script[3:] {
			key := []byte{script[1] % 16}
			switch script[0] % 6 {
			case 0:
				_ = m.Update(key, make([]byte, 8), uint64(script[2]%4))
			case 1:
				_ = m.Delete(key)
			case 2:
				_, _ = m.Lookup(key)
			case 3:
				for n := 0; n < 10 && m.Next(key, key) == nil; n++ {
				}
			default:
				memory[int(script[1])%len(memory)] = script[2]
			}
		}
	})
}
