package elfimage

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// The note's name and type (System V ABI, note section). images/c/trapeze.h has
// the same for C.
const (
	noteName = "Trapeze\x00"
	noteType = 1
	noteHead = 12 + len(noteName)
	// maxNote is the size in bytes of the section: one note and nothing else.
	maxNote = noteHead + noteBody
)

const noteBody = 196

// FlagSigned of Note.Flags: KeyID and Signature are set.
const FlagSigned uint32 = 1

// Note says what an image is, little-endian. Zeros in ABI, SRAM and Digest stand
// for what has not been filled in: a compiler does not know them.
type Note struct {
	// ABI that the programs were made for, major<<16 | minor.
	ABI uint32
	// Device is PCI vendor<<16 | device of the NICs that the image is for; 0
	// for any.
	Device uint32
	// SRAM is the part of a slot that it needs when it runs, in bytes.
	SRAM    uint32
	_       uint32
	Name    [abi.MaxNameLength]byte
	Version [abi.MaxVersionLength]byte
	BuildID [abi.MaxBuildID]byte
	_       uint32
	// Digest is that of the flat image.
	Digest [sha256.Size]byte
	Flags  uint32
	// KeyID is the first bytes of the SHA-256 of the public key.
	KeyID     [8]byte
	Signature [ed25519.SignatureSize]byte
}

// Note returns the file's note, or nil if there is none. Errors are *Error.
func (f *File) Note() (*Note, error) {
	s := f.Section(NoteSection)
	if s == nil {
		return nil, nil
	}
	if len(s.Data) != maxNote {
		return nil, refuse(ErrMalformed, s.Name, "%d bytes; allowed: %d, one note", len(s.Data), maxNote)
	}
	if !bytes.Equal(s.Data[:noteHead], head()) {
		return nil, refuse(ErrMalformed, s.Name, "starts with % x; allowed: % x", s.Data[:noteHead], head())
	}
	var n Note
	if _, err := binary.Decode(s.Data[noteHead:], binary.LittleEndian, &n); err != nil {
		return nil, refuse(ErrMalformed, s.Name, "%v", err)
	}
	// What is reserved is encoded as zeros.
	if !bytes.Equal(encoded(n), s.Data[noteHead:]) {
		return nil, refuse(ErrMalformed, s.Name, "reserved bytes are not zero")
	}
	return &n, nil
}

// SetNote replaces the file's note.
func (f *File) SetNote(n *Note) {
	f.Set(NoteSection, elf.SHT_NOTE, elf.SHF_ALLOC, 4, append(head(), encoded(*n)...))
}

func head() []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(noteName)))
	b = binary.LittleEndian.AppendUint32(b, noteBody)
	b = binary.LittleEndian.AppendUint32(b, noteType)
	return append(b, noteName...)
}
