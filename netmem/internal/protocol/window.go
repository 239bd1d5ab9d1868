package protocol

import "encoding/binary"

// Sizes in bytes of the reply to Direct, and of an entry of the table that it names.
const (
	WindowSize = ReplySize + 24
	PlaceSize  = 32
)

// DirectSuffix follows a server's name in the name at which clients connect to read its memory.
const DirectSuffix = ".direct"

// Window says where the memory is in which a server has its pages. It follows the Reply to Direct.
type Window struct {
	// Handle of the registration that has both; 0: the server has no such memory.
	Handle uint32
	_      uint32
	// Frames is the address of frame 0. Each has the size of a page. Table is the address of the
	// Place of page 0. Both are addresses of the registration.
	Frames, Table uint64
}

// ParseWindow reads it. Errors are *FormatError.
func ParseWindow(b []byte) (Window, error) {
	w, err := get[Window](b, "window")
	if err == nil && w.Handle == 0 {
		err = &FormatError{"handle of the window", 0, "that of a registration"}
	}
	return w, err
}

// Place says which frame has a page, and what the reply to a fetch would say of the page.
type Place struct {
	// Sequence grows by two with each change of the place. It is odd while that goes on.
	Sequence uint32
	Frame    uint32
	// Version and Client are those of a Reply.
	Version, Client uint64
	// Epoch of the record by which the server gives the page out, 0 to MaxPlaceEpoch; 0: it gives out none.
	Epoch uint64
	// Flags of a Reply, 4 bits.
	Flags uint32
}

// MaxPlaceEpoch is the largest epoch that a Place has room for.
const MaxPlaceEpoch = 1<<60 - 1

// Words are the place as the table has it: the first one is written last.
func (p *Place) Words() [PlaceSize / 8]uint64 {
	return [...]uint64{uint64(p.Frame)<<32 | uint64(p.Sequence), p.Version, p.Client, p.Epoch<<4 | uint64(p.Flags&15)}
}

// ParsePlace reads a place that was copied out of a table. It reports false if the server was changing it.
func ParsePlace(b *[PlaceSize]byte) (Place, bool) {
	le := binary.LittleEndian
	p := Place{Sequence: le.Uint32(b[:]), Frame: le.Uint32(b[4:]), Version: le.Uint64(b[8:]), Client: le.Uint64(b[16:])}
	last := le.Uint64(b[24:])
	p.Epoch, p.Flags = last>>4, uint32(last&15)
	return p, p.Sequence&1 == 0
}
