package machine_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// TestStorageOfTheDataSheet: the processor needs what images reserve, for maps of all
// shapes.
func TestStorageOfTheDataSheet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := abi.Map{
			Name: "m", Type: abi.MapHash, Key: rapid.Uint32Range(1, abi.MaxKey).Draw(t, "key"),
			Value: rapid.Uint32Range(1, 4096).Draw(t, "value"), Entries: rapid.Uint32Range(1, 10000).Draw(t, "entries"),
		}
		if rapid.Bool().Draw(t, "array") {
			m.Type, m.Key = abi.MapArray, 4
		}
		reserved := must.Get(flat.StorageSize(m))(t)
		should.Give(machine.StorageSize(m))(t, reserved, "%+v: bytes,; images reserve", m)
	})
}

// TestMapAsModel compares hash maps of many shapes with Go's.
func TestMapAsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := abi.Map{
			Name: "m", Type: abi.MapHash, Key: rapid.Uint32Range(1, abi.MaxKey).Draw(t, "key"),
			Value: rapid.Uint32Range(1, 100).Draw(t, "value"), Entries: rapid.Uint32Range(1, 40).Draw(t, "entries"),
		}
		size := must.Get(machine.StorageSize(spec))(t)
		memory := bytes.Repeat([]byte{0xa5}, int(size)+64) // not clean
		m := must.Get(machine.NewMap(spec, memory))(t)
		model := map[string]string{}
		drawKey := func(t *rapid.T) []byte {
			key := make([]byte, spec.Key)
			key[rapid.IntRange(0, int(min(spec.Key, 3))-1).Draw(t, "at")] = byte(rapid.IntRange(0, 30).Draw(t, "key"))
			return key
		}
		t.Repeat(map[string]func(*rapid.T){
			"update": func(t *rapid.T) {
				key, value := drawKey(t), rapid.SliceOfN(rapid.Byte(), int(spec.Value), int(spec.Value)).Draw(t, "value")
				flags := rapid.SampledFrom([]uint64{machine.Any, machine.IfNew, machine.IfThere, 3, 1 << 32, 1<<64 - 1}).Draw(t, "flags")
				_, there := model[string(key)]
				var want error
				switch {
				case flags > machine.IfThere:
					want = machine.ErrInvalid
				case there && flags == machine.IfNew:
					want = machine.ErrKeyExists
				case !there && flags == machine.IfThere:
					want = machine.ErrNoKey
				case !there && len(model) == int(spec.Entries):
					want = machine.ErrFull
				default:
					model[string(key)] = string(value)
				}
				err := m.Update(key, value, flags)
				must.Hold(t, errors.Is(err, want), "update: %v, want %v", err, want)
			},
			"delete": func(t *rapid.T) {
				key := drawKey(t)
				_, there := model[string(key)]
				if err := m.Delete(key); (err == nil) != there || err != nil && !errors.Is(err, machine.ErrNoKey) {
					t.Fatalf("delete: %v, there: %v", err, there)
				}
				delete(model, string(key))
			},
			"lookup": func(t *rapid.T) {
				key := drawKey(t)
				want, there := model[string(key)]
				value, err := m.Lookup(key)
				must.Hold(t, (err == nil) == there && (err == nil || errors.Is(err, machine.ErrNoKey)) && string(value) == want,
					"lookup: % x, %v; want % x", value, err, want)
			},
			"": func(t *rapid.T) {
				all := contents(t, m)
				must.Be(t, len(all), len(model), "entries")
				for k, v := range model {
					must.Be(t, all[k], v, "% x", k)
				}
				for _, b := range memory[size:] {
					must.Be(t, b, 0xa5, "wrote behind its memory")
				}
			},
		})
	})
}

