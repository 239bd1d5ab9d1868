// Package cells cuts messages into ATM cells of 48 bytes and puts them together again,
// as MINI's channels send them.
//
// A message is a PDU of AAL5 (ITU-T I.363.5): its bytes, padding, and a trailer of 8
// bytes that ends with the last cell. A [Cutter] makes the cells of one PDU after the
// other, an [Assembly] takes them. Each channel has one of both, and each of these keeps
// one CRC: so the cells of different channels may be interleaved in any way, while those
// of one channel keep their order. A [Header] says which channel a cell belongs to, and
// whether its PDU ends with it.
//
// [Waiting] is the scheduler: between any two cells it says which one is next, one that
// was received, one of high priority or one of low priority. It knows of no clock and of
// no memory. Package engine asks it with real cells, package lab/internal/cellmodel with
// virtual ones.
//
// Nothing here allocates, waits or calls the system. None of it is for use by several
// goroutines at once.
package cells
