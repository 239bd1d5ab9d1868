package function

// Registers are those of a BAR. After an access that fails nothing more is done, so that a sequence
// needs to look but once.
type Registers struct {
	bar *BAR
	err error
}

// OpenRegisters is OpenBAR for registers.
func (f *Function) OpenRegisters(index int, least uint64) (Registers, error) {
	b, err := f.OpenBAR(index, least)
	return Registers{bar: b}, err
}

// BAR returns the BAR.
func (r *Registers) BAR() *BAR { return r.bar }

// Read reads a register; 0 after an error.
func (r *Registers) Read(offset uint64) uint32 {
	if r.err != nil {
		return 0
	}
	v, err := r.bar.Read(offset)
	r.err = err
	return v
}

// Write writes a register.
func (r *Registers) Write(offset uint64, v uint32) {
	if r.err == nil {
		r.err = r.bar.Write(offset, v)
	}
}

// Update changes bits of a register.
func (r *Registers) Update(offset uint64, set, clear uint32) {
	r.Write(offset, r.Read(offset)&^clear|set)
}

// Fail notes an error, if there is none yet.
func (r *Registers) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Err returns the error.
func (r *Registers) Err() error { return r.err }

// Take returns the error, and forgets it.
func (r *Registers) Take() error {
	err := r.err
	r.err = nil
	return err
}
