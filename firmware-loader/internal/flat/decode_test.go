package flat_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

func TestDecodeTruncated(t *testing.T) {
	b := encode(t, sample())
	for n := range b {
		img, err := flat.Decode(b[:n:n])
		must.Hold(t, errors.Is(err, flat.ErrMalformed) && img == nil, "%d of %d bytes: %v", n, len(b), err)
	}
	should.Refuse(flat.Decode(nil))(t, flat.ErrMalformed, "nothing")
}

// TestDecodeFlipped: no bit can change unnoticed.
func TestDecodeFlipped(t *testing.T) {
	b := encode(t, sample())
	for bit := range 8 * len(b) {
		flipped := bytes.Clone(b)
		flipped[bit/8] ^= 1 << (bit % 8)
		if img, err := flat.Decode(flipped); err == nil || img != nil {
			t.Fatalf("bit %d of byte %#x: accepted", bit%8, bit/8)
		}
	}
}

// resealed makes the digest right again, as somebody would who wants the rest to
// be looked at.
func resealed(b []byte) []byte {
	clear(b[0x70:0x90])
	sum := sha256.Sum256(b[:min(len(b), int(binary.LittleEndian.Uint32(b[8:])))])
	copy(b[0x70:], sum[:])
	return b
}

// TestDecodeFlippedAndResealed: what a flipped bit makes of an image is either
// refused or an image that encodes and decodes as itself.
func TestDecodeFlippedAndResealed(t *testing.T) {
	b := encode(t, sample())
	step := 1
	if testing.Short() {
		step = 7
	}
	for bit := 0; bit < 8*len(b); bit += step {
		flipped := bytes.Clone(b)
		flipped[bit/8] ^= 1 << (bit % 8)
		img, err := flat.Decode(resealed(flipped))
		if err != nil {
			continue
		}
		if again := encode(t, img); len(again) > len(b) {
			t.Fatalf("bit %d of byte %#x: %d bytes became %d", bit%8, bit/8, len(b), len(again))
		}
	}
}

