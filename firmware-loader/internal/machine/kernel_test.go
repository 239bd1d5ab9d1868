package machine_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// needBPF skips a test where the kernel does not let us run BPF programs, unless
// TRAPEZE_REQUIRE_BPF=1 says that it must.
func needBPF(t *testing.T) {
	t.Helper()
	refuse := t.Skipf
	if os.Getenv("TRAPEZE_REQUIRE_BPF") == "1" {
		refuse = t.Fatalf
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		refuse("BPF is not permitted: %v", err)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, abi.FilterPass), asm.Return(),
	}})
	if err != nil {
		refuse("BPF is not permitted: %v", err)
	}
	defer p.Close()
	if _, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 64)}); err != nil {
		refuse("BPF_PROG_TEST_RUN is not possible: %v", err)
	}
}

// twin is a frame program twice: in the processor, and in the kernel as an XDP
// program, with maps of the same contents.
type twin struct {
	program *machine.Program
	maps    []*machine.Map
	kernel  *ebpf.Program
	kmaps   []*ebpf.Map
}

// newTwin makes a twin. The error is that of the kernel's verifier; whatever else
// goes wrong fails the test.
func newTwin(t failer, insns asm.Instructions, specs ...abi.Map) (*twin, error) {
	w := &twin{maps: newMaps(t, specs...)}
	for _, s := range specs {
		k, err := ebpf.NewMap(&ebpf.MapSpec{Name: s.Name, Type: ebpf.MapType(s.Type), KeySize: s.Key, ValueSize: s.Value, MaxEntries: s.Entries})
		must.OK(t, err)
		w.kmaps = append(w.kmaps, k)
	}
	var err error
	w.program, err = machine.Compile(abi.Program{Hook: abi.FilterRx, Instructions: insns, Maps: specs}, w.maps, func() uint64 { return 0 })
	if err != nil {
		w.close()
		t.Fatalf("%v\n%v", err, insns)
	}
	theirs := make(asm.Instructions, len(insns))
	copy(theirs, insns)
	for i := range theirs {
		if ins := &theirs[i]; ins.IsLoadFromMap() {
			index := uint32(ins.Constant)
			ins.Constant = ins.Constant&^0xffff_ffff | int64(w.kmaps[index].FD())
		}
	}
	w.kernel, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: theirs})
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// failer is what *testing.T and *rapid.T have in common.
type failer interface {
	must.TB
	Fatalf(string, ...any)
}

func (w *twin) close() {
	if w.kernel != nil {
		_ = w.kernel.Close()
	}
	for _, m := range w.kmaps {
		_ = m.Close()
	}
}

// set stores a value in both.
func (w *twin) set(t failer, m int, key, value []byte) {
	t.Helper()
	must.OK(t, w.maps[m].Update(key, value, machine.Any))
	must.OK(t, w.kmaps[m].Put(key, value))
}

// run runs both with copies of a frame, and compares verdicts and frames.
func (w *twin) run(t failer, frame []byte) {
	t.Helper()
	ours := bytes.Clone(frame)
	verdict, err := w.program.Filter(ours, 0)
	must.OK(t, err)
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	answer, err := w.kernel.Run(opts)
	must.OK(t, err)
	want := machine.Verdict{}
	switch action := uint8(answer); action {
	case abi.FilterDrop, abi.FilterPass:
		want.Action = action
	case abi.FilterRedirect:
		want = machine.Verdict{Action: action, Queue: answer >> 8}
	}
	must.Be(t, verdict, want, "verdict, the kernel's answer is %#x", answer)
	must.Same(t, ours, opts.DataOut, "frame the kernel's")
}

// compare compares the contents of all maps.
func (w *twin) compare(t failer) {
	t.Helper()
	for i, m := range w.maps {
		ours, theirs := contents(t, m), map[string]string{}
		var key, value []byte
		it := w.kmaps[i].Iterate()
		for it.Next(&key, &value) {
			theirs[string(key)] = string(value)
		}
		must.OK(t, it.Err())
		for k, v := range theirs {
			if got, ok := ours[k]; !ok || got != v {
				t.Fatalf("map %q: % x = % x, in the kernel % x", m.Spec().Name, k, got, v)
			}
		}
		must.Be(t, len(ours), len(theirs), "entries of map %q", m.Spec().Name)
	}
}

// contents walks over a map.
func contents(t failer, m *machine.Map) map[string]string {
	t.Helper()
	all := map[string]string{}
	var key []byte
	for {
		next := make([]byte, m.Spec().Key)
		err := m.Next(key, next)
		if errors.Is(err, machine.ErrNoKey) {
			return all
		}
		must.OK(t, err)
		value := must.Get(m.Lookup(next))(t)
		if _, twice := all[string(next)]; twice {
			t.Fatalf("map %q: % x comes twice", m.Spec().Name, next)
		}
		all[string(next)] = string(value)
		key = next
	}
}

// errno is the error number in the kernel's error, 0 for none.
func errno(err error) unix.Errno {
	var e unix.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return unix.ENOENT
	case errors.Is(err, ebpf.ErrKeyExist):
		return unix.EEXIST
	}
	panic(fmt.Sprintf("no error number in %v", err))
}

// assemble resolves the labels of a program.
func assemble(t failer, insns asm.Instructions) asm.Instructions {
	t.Helper()
	for i := range insns {
		if ins := &insns[i]; ins.OpCode.AtomicOp() != asm.InvalidAtomic {
			// Version 0.22 of the assembler leaves the operation out.
			ins.Constant = int64(ins.OpCode.AtomicOp() >> 8)
		}
	}
	var b bytes.Buffer
	must.OK(t, insns.Marshal(&b, binary.LittleEndian))
	return must.Get(asm.AppendInstructions(nil, &b, binary.LittleEndian, "linux"))(t)
}
