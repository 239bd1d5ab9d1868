package flat_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// sample is an image with a bit of everything.
func sample() *flat.Image {
	img := &flat.Image{ABI: abi.Version, Device: 0x12347250, Name: "sample", Version: "1.0-rc.1+x", BuildID: [20]byte{1, 2, 3}}
	img.Programs[abi.PulseTx] = asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}
	img.Programs[abi.FilterRx] = asm.Instructions{
		asm.LoadMapPtr(asm.R1, 1), asm.LoadImm(asm.R2, -0x123456789abcdef, asm.DWord),
		asm.FetchAdd.Mem(asm.R1, asm.R2, asm.DWord, -8), asm.FnMapLookupElem.Call(),
		asm.SDiv.Imm32(asm.R3, 7), asm.MovSX16.Reg(asm.R3, asm.R4), asm.Return(),
	}
	img.Maps = []abi.Map{
		{Name: ".data", Type: abi.MapArray, Key: 4, Value: 12, Entries: 1, Contents: []byte{1, 2, 3}},
		{Name: ".rodata", Type: abi.MapArray, Key: 4, Value: 3, Entries: 2, Flags: abi.MapReadOnly, Contents: []byte{1, 2, 3, 4, 5, 6}},
		{Name: "flows", Type: abi.MapHash, Key: 13, Value: 20, Entries: 5},
	}
	return img
}

func encode(t testing.TB, img *flat.Image) []byte {
	t.Helper()
	return must.Get(flat.Encode(img))(t)
}

// code returns the programs as bytes, to compare.
func code(t testing.TB, img *flat.Image) (all [abi.Hooks][]byte) {
	t.Helper()
	for h, insns := range img.Programs {
		b := must.Get(flat.EncodeInstructions(insns))(t)
		all[h] = b
	}
	return all
}

func TestRoundTrip(t *testing.T) {
	want := sample()
	b := encode(t, want)
	should.Same(t, b, encode(t, want), "the same image has two encodings")
	// What follows an image in its slot does not matter.
	got := must.Get(flat.Decode(append(bytes.Clone(b), 0xff, 0xff)))(t)
	if got.ABI != want.ABI || got.Device != want.Device || got.Name != want.Name || got.Version != want.Version || got.BuildID != want.BuildID {
		t.Errorf("got %+v", got)
	}
	should.Be(t, cmp.Diff(want.Maps, got.Maps), "", "maps (-want +got)")
	if !cmp.Equal(code(t, got), code(t, want)) {
		t.Errorf("programs %x, want %x", code(t, got), code(t, want))
	}
	should.Be(t, int(got.Size), len(b), "size %d bytes", got.Size)
	for h := range abi.Hooks {
		p, ok := got.Program(h)
		if ok != (want.Programs[h] != nil) || ok && (p.Hook != h || len(p.Instructions) != len(want.Programs[h]) || len(p.Maps) != 3) {
			t.Errorf("%v: %v, %+v", h, ok, p)
		}
	}
	_, ok := got.Program(abi.Hooks)
	should.Hold(t, !ok, "a program at a hook that does not exist")
}

