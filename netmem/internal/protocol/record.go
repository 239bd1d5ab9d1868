package protocol

// Record says to which pool a server belongs, and which configuration of it the server knows. The zero Record is
// that of no pool.
type Record struct {
	Pool, Epoch uint64
	// Base is the version of pages that were never written.
	Base uint64
	// Members stands for the names of the servers and the number of copies: clients that name others do not use
	// the pool.
	Members uint64
}

// Check says what is wrong with a record. Errors are *FormatError.
func (r Record) Check() error {
	if (r.Pool == 0) != (r.Epoch == 0) {
		return &FormatError{"epoch of the record", r.Epoch, "more than 0 of a pool, and 0 of none"}
	}
	return nil
}

// Stamp is the identity of a page's content: its version, and the client that has written it.
type Stamp struct {
	Version, Client uint64
	Flags           uint32
	reserved        uint32
}

// Same reports whether two stamps are of the same bytes.
func (s Stamp) Same(t Stamp) bool { return s.Version == t.Version && s.Client == t.Client }

// Encode writes the stamp into the first StampSize bytes of b.
func (s *Stamp) Encode(b []byte) { copy(b[:StampSize], raw(s)) }

// StampAt reads the stamp in the first StampSize bytes of b.
func StampAt(b []byte) (s Stamp) {
	copy(raw(&s), b[:StampSize])
	s.reserved = 0
	return s
}