// TestDecodeRefuses: beside what TestBadInput has.
func TestDecodeRefuses(t *testing.T) {
	le := binary.LittleEndian
	hooks := func(b []byte) []byte { return b[le.Uint32(b[0x18:]):] }
	maps := func(b []byte) []byte { return b[le.Uint32(b[0x1c:]):] }
	for name, c := range map[string]struct {
		spoil  func(b []byte)
		reason error
		field  string
	}{
		"size of no image":         {func(b []byte) { le.PutUint32(b[8:], 184) }, flat.ErrMalformed, "header size"},
		"size not of 8":            {func(b []byte) { le.PutUint32(b[8:], 196) }, flat.ErrMalformed, "header size"},
		"too little SRAM":          {func(b []byte) { le.PutUint32(b[0x0c:], 8) }, flat.ErrMalformed, "header sram"},
		"SRAM short of storage":    {func(b []byte) { le.PutUint32(b[0x0c:], le.Uint32(b[0x0c:])-1) }, flat.ErrMalformed, "map 2 storage"},
		"4 hooks":                  {func(b []byte) { b[0x14] = 4 }, flat.ErrMalformed, "header hook_count"},
		"a map less":               {func(b []byte) { b[0x16]-- }, flat.ErrMalformed, "reserved"},
		"hooks outside":            {func(b []byte) { le.PutUint32(b[0x18:], 0xfffffff8) }, flat.ErrMalformed, "hook table"},
		"hooks misaligned":         {func(b []byte) { b[0x18]++ }, flat.ErrMalformed, "hook table"},
		"hooks in the header":      {func(b []byte) { le.PutUint32(b[0x18:], 0x90) }, flat.ErrMalformed, "hook table"},
		"maps outside":             {func(b []byte) { le.PutUint32(b[0x1c:], le.Uint32(b[8:])-8) }, flat.ErrMalformed, "map table"},
		"text behind the name":     {func(b []byte) { b[0x3f] = 'x' }, flat.ErrMalformed, "header name"},
		"no version":               {func(b []byte) { clear(b[0x40:0x50]) }, flat.ErrMalformed, "header version"},
		"reserved in the header":   {func(b []byte) { b[0x68] = 1 }, flat.ErrMalformed, "header"},
		"reserved at its end":      {func(b []byte) { b[0xbf] = 1 }, flat.ErrMalformed, "header"},
		"reserved in a hook":       {func(b []byte) { hooks(b)[15] = 1 }, flat.ErrMalformed, "hook table"},
		"program outside":          {func(b []byte) { le.PutUint32(hooks(b), le.Uint32(b[8:])) }, flat.ErrMalformed, "program pulse/tx"},
		"program too long":         {func(b []byte) { le.PutUint32(hooks(b)[4:], 4097) }, flat.ErrMalformed, "program pulse/tx"},
		"program without place":    {func(b []byte) { le.PutUint32(hooks(b)[16+4:], 1) }, flat.ErrMalformed, "program pulse/rx"},
		"program without length":   {func(b []byte) { le.PutUint32(hooks(b)[4:], 0) }, flat.ErrMalformed, "program pulse/tx"},
		"program in the map table": {func(b []byte) { le.PutUint32(hooks(b), le.Uint32(b[0x1c:])) }, flat.ErrMalformed, "map table"},
		"half a 64-bit load":       {func(b []byte) { b[le.Uint32(hooks(b))+8] = 0x18 }, flat.ErrMalformed, "program pulse/tx"},
		"helper below 0": {func(b []byte) {
			copy(b[le.Uint32(hooks(b)):], []byte{0x85, 0, 0, 0, 0xf3, 0xff, 0xff, 0xff})
		}, flat.ErrMalformed, "program pulse/tx"},
		"unknown atomic operation": {func(b []byte) {
			copy(b[le.Uint32(hooks(b)):], []byte{0xdb, 0x21, 0, 0, 0, 0, 1, 0})
		}, flat.ErrMalformed, "program pulse/tx"},
		"unused offset":          {func(b []byte) { b[le.Uint32(hooks(b))+2] = 9 }, flat.ErrMalformed, "program pulse/tx"},
		"map without a name":     {func(b []byte) { clear(maps(b)[:32]) }, flat.ErrMalformed, "map 0 name"},
		"map type":               {func(b []byte) { maps(b)[32] = 3 }, flat.ErrMalformed, "map 0 type"},
		"map entries":            {func(b []byte) { le.PutUint32(maps(b)[44:], 65537) }, flat.ErrMalformed, "map 0 entries"},
		"contents of nothing":    {func(b []byte) { le.PutUint32(maps(b)[56:], 0) }, flat.ErrMalformed, "map 0 contents"},
		"contents nowhere":       {func(b []byte) { le.PutUint32(maps(b)[52:], 0) }, flat.ErrMalformed, "map 0 contents"},
		"contents of a hash map": {func(b []byte) { copy(maps(b)[128+52:128+60], maps(b)[52:60]) }, flat.ErrMalformed, "map 2 contents"},
		"contents shared":        {func(b []byte) { copy(maps(b)[64+52:64+56], maps(b)[52:56]) }, flat.ErrMalformed, "map 1 contents"},
		"storage in the image":   {func(b []byte) { le.PutUint32(maps(b)[60:], 64) }, flat.ErrMalformed, "map 0 storage"},
		"storage misaligned":     {func(b []byte) { maps(b)[60] += 8 }, flat.ErrMalformed, "map 0 storage"},
		"storage shared":         {func(b []byte) { copy(maps(b)[124:128], maps(b)[60:64]) }, flat.ErrMalformed, "map 1 storage"},
	} {
		t.Run(name, func(t *testing.T) {
			b := encode(t, sample())
			c.spoil(b)
			img, err := flat.Decode(resealed(b))
			var e *flat.Error
			should.Hold(t, errors.As(err, &e) && errors.Is(err, c.reason) && e.Field == c.field && img == nil,
				"%v; want %v of %s", err, c.reason, c.field)
		})
	}
}

// TestDecodeAllocation: what a reader of a slot allocates is bounded by what
// stands there, not by what it says.
func TestDecodeAllocation(t *testing.T) {
	img := sample()
	img.Maps = append(img.Maps, abi.Map{Name: "huge", Type: abi.MapArray, Key: 4, Value: abi.MaxValue, Entries: 16})
	b := encode(t, img)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must.Get(flat.Decode(b))(t)
	runtime.ReadMemStats(&after)
	n := after.TotalAlloc - before.TotalAlloc
	should.Hold(t, n <= 64<<10, "%d bytes allocated for an image of %d", n, len(b))
}
