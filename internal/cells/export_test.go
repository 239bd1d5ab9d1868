package cells

// Table is Update as it is without instructions for it.
func (c CRC) Table(b []byte) CRC { return c.table(b) }

// Cell is Update by a whole payload, and LastCell by one up to where its CRC is to stand.
func (c CRC) Cell(p *[PayloadSize]byte) CRC { return c.cell(p) }

func (c CRC) LastCell(p *[PayloadSize]byte) CRC { return c.lastCell(p) }

// Run is Update by whole payloads.
func (c CRC) Run(p [][PayloadSize]byte) CRC { return c.run(p) }

// Cells returns how many cells of a PDU have come; 0 between PDUs.
func (a *Assembly) Cells() int { return a.cells }

// Add is AddRun of one cell.
func (a *Assembly) Add(payload *[PayloadSize]byte, last bool) (Trailer, error) {
	return a.AddRun([][PayloadSize]byte{*payload}, last)
}