// TestEncoding looks at the bytes of an image as a NIC reads them.
func TestEncoding(t *testing.T) {
	img := sample()
	b := encode(t, img)
	le := binary.LittleEndian
	for _, f := range []struct {
		name      string
		got, want uint32
	}{
		{"magic", le.Uint32(b), 0x49505254}, {"abi", le.Uint32(b[4:]), 1 << 16}, {"size", le.Uint32(b[8:]), uint32(len(b))},
		{"device", le.Uint32(b[0x10:]), 0x12347250}, {"hooks", uint32(le.Uint16(b[0x14:])), 5}, {"maps", uint32(le.Uint16(b[0x16:])), 3},
	} {
		should.Be(t, f.got, f.want, "%s", f.name)
	}
	hook := b[le.Uint32(b[0x18:]):]
	if at, n := le.Uint32(hook), le.Uint32(hook[4:]); n != 2 || !bytes.Equal(b[at:at+16], []byte{0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x95, 0, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("pulse/tx: %d instructions at %#x: % x", n, at, b[at:at+16])
	}
	should.Same(t, hook[16:32], make([]byte, 16), "pulse/rx is not empty")
	// The digest is SHA-256 with its own field taken as zeros.
	zeroed := bytes.Clone(b)
	clear(zeroed[0x70:0x90])
	sum := sha256.Sum256(zeroed)
	should.Hold(t, bytes.Equal(sum[:], b[0x70:0x90]), "digest % x, want % x", b[0x70:0x90], sum)
	// Storage: 12 rounded up to 16; two of 3 rounded up to 8; hash map of 64,
	// 16 buckets of 8, 5 entries of 4, rounded up to 8, and of 16 + 24.
	got := must.Get(flat.Decode(b))(t)
	first := (got.Size + 63) / 64 * 64
	if want := []uint32{first, first + 64, first + 128}; !cmp.Equal(got.Storage, want) || got.SRAM != first+128+64+16*8+24+5*(16+24) {
		t.Errorf("storage %v, end %d; image of %d bytes", got.Storage, got.SRAM, got.Size)
	}
}

func TestHooksOfTheDataSheet(t *testing.T) {
	should.Be(t, int(abi.Hooks), datasheet.ImageHookCount, "hooks")
}

func TestSuits(t *testing.T) {
	img := must.Get(flat.Decode(encode(t, sample())))(t)
	anyNIC := *img
	anyNIC.Device = 0
	for _, c := range []struct {
		name         string
		img          *flat.Image
		device, slot uint32
		want         error
	}{
		{"fits", img, 0x12347250, img.SRAM, nil},
		{"any device", &anyNIC, 0x15b31017, 256 << 10, nil},
		{"another device", img, 0x12347251, 256 << 10, flat.ErrDevice},
		{"a byte short", img, 0x12347250, img.SRAM - 1, flat.ErrSRAM},
		{"no slot", img, 0x12347250, 0, flat.ErrSRAM},
	} {
		should.Fail(t, c.img.Suits(abi.Version, c.device, c.slot), c.want, "%s", c.name)
	}
}

func TestStorageSize(t *testing.T) {
	for _, c := range []struct {
		m    abi.Map
		want uint64
	}{
		{abi.Map{Name: "a", Type: abi.MapArray, Key: 4, Value: 1, Entries: 1}, 8},
		{abi.Map{Name: "a", Type: abi.MapArray, Key: 4, Value: 8, Entries: 3}, 24},
		{abi.Map{Name: "a", Type: abi.MapArray, Key: 4, Value: abi.MaxValue, Entries: abi.MaxEntries}, 1 << 32},
		{abi.Map{Name: "h", Type: abi.MapHash, Key: 1, Value: 1, Entries: 1}, 64 + 2*8 + 8 + 16},
		{abi.Map{Name: "h", Type: abi.MapHash, Key: 8, Value: 8, Entries: 2}, 64 + 4*8 + 8 + 2*16},
		{abi.Map{Name: "h", Type: abi.MapHash, Key: 9, Value: 8, Entries: 3}, 64 + 8*8 + 16 + 3*24},
		{abi.Map{Name: "h", Type: abi.MapHash, Key: abi.MaxKey, Value: abi.MaxValue, Entries: abi.MaxEntries}, 64 + (1<<17)*8 + (1<<16)*(4+64+65536)},
	} {
		should.Give(flat.StorageSize(c.m))(t, c.want, "%+v: bytes", c.m)
	}
	should.Refuse(flat.StorageSize(abi.Map{}))(t, flat.ErrMalformed, "no map")
}

// TestEncodeRefuses: an image that cannot be is refused, with the name of what is
// wrong.
func TestEncodeRefuses(t *testing.T) {
	long := make(asm.Instructions, abi.MaxInstructions/2+1)
	for i := range long {
		long[i] = asm.LoadImm(asm.R0, 0, asm.DWord)
	}
	for name, c := range map[string]struct {
		spoil  func(img *flat.Image)
		reason error
		field  string
	}{
		"no name":            {func(i *flat.Image) { i.Name = "" }, flat.ErrMalformed, "name"},
		"name too long":      {func(i *flat.Image) { i.Name = strings.Repeat("n", 33) }, flat.ErrMalformed, "name"},
		"name with escapes":  {func(i *flat.Image) { i.Name = "a\x1b[2J" }, flat.ErrMalformed, "name"},
		"version too long":   {func(i *flat.Image) { i.Version = strings.Repeat("1", 17) }, flat.ErrMalformed, "version"},
		"newer ABI":          {func(i *flat.Image) { i.ABI = abi.Version + 1 }, flat.ErrABI, "header abi"},
		"other ABI":          {func(i *flat.Image) { i.ABI = 2 << 16 }, flat.ErrABI, "header abi"},
		"no programs":        {func(i *flat.Image) { i.Programs = [abi.Hooks]asm.Instructions{} }, flat.ErrMalformed, "hook table"},
		"program too long":   {func(i *flat.Image) { i.Programs[0] = long }, flat.ErrMalformed, "program pulse/tx"},
		"no opcode":          {func(i *flat.Image) { i.Programs[0][0].OpCode = asm.InvalidOpCode }, flat.ErrMalformed, "program pulse/tx"},
		"useless offset":     {func(i *flat.Image) { i.Programs[0][0].Offset = 7 }, flat.ErrMalformed, "program pulse/tx"},
		"constant too large": {func(i *flat.Image) { i.Programs[0][0].Constant = 1 << 40 }, flat.ErrMalformed, "program pulse/tx"},
		"17 maps":            {func(i *flat.Image) { i.Maps = make([]abi.Map, 17) }, flat.ErrMalformed, "maps"},
		"two maps of a name": {func(i *flat.Image) { i.Maps[1].Name = i.Maps[0].Name }, flat.ErrMalformed, "map 1 name"},
		"map of no type":     {func(i *flat.Image) { i.Maps[0].Type = 0 }, flat.ErrMalformed, `map ".data" type`},
		"map without values": {func(i *flat.Image) { i.Maps[2].Value = 0 }, flat.ErrMalformed, `map "flows" value`},
		"array with keys":    {func(i *flat.Image) { i.Maps[0].Key = 8 }, flat.ErrMalformed, `map ".data" key`},
		"huge key":           {func(i *flat.Image) { i.Maps[2].Key = 65 }, flat.ErrMalformed, `map "flows" key`},
		"no entries":         {func(i *flat.Image) { i.Maps[2].Entries = 0 }, flat.ErrMalformed, `map "flows" entries`},
		"strange flags":      {func(i *flat.Image) { i.Maps[2].Flags = 1 }, flat.ErrMalformed, `map "flows" flags`},
		"hash with contents": {func(i *flat.Image) { i.Maps[2].Contents = []byte{1} }, flat.ErrMalformed, `map "flows" contents`},
		"too much contents":  {func(i *flat.Image) { i.Maps[0].Contents = make([]byte, 13) }, flat.ErrMalformed, `map ".data" contents`},
		"contents over 1 MiB": {func(i *flat.Image) {
			i.Maps[0].Value, i.Maps[0].Entries, i.Maps[0].Contents = abi.MaxValue, 32, make([]byte, 2<<20)
		}, flat.ErrMalformed, "size"},
		"storage over 32 bits": {func(i *flat.Image) {
			i.Maps[2].Key, i.Maps[2].Value, i.Maps[2].Entries = 64, abi.MaxValue, abi.MaxEntries
		}, flat.ErrSRAM, `map "flows"`},
	} {
		t.Run(name, func(t *testing.T) {
			img := sample()
			c.spoil(img)
			b, err := flat.Encode(img)
			var e *flat.Error
			should.Hold(t, errors.As(err, &e) && errors.Is(err, c.reason) && e.Field == c.field && b == nil,
				"%v, %d bytes; want %v of %s", err, len(b), c.reason, c.field)
		})
	}
}