// TestArray: entries are there from the start, with their contents.
func TestArray(t *testing.T) {
	spec := abi.Map{Name: "a", Type: abi.MapArray, Key: 4, Value: 3, Entries: 3, Contents: []byte{1, 2, 3, 4}}
	m := newMaps(t, spec)[0]
	key := func(i uint32) []byte { return binary.LittleEndian.AppendUint32(nil, i) }
	for i, want := range [][]byte{{1, 2, 3}, {4, 0, 0}, {0, 0, 0}} {
		should.Same(t, must.Get(m.Lookup(key(uint32(i))))(t), want, "entry %d", i)
	}
	v := []byte{7, 8, 9}
	for name, c := range map[string]struct {
		got, want error
	}{
		"lookup behind the end": {second(m.Lookup(key(3))), machine.ErrNoKey},
		"lookup far behind":     {second(m.Lookup(key(1<<32 - 1))), machine.ErrNoKey},
		"update behind the end": {m.Update(key(3), v, machine.Any), machine.ErrFull},
		"update if new":         {m.Update(key(0), v, machine.IfNew), machine.ErrKeyExists},
		"unknown flags":         {m.Update(key(0), v, 9), machine.ErrInvalid},
		"delete":                {m.Delete(key(0)), machine.ErrInvalid},
		"short key":             {second(m.Lookup([]byte{1})), machine.ErrInvalid},
		"no key":                {second(m.Lookup(nil)), machine.ErrInvalid},
		"short value":           {m.Update(key(0), v[:2], machine.Any), machine.ErrInvalid},
		"no value":              {m.Update(key(0), nil, machine.Any), machine.ErrInvalid},
		"long key to delete":    {m.Delete(make([]byte, 5)), machine.ErrInvalid},
		"next, short key":       {m.Next([]byte{1}, key(0)), machine.ErrInvalid},
		"next, short result":    {m.Next(nil, []byte{1}), machine.ErrInvalid},
	} {
		should.Fail(t, c.got, c.want, "%s", name)
	}
	should.OK(t, m.Update(key(1), v, machine.IfThere))
	want := map[string]string{string(key(0)): "\x01\x02\x03", string(key(1)): "\x07\x08\x09", string(key(2)): "\x00\x00\x00"}
	for k, v := range contents(t, m) {
		should.Be(t, v, want[k], "% x", k)
		delete(want, k)
	}
	should.Be(t, len(want), 0, "the walk left out entries")
}

func second[T any](_ T, err error) error { return err }

func TestReadOnlyMap(t *testing.T) {
	for _, spec := range []abi.Map{
		{Name: "a", Type: abi.MapArray, Key: 4, Value: 4, Entries: 1, Flags: abi.MapReadOnly},
		{Name: "h", Type: abi.MapHash, Key: 4, Value: 4, Entries: 1, Flags: abi.MapReadOnly},
	} {
		m := newMaps(t, spec)[0]
		b := make([]byte, 4)
		should.Fail(t, m.Update(b, b, machine.Any), machine.ErrReadOnly, "update")
		should.Fail(t, m.Delete(b), machine.ErrReadOnly, "delete")
	}
}

// TestWalkWhileDeleting: a walk may delete what it has seen.
func TestWalkWhileDeleting(t *testing.T) {
	m := newMaps(t, abi.Map{Name: "h", Type: abi.MapHash, Key: 2, Value: 1, Entries: 500})[0]
	for i := range 500 {
		must.OK(t, m.Update(binary.LittleEndian.AppendUint16(nil, uint16(i)), []byte{1}, machine.Any))
	}
	seen := map[string]bool{}
	for {
		key := make([]byte, 2)
		err := m.Next(nil, key)
		if errors.Is(err, machine.ErrNoKey) {
			break
		}
		if err != nil || seen[string(key)] {
			t.Fatal(key, err)
		}
		seen[string(key)] = true
		must.OK(t, m.Delete(key))
	}
	should.Be(t, len(seen), 500, "keys")
}

// TestFreeListOfTheHost: the host says that an entry is free which is in use. Its
// value stays.
func TestFreeListOfTheHost(t *testing.T) {
	spec := abi.Map{Name: "m", Type: abi.MapHash, Key: 1, Value: 1, Entries: 4}
	size := must.Get(machine.StorageSize(spec))(t)
	memory := make([]byte, size)
	m := must.Get(machine.NewMap(spec, memory))(t)
	must.OK(t, m.Update([]byte{1}, []byte{11}, machine.Any))
	memory[4] = 1 // first free entry + 1
	should.Fail(t, m.Update([]byte{2}, []byte{22}, machine.Any), machine.ErrFull, "update")
	v, err := m.Lookup([]byte{1})
	should.Hold(t, err == nil && v[0] == 11, "%v, %v", v, err)
}

