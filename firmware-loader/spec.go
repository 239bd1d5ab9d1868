package firmware

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Spec is an image that has been read. Its programs have not been checked.
type Spec struct {
	// Name and Version as in flat.Image.
	Name, Version string
	BuildID       [abi.MaxBuildID]byte
	// ABI that it was made for, major<<16 | minor.
	ABI uint32
	// Device is PCI vendor<<16 | device of the NICs that it is for; 0 for any.
	Device uint32
	// SRAM is the part of a slot that it needs when it runs, in bytes.
	SRAM uint32
	// Digest of the flat image.
	Digest [sha256.Size]byte
	// Built says that the file states this digest. A compiler's output does not,
	// and cannot be signed.
	Built bool
	// Signature is nil if the image is not signed.
	Signature *Signature
	// Programs by hook; nil for hooks that are not used. The instructions carry
	// the lines of the source if the file has them.
	Programs [abi.Hooks]asm.Instructions
	// Maps in the order of the flat image: by name.
	Maps []abi.Map

	file *elfimage.File
	note *elfimage.Note
	flat []byte
}

// Signature is whose signature an image has. It is not known to be valid.
type Signature struct {
	Key   KeyID
	Bytes [ed25519.SignatureSize]byte
}

// Program returns the linked program of a hook, and whether there is one.
func (s *Spec) Program(h abi.Hook) (abi.Program, bool) {
	if h >= abi.Hooks || len(s.Programs[h]) == 0 {
		return abi.Program{}, false
	}
	return abi.Program{Hook: h, Instructions: s.Programs[h], Maps: s.Maps}, true
}

// Link returns the flat image.
func (s *Spec) Link() []byte { return bytes.Clone(s.flat) }

// Bytes returns the ELF file.
func (s *Spec) Bytes() []byte { return s.file.Bytes() }

// Verdict is the checker's answer on the program of a hook.
type Verdict struct {
	Hook   abi.Hook
	Report checker.Report
	// Err is a *Refusal, or nil if the program is accepted.
	Err error
}

// Check checks all programs, in the order of hooks.
func (s *Spec) Check() []Verdict {
	var all []Verdict
	for h := range abi.Hooks {
		if p, ok := s.Program(h); ok {
			report, err := checker.Check(p)
			all = append(all, Verdict{Hook: h, Report: report, Err: err})
		}
	}
	return all
}

// Section is a part of the file that is loaded, or says what is.
type Section struct {
	Name  string `json:"name"`
	Bytes uint64 `json:"bytes"`
	// Role says what it is, such as "program" or "map definitions".
	Role string `json:"role"`
}

// Sections lists the parts of the file, tables and debug information left out.
func (s *Spec) Sections() []Section {
	var all []Section
	for i := range s.file.Sections {
		sec := &s.file.Sections[i]
		if role := sec.Role(); role != "" && sec.Size > 0 {
			all = append(all, Section{Name: sec.Name, Bytes: sec.Size, Role: role})
		}
	}
	return all
}

// StorageSize returns how many bytes of a slot a map takes.
func StorageSize(m Map) (uint64, error) { return flat.StorageSize(m) }

// Disassembly returns the programs as text, with the lines of their source where the file has them.
// Instructions are numbered in 8-byte slots, as refusals and faults count them.
func (s *Spec) Disassembly() string {
	var b strings.Builder
	for h := range abi.Hooks {
		if p, ok := s.Program(h); ok {
			fmt.Fprintf(&b, "%s:\n% v", h, p.Instructions)
		}
	}
	return b.String()
}

// signedPrefix keeps a signature of an image from being one of anything else.
const signedPrefix = "trapeze control program v1\x00"

// message is the text that a signature of the image signs.
func (s *Spec) message() []byte { return append([]byte(signedPrefix), s.Digest[:]...) }

// Sign returns the image with a signature, in place of any that it had. It refuses
// an image that states no digest with ErrNote: Build first.
func (s *Spec) Sign(key ed25519.PrivateKey) (*Spec, error) {
	if !s.Built {
		return nil, refuse(ErrNote, elfimage.NoteSection, "it has no digest; 'trapeze fw build' adds it")
	}
	note := *s.note
	note.Flags |= elfimage.FlagSigned
	note.KeyID = IDOf(key.Public().(ed25519.PublicKey))
	copy(note.Signature[:], ed25519.Sign(key, s.message()))
	return s.withNote(&note)
}

// Verify returns the key that has signed the image. Errors are *SignatureError.
func (s *Spec) Verify(ring *KeyRing) (Key, error) {
	if s.Signature == nil {
		return Key{}, Unsigned()
	}
	return ring.Verify(s.Signature.Key, s.message(), s.Signature.Bytes[:])
}

// Unsigned is the error of an image without a signature.
func Unsigned() *SignatureError {
	return &SignatureError{Hint: "sign it with 'trapeze fw sign'", Reason: ErrUnsigned}
}
