package opaque

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/strict"
	"github.com/trapeze-nic/trapeze/internal/strict/stricttoml"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
)

// Limits of a manifest. They are ours: far above what we know of.
const (
	MaxManifest = 64 << 10 // bytes
	MaxSegments = 64
	MaxSegment  = 16 << 20 // bytes of a segment
	MaxSRAM     = 64 << 20 // bytes of a slot
	maxDevices  = 64
)

// keys are all that a manifest may have.
const keys = "name, version, devices, entry, ready, sram, segments.{file,address,sha256}, signature.{key,value}"

// manifest is the file.
type manifest struct {
	Name      *string       `toml:"name"`
	Version   *string       `toml:"version"`
	Devices   []string      `toml:"devices"`
	Entry     *int64        `toml:"entry"`
	Ready     *int64        `toml:"ready"`
	SRAM      *int64        `toml:"sram"`
	Segments  []segment     `toml:"segments"`
	Signature *rawSignature `toml:"signature"`
}

type segment struct {
	File    *string `toml:"file"`
	Address *int64  `toml:"address"`
	SHA256  *string `toml:"sha256"`
}

type rawSignature struct {
	Key   *string `toml:"key"`
	Value *string `toml:"value"`
}

// Parse reads a manifest without its segments, whose Bytes are nil; file is used
// in errors. It allocates at most a small multiple of MaxManifest. Errors are
// *Error.
func Parse(file string, text []byte) (*Image, error) {
	if len(text) > MaxManifest {
		return nil, &Error{File: file, Detail: fmt.Sprintf("%d bytes", len(text)), Allowed: fmt.Sprintf("up to %d bytes", MaxManifest), Reason: ErrSyntax}
	}
	var m manifest
	if err := decode(file, text, &m); err != nil {
		return nil, err
	}
	r := &reader{file: file}
	img := &Image{
		Name:    r.text("name", m.Name, abi.MaxNameLength),
		Version: r.text("version", m.Version, abi.MaxVersionLength),
		Devices: r.devices(m.Devices),
		Entry:   r.number("entry", m.Entry, 0, MaxSRAM-1),
		Ready:   r.number("ready", m.Ready, 1, math.MaxUint32-1),
	}
	if len(m.Segments) == 0 || len(m.Segments) > MaxSegments {
		r.bad("segments", ErrValue, strconv.Itoa(len(m.Segments)), fmt.Sprintf("1 to %d", MaxSegments))
	}
	for i := range m.Segments {
		if r.err != nil {
			break
		}
		img.Segments = append(img.Segments, r.segment(fmt.Sprintf("segments[%d].", i), &m.Segments[i]))
	}
	if m.SRAM != nil {
		img.SRAM = r.number("sram", m.SRAM, 1, MaxSRAM)
	}
	if m.Signature != nil {
		img.Signature = r.signature(m.Signature)
	}
	if r.err != nil {
		return nil, r.err
	}
	return img, nil
}

// decode reads TOML and refuses keys that a manifest does not have.
func decode(file string, text []byte, into *manifest) error {
	var bad *strict.Error
	if !errors.As(stricttoml.Decode(text, into), &bad) {
		return nil
	}
	e := &Error{File: file, Line: bad.Line, Key: printable(bad.Key), Detail: printable(bad.Err.Error()), Reason: ErrSyntax}
	if errors.Is(bad, strict.ErrUnknown) {
		e.Detail, e.Allowed, e.Reason = "", keys, ErrUnknownKey
	}
	return e
}

// printable escapes what would not be text on a terminal, and cuts off what
// is too long to read.
func printable(s string) string {
	quoted := strconv.Quote(cut(s))
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// quote shows a value.
func quote(s string) string { return strconv.QuoteToASCII(cut(s)) }

func cut(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// reader takes values out of a manifest and keeps the first error.
type reader struct {
	file string
	err  error
}

func (r *reader) bad(key string, reason error, detail, allowed string) {
	if r.err == nil {
		r.err = &Error{File: r.file, Key: key, Detail: detail, Allowed: allowed, Reason: reason}
	}
}

func (r *reader) missing(key string) { r.bad(key, ErrMissing, "", "") }

// textForm is that of names and versions (SPEC 14.3).
var textForm = regexp.MustCompile(`^[A-Za-z0-9._+-]+$`)

func (r *reader) text(key string, v *string, limit int) string {
	if v == nil {
		r.missing(key)
		return ""
	}
	if len(*v) > limit || !textForm.MatchString(*v) {
		r.bad(key, ErrValue, quote(*v), fmt.Sprintf("1 to %d letters, digits and ._-+", limit))
	}
	return *v
}

func (r *reader) number(key string, v *int64, low, high int64) uint32 {
	if v == nil {
		r.missing(key)
		return 0
	}
	if *v < low || *v > high {
		r.bad(key, ErrValue, fmt.Sprintf("%#x", *v), fmt.Sprintf("%#x to %#x", low, high))
	}
	return uint32(*v)
}

// hex reads so many bytes.
func (r *reader) hex(key string, v *string, into []byte) {
	if v == nil {
		r.missing(key)
		return
	}
	b, err := hex.DecodeString(*v)
	if err != nil || len(b) != len(into) {
		r.bad(key, ErrValue, quote(*v), fmt.Sprintf("%d hexadecimal digits", 2*len(into)))
	}
	copy(into, b)
}

func (r *reader) devices(list []string) []uint32 {
	const allowed = "a list of " + deviceForm + `, or ["any"]`
	if len(list) == 0 || len(list) > maxDevices {
		r.bad("devices", ErrMissing, fmt.Sprintf("%d devices", len(list)), allowed)
	}
	if len(list) == 1 && list[0] == "any" {
		return nil
	}
	var all []uint32
	for _, d := range list {
		device, err := ParseDevice(d)
		if err != nil {
			r.bad("devices", ErrValue, quote(d), allowed)
			break
		}
		all = append(all, device)
	}
	return all
}

func (r *reader) segment(key string, s *segment) (out Segment) {
	out.Address = r.number(key+"address", s.Address, 0, MaxSRAM-1)
	r.hex(key+"sha256", s.SHA256, out.SHA256[:])
	switch {
	case s.File == nil:
		r.missing(key + "file")
	case !filepath.IsLocal(*s.File) || strings.ContainsRune(*s.File, 0):
		r.bad(key+"file", ErrValue, quote(*s.File), "a path inside the manifest's folder")
	default:
		out.File = *s.File
	}
	return out
}

func (r *reader) signature(s *rawSignature) *firmware.Signature {
	out := &firmware.Signature{}
	r.hex("signature.key", s.Key, out.Key[:])
	r.hex("signature.value", s.Value, out.Bytes[:])
	return out
}
