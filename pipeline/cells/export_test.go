package cells

// Table is Update as it is without instructions for it.
func (c CRC) Table(b []byte) CRC { return c.table(b) }