// mapCommands is a program that does to map 1 what map 0 says: flags, key, value,
// place for the result, and which helper.
func mapCommands() asm.Instructions {
	return asm.Instructions{
		asm.LoadMapValue(asm.R9, 0, 0),
		asm.LoadMem(asm.R4, asm.R9, 0, asm.DWord),
		asm.LoadMem(asm.R5, asm.R9, 32, asm.DWord),
		asm.LoadMapPtr(asm.R1, 1),
		asm.Mov.Reg(asm.R2, asm.R9), asm.Add.Imm(asm.R2, 8),
		asm.JEq.Imm(asm.R5, 0, "lookup"),
		asm.JEq.Imm(asm.R5, 1, "delete"),
		asm.Mov.Reg(asm.R3, asm.R9), asm.Add.Imm(asm.R3, 16),
		asm.FnMapUpdateElem.Call(),
		asm.Ja.Label("store"),
		asm.FnMapDeleteElem.Call().WithSymbol("delete"),
		asm.Ja.Label("store"),
		asm.FnMapLookupElem.Call().WithSymbol("lookup"),
		asm.JEq.Imm(asm.R0, 0, "store"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.StoreMem(asm.R9, 16, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.Byte),
		asm.Mov.Imm(asm.R0, 1),
		asm.StoreMem(asm.R9, 24, asm.R0, asm.DWord).WithSymbol("store"),
		asm.Mov.Imm(asm.R0, abi.FilterPass),
		asm.Return(),
	}
}

// TestHelpersAgainstKernel compares what helpers return, and what they do, with the
// kernel's.
func TestHelpersAgainstKernel(t *testing.T) {
	needBPF(t)
	for _, spec := range []abi.Map{
		{Name: "hash", Type: abi.MapHash, Key: 8, Value: 8, Entries: 6},
		{Name: "array", Type: abi.MapArray, Key: 4, Value: 8, Entries: 6},
	} {
		t.Run(spec.Name, func(t *testing.T) {
			commands := abi.Map{Name: "commands", Type: abi.MapArray, Key: 4, Value: 40, Entries: 1}
			rapid.Check(t, func(t *rapid.T) {
				w, err := newTwin(t, assemble(t, mapCommands()), commands, spec)
				must.OK(t, err)
				defer w.close()
				for range rapid.IntRange(1, 60).Draw(t, "steps") {
					command := make([]byte, commands.Value)
					flags := rapid.SampledFrom([]uint64{0, 0, 1, 2, 3, 8, 1 << 40, 1 << 63}).Draw(t, "flags")
					binary.LittleEndian.PutUint64(command, flags)
					command[8] = byte(rapid.IntRange(0, 9).Draw(t, "key"))
					copy(command[16:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "value"))
					command[32] = byte(rapid.IntRange(0, 3).Draw(t, "helper"))
					w.set(t, 0, make([]byte, 4), command)
					w.run(t, make([]byte, 64))
					w.compare(t)
				}
			})
		})
	}
}

// TestHostOperationsAgainstKernel compares what the host is told with what the
// bpf(2) system call says.
func TestHostOperationsAgainstKernel(t *testing.T) {
	needBPF(t)
	for _, spec := range []abi.Map{
		{Name: "hash", Type: abi.MapHash, Key: 4, Value: 8, Entries: 4},
		{Name: "array", Type: abi.MapArray, Key: 4, Value: 8, Entries: 4},
	} {
		m := newMaps(t, spec)[0]
		k := must.Get(ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.MapType(spec.Type), KeySize: spec.Key, ValueSize: spec.Value, MaxEntries: spec.Entries}))(t)
		defer k.Close()
		same := func(what string, ours, theirs error) {
			t.Helper()
			var e machine.Errno
			errors.As(ours, &e)
			should.Be(t, uint32(e), uint32(errno(theirs)), "%s, %s: %v, the kernel says %v", spec.Name, what, ours, theirs)
		}
		value := make([]byte, 8)
		for i := range uint32(6) {
			key := binary.LittleEndian.AppendUint32(nil, i)
			for _, flags := range []uint64{machine.IfThere, machine.IfNew, machine.IfNew, machine.Any, machine.IfThere, 3} {
				same("update", m.Update(key, value, flags), k.Update(key, value, ebpf.MapUpdateFlags(flags)))
			}
			same("lookup", second(m.Lookup(key)), k.Lookup(key, &value))
		}
		for i := range uint32(6) {
			key := binary.LittleEndian.AppendUint32(nil, i)
			same("delete", m.Delete(key), k.Delete(key))
			same("lookup", second(m.Lookup(key)), k.Lookup(key, &value))
		}
	}
}
