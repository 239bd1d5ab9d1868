package cells

// Table is Update as it is without instructions for it.
func (c CRC) Table(b []byte) CRC { return c.table(b) }

// Cell is Update by a whole payload, and LastCell by one up to where its CRC is to stand.
func (c CRC) Cell(p *[PayloadSize]byte) CRC { return c.cell(p) }

// LastCell is described at Cell.
func (c CRC) LastCell(p *[PayloadSize]byte) CRC { return c.lastCell(p) }

// Run is Update by whole payloads.
func (c CRC) Run(p [][PayloadSize]byte) CRC { return c.run(p) }
