package firmware_test

import (
	"bytes"
	"debug/elf"
	"os"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// small is an image with one of each: program, map, variable, source line (testdata/small.c).
func small(t testing.TB) *firmware.Spec { return smallAs(t, firmware.Meta{}) }

func smallAs(t testing.TB, m firmware.Meta) *firmware.Spec {
	t.Helper()
	return must.Get(firmware.Build(object(t, "small"), m))(t)
}

func parse(t testing.TB, b []byte) *firmware.Spec {
	t.Helper()
	return must.Get(firmware.Parse(b))(t)
}

// object returns what clang made of a source in testdata.
func object(t testing.TB, name string) []byte {
	t.Helper()
	return must.Get(os.ReadFile("testdata/" + name + ".o"))(t)
}

// contents returns the bytes of a section, in place.
func contents(t testing.TB, b []byte, section string) []byte {
	t.Helper()
	f := must.Get(elf.NewFile(bytes.NewReader(b)))(t)
	s := f.Section(section)
	must.Hold(t, s != nil, "no section %s", section)
	return b[s.Offset : s.Offset+s.Size]
}

// same says how two images differ in what would run; empty if they do not.
func same(t testing.TB, a, b *firmware.Spec) string {
	t.Helper()
	switch {
	case a.Digest != b.Digest:
		return "digest"
	case !bytes.Equal(a.Link(), b.Link()):
		return "flat image"
	case a.Name != b.Name || a.Version != b.Version || a.BuildID != b.BuildID:
		return "name, version or build ID"
	case a.ABI != b.ABI || a.Device != b.Device || a.SRAM != b.SRAM:
		return "ABI, device or SRAM"
	}
	for h := range abi.Hooks {
		x, err1 := flat.EncodeInstructions(a.Programs[h])
		y, err2 := flat.EncodeInstructions(b.Programs[h])
		if err1 != nil || err2 != nil || !bytes.Equal(x, y) {
			return "program " + h.String()
		}
	}
	return ""
}
