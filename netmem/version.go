package netmem

// Version of a page: it grows with each write, and is never that of other bytes.
type Version uint64
