package firmware_test

import (
	"bytes"
	"crypto/ed25519"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/seed"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// headerOf calls change with the header of a section, which it may change.
func headerOf(t testing.TB, b []byte, section string, change func(s *elf.Section64)) {
	t.Helper()
	var file elf.Header64
	decode(t, b, &file)
	names := contents(t, b, ".strtab")
	for i := range uint64(file.Shnum) {
		var s elf.Section64
		at := b[file.Shoff+64*i:]
		decode(t, at, &s)
		if bytes.HasPrefix(names[s.Name:], append([]byte(section), 0)) {
			change(&s)
			must.Get(binary.Encode(at, binary.LittleEndian, s))(t)
			return
		}
	}
	t.Fatalf("no section %s", section)
}

func decode(t testing.TB, b []byte, v any) {
	t.Helper()
	must.Get(binary.Decode(b, binary.LittleEndian, v))(t)
}

// signedBy gives an image the signature of something else.
func signedBy(t testing.TB, s *firmware.Spec, key ed25519.PrivateKey, message []byte) []byte {
	t.Helper()
	b := sign(t, s, key).Bytes()
	note := contents(t, b, ".note.trapeze")
	copy(note[len(note)-ed25519.SignatureSize:], ed25519.Sign(key, message))
	return b
}

// badInput is a file of a class of bad input, and the refusal that says why: its
// reason, and the section or field that it names.
type badInput struct {
	name   string
	make   func(t testing.TB) []byte
	reason error
	names  string
}

// spoiled is the small image after a change.
func spoiled(change func(t testing.TB, b []byte)) func(t testing.TB) []byte {
	return func(t testing.TB) []byte {
		b := small(t).Bytes()
		change(t, b)
		return b
	}
}

func badInputs() []badInput {
	le := binary.LittleEndian
	return []badInput{
		{"truncated", func(t testing.TB) []byte {
			b := small(t).Bytes()
			return b[:len(b)*3/4]
		}, elfimage.ErrTruncated, "section headers"},
		{"truncated-section", spoiled(func(t testing.TB, b []byte) {
			headerOf(t, b, ".symtab", func(s *elf.Section64) { s.Off = uint64(len(b)) - s.Size + 1 })
		}), elfimage.ErrTruncated, "section .symtab"},
		{"corrupted", spoiled(func(t testing.TB, b []byte) { copy(contents(t, b, "pulse/tx")[4:], "\xff\xff\xff\xff") }),
			firmware.ErrStale, "section .note.trapeze"},
		{"bit-flipped", spoiled(func(t testing.TB, b []byte) { contents(t, b, ".BTF")[0] ^= 0x20 }), elfimage.ErrMalformed, "section .BTF"},
		{"wrong-endian", spoiled(func(t testing.TB, b []byte) { b[elf.EI_DATA] = byte(elf.ELFDATA2MSB) }), elfimage.ErrFormat, "byte order ELFDATA2MSB"},
		{"wrong-machine", spoiled(func(_ testing.TB, b []byte) { le.PutUint16(b[18:], uint16(elf.EM_X86_64)) }), elfimage.ErrMachine, "EM_X86_64"},
		{"overlapping-section", spoiled(func(t testing.TB, b []byte) {
			headerOf(t, b, "pulse/tx", func(p *elf.Section64) {
				headerOf(t, b, ".data", func(s *elf.Section64) { s.Off = p.Off + 8 })
			})
		}), elfimage.ErrMalformed, "section .data"},
		{"section-in-header", spoiled(func(t testing.TB, b []byte) {
			headerOf(t, b, ".data", func(s *elf.Section64) { s.Off = 32 })
		}), elfimage.ErrMalformed, "inside of the ELF header"},
		{"hostile-huge-section", spoiled(func(t testing.TB, b []byte) {
			headerOf(t, b, ".data", func(s *elf.Section64) { s.Size = 1 << 62 })
		}), elfimage.ErrTruncated, "section .data"},
		{"hostile-huge-variables", spoiled(func(t testing.TB, b []byte) {
			headerOf(t, b, ".data", func(s *elf.Section64) { s.Type, s.Size = uint32(elf.SHT_NOBITS), 1<<62 })
		}), elfimage.ErrLimit, "section .data"},
		{"hostile-names-of-names", spoiled(func(t testing.TB, b []byte) {
			// The table of symbols has its names in itself.
			headerOf(t, b, ".symtab", func(s *elf.Section64) { s.Link = indexOf(t, b, ".symtab") })
		}), elfimage.ErrMalformed, "section .symtab"},
		{"hostile-relocations-of-relocations", spoiled(func(t testing.TB, b []byte) {
			headerOf(t, b, ".relpulse/tx", func(s *elf.Section64) { s.Info = indexOf(t, b, ".relpulse/tx") })
		}), firmware.ErrStale, "section .note.trapeze"},
		{"hostile-note", spoiled(func(t testing.TB, b []byte) { le.PutUint32(contents(t, b, ".note.trapeze")[4:], 1<<31) }),
			elfimage.ErrMalformed, "section .note.trapeze"},
		{"hostile-long-note", func(t testing.TB) []byte {
			f := must.Get(elfimage.Read(small(t).Bytes()))(t)
			note := f.Section(".note.trapeze")
			note.Data = append(bytes.Clone(note.Data), make([]byte, 216)...)
			note.Size = uint64(len(note.Data))
			return f.Bytes()
		}, elfimage.ErrLimit, "section .note.trapeze"},
		{"relocation-out-of-range", spoiled(func(t testing.TB, b []byte) { le.PutUint64(contents(t, b, ".relpulse/tx"), 1<<20) }),
			elfimage.ErrMalformed, "section pulse/tx"},
		{"relocation-to-no-symbol", spoiled(func(t testing.TB, b []byte) { le.PutUint32(contents(t, b, ".relpulse/tx")[12:], 1<<20) }),
			elfimage.ErrMalformed, "section pulse/tx"},
		{"signature-over-other-bytes", func(t testing.TB) []byte {
			return signedBy(t, small(t), key(1), []byte("something else"))
		}, firmware.ErrSignature, "key " + idOf(key(1)).String()},
		{"stale-signature", func(t testing.TB) []byte {
			// Of the version before, with a digest that is right.
			before := sign(t, small(t), key(1)).Bytes()
			b := sign(t, smallAs(t, firmware.Meta{Version: "1.1"}), key(1)).Bytes()
			old, now := contents(t, before, ".note.trapeze"), contents(t, b, ".note.trapeze")
			copy(now[len(now)-ed25519.SignatureSize:], old[len(old)-ed25519.SignatureSize:])
			return b
		}, firmware.ErrSignature, "key " + idOf(key(1)).String()},
		{"stale-digest", func(t testing.TB) []byte {
			b := sign(t, small(t), key(1)).Bytes()
			contents(t, b, ".data")[0] ^= 1
			return b
		}, firmware.ErrStale, "section .note.trapeze"},
		{"other-device", func(t testing.TB) []byte {
			return sign(t, smallAs(t, firmware.Meta{Device: 0x15b31017}), key(1)).Bytes()
		}, flat.ErrDevice, "header device"},
	}
}

func indexOf(t testing.TB, b []byte, section string) uint32 {
	t.Helper()
	f := must.Get(elf.NewFile(bytes.NewReader(b)))(t)
	for i, s := range f.Sections {
		if s.Name == section {
			return uint32(i)
		}
	}
	t.Fatalf("no section %s", section)
	return 0
}

// accept does all that a host does before it touches a NIC of device 0x12347250, for
// which it trusts the first key: parse, check, verify, link.
func accept(b []byte, trusted *firmware.KeyRing) error {
	s, err := firmware.Parse(b)
	if err != nil {
		return err
	}
	for _, v := range s.Check() {
		if v.Err != nil {
			return v.Err
		}
	}
	if _, err := s.Verify(trusted); err != nil {
		return err
	}
	if _, err := load.Flat(s.Link()); err != nil {
		return err
	}
	img, err := flat.Decode(s.Link())
	if err != nil {
		return err
	}
	return img.Suits(abi.Version, 0x12347250, 64<<10)
}

// TestBadInput: a file of each class of bad input is refused with a typed error that
// names what is wrong, and is a seed of FuzzParse.
func TestBadInput(t *testing.T) {
	trusted, _ := ring(t, key(1))
	must.OK(t, accept(sign(t, small(t), key(1)).Bytes(), trusted))
	for _, c := range badInputs() {
		t.Run(c.name, func(t *testing.T) {
			b := c.make(t)
			seed.Check(t, "FuzzParse", c.name, b)
			err := accept(b, trusted)
			should.Hold(t, errors.Is(err, c.reason) && typed(err) && strings.Contains(err.Error(), c.names),
				"%T %v; want %v that names %q", err, err, c.reason, c.names)
		})
	}
}

func typed(err error) bool {
	var inFile *elfimage.Error
	var inImage *flat.Error
	var signature *firmware.SignatureError
	return errors.As(err, &inFile) || errors.As(err, &inImage) || errors.As(err, &signature)
}

// TestGoodSeeds keeps the seeds that are accepted.
func TestGoodSeeds(t *testing.T) {
	seed.Check(t, "FuzzParse", "small", small(t).Bytes())
	seed.Check(t, "FuzzParse", "signed", sign(t, small(t), key(1)).Bytes())
	names, err := os.ReadDir(filepath.Join("testdata", "fuzz", "FuzzParse"))
	should.Hold(t, err == nil && len(names) >= len(badInputs()), "%d seeds, %v", len(names), err)
}
