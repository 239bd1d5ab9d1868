// Package pager fills a range of another process's memory with pages from a Source, within a
// limit of local bytes, and takes back what is written there.
//
// Three processes share the memory, which is a file without a name (memfd):
//
//	mapper   the application: it has the file mapped, and has made the userfaultfd
//	pager    handles the faults (Pager). It is another process because a Go program cannot
//	         handle its own: its garbage collector waits for the thread that waits for the page
//	guard    ends the memory when the pager, which has started it, is no more. It is another
//	         process because of a mapper all of whose processors wait for pages nothing else runs
//
// All three hold the userfaultfd: were the last copy closed, missing pages would be zeros.
//
// # Ending
//
// Memory.End cuts the file to nothing and wakes who waits. From then on every access, by
// whatever process, is a SIGBUS; no page, neither right nor wrong, is ever seen again. Unlike
// UFFDIO_POISON this also holds for pages that are in place, and for old kernels.
//
// # Pages
//
// What is called a page here is one of the source's: 4 to 64 KiB, so one or several of the
// machine's. It is absent, being fetched, pooled (in a buffer of this process, from where a
// fault gets it without the network), or mapped (in the file, seen by the mapper). A mapped
// page that was not written since it was read or written back is protected against writing;
// the first write is a fault, which makes it dirty.
//
// The processor's marks of pages that were used are not to be seen by another process. So
// the clock goes by faults: each mapped page has a few chances, the hand takes one at each
// turn, and a page without any goes into the pool, its place in the file is punched out, and
// if it is dirty it is written back from there. A fault that finds its page in the pool has
// shown that the page is in use, and gives it more chances than it had. The
// segmented FIFO of VMS did that for want of such marks (Turner and Levy, "Segmented FIFO page
// replacement", SIGMETRICS 1981), with a clock in place of its first queue. Pages that were
// read ahead and never missed have no chance, and leave without passing through the pool.
//
// # Runs
//
// Pages that are read ahead of a reader in sequence are asked for by runs of up to 256 KiB,
// eight of which are under way at a time: one request to the source, buffers that follow
// each other, and one UFFDIO_COPY for all that no thread waits for yet. Pages beside each other
// that leave at the same time are punched out together. What a page of its own costs for
// that is more than its bytes do, for pages of 4 KiB by far.
//
// A run has pages leave before it is put in place, and neither is done with the lock held:
// they are leaving until their places are empty, and a fault on one of them waits until then
// and is a miss. Pages that were written leave with the lock held, one by one.
package pager
