package flat

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Encode returns the flat image of img, digest included. Errors are *Error; what
// it returns without one, Decode accepts.
func Encode(img *Image) ([]byte, error) {
	if len(img.Maps) > abi.MaxMaps {
		return nil, malformed("maps", "%d; allowed: 0 to %d", len(img.Maps), abi.MaxMaps)
	}
	for _, t := range []struct {
		field, text string
		limit       int
	}{{"name", img.Name, abi.MaxNameLength}, {"version", img.Version, abi.MaxVersionLength}} {
		if err := CheckText(t.field, t.text, t.limit); err != nil {
			return nil, err
		}
	}
	for _, m := range img.Maps {
		if err := CheckMap(m); err != nil {
			return nil, err
		}
	}

	h := datasheet.ImageHeader{
		Magic: datasheet.ImageMagic, ABI: img.ABI, Device: img.Device, BuildID: img.BuildID,
		HookCount: uint16(abi.Hooks), MapCount: uint16(len(img.Maps)),
		HooksOffset: datasheet.ImageHeaderSize,
		MapsOffset:  datasheet.ImageHeaderSize + uint32(abi.Hooks)*datasheet.ImageHookSize,
	}
	copy(h.Name[:], img.Name)
	copy(h.Version[:], img.Version)

	var hooks [abi.Hooks]datasheet.ImageHook
	maps := make([]datasheet.ImageMap, len(img.Maps))
	at := h.MapsOffset + uint32(len(maps))*datasheet.ImageMapSize
	var body []byte
	// append puts b behind what is there, aligned, and returns its offset.
	add := func(b []byte) uint32 {
		start := at + uint32(len(body))
		body = append(body, b...)
		body = append(body, make([]byte, pad(uint64(len(body)), datasheet.ImageAlign)-uint64(len(body)))...)
		return start
	}
	for hook := range abi.Hooks {
		if len(img.Programs[hook]) == 0 {
			continue
		}
		code, err := EncodeInstructions(img.Programs[hook])
		if err != nil {
			return nil, malformed("program "+hook.String(), "%v", err)
		}
		if n := len(code) / asm.InstructionSize; n > abi.MaxInstructions {
			return nil, malformed("program "+hook.String(), "%d instructions; allowed: 1 to %d", n, abi.MaxInstructions)
		}
		hooks[hook] = datasheet.ImageHook{Offset: add(code), Instructions: uint32(len(code) / asm.InstructionSize)}
	}
	for i, m := range img.Maps {
		maps[i] = datasheet.ImageMap{Type: uint32(m.Type), Key: m.Key, Value: m.Value, Entries: m.Entries, Flags: m.Flags}
		copy(maps[i].Name[:], m.Name)
		if len(m.Contents) > 0 {
			maps[i].ContentsOffset, maps[i].ContentsSize = add(m.Contents), uint32(len(m.Contents))
		}
		if len(body) > MaxSize {
			break
		}
	}
	size := uint64(at) + uint64(len(body))
	if size > MaxSize {
		return nil, malformed("size", "more than %d bytes", MaxSize)
	}
	storage, end, err := place(size, img.Maps)
	if err != nil {
		return nil, err
	}
	for i := range maps {
		maps[i].Storage = storage[i]
	}
	h.Size, h.SRAM = uint32(size), uint32(end)

	var out bytes.Buffer
	for _, v := range []any{&h, &hooks, maps} {
		if err := binary.Write(&out, binary.LittleEndian, v); err != nil {
			return nil, fmt.Errorf("flat image: %w", err)
		}
	}
	b := append(out.Bytes(), body...)
	digest := digestOf(b)
	copy(b[datasheet.ImageDigestOffset:], digest[:])
	if _, err := Decode(b); err != nil {
		return nil, err
	}
	return b, nil
}

// digestOf returns the SHA-256 of an image, taking the field of the digest as
// zeros.
func digestOf(b []byte) (sum [sha256.Size]byte) {
	const start, end = datasheet.ImageDigestOffset, datasheet.ImageDigestOffset + sha256.Size
	h := sha256.New()
	h.Write(b[:start])
	h.Write(make([]byte, sha256.Size))
	h.Write(b[end:])
	h.Sum(sum[:0])
	return sum
}
