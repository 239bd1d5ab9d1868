// Package cellmodel sends cells through NICs with channels, in virtual time. The cells are
// cut by [cells.Cutter], and which one is next [cells.Waiting] says: the code that sends
// real cells, under a clock whose steps cost what a platform says.
//
// What is modelled: programs, which need a store for each message and some time to answer
// one; a NIC for each host, which sends or receives one cell at a time, with a FIFO of
// messages for each priority and one of received cells; and paths between the NICs, which
// take a fixed time and are never in each other's way. A receive FIFO fills in scenario
// "contention" alone, where other users of memory delay what a NIC stores: it says stop and start, or
// loses cells. In the others received cells wait for one cell sent at most. What is not modelled: caches.
//
// Results are exact integers of picoseconds: the same options give the same bytes.
package cellmodel
