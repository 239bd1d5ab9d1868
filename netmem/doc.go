// Package netmem is the memory of other machines, by pages. A Server lends memory or a
// file; a Client reads and writes what one or several servers lend, as an io.ReaderAt and
// io.WriterAt with a cache of its own.
//
// A page that is missed comes through a ring (package ring): the request and its reply are
// messages in the memory of the NICs, and the page lands, by its tag, where the cache wants
// it, without a copy. What is read in sequence is fetched ahead. Pages that are written stay
// in the cache until their place is needed, or Sync or Close is called.
//
// Pages are spread over the servers by consistent hashing, and with Options.Copies each is on
// several of them: reads go to the first that lives, writes to all that do. A server that
// comes back is used for writing at once, and for reading when what it has missed has been
// copied to it, which happens in the background.
//
// A server that is lost is looked for at growing intervals, and at once when somebody needs
// a page of it. A call that meets no server which has its page waits for one to come back:
// until the deadline of its context, or without one until the server has been away for
// Options.Timeout. Then it fails with ErrUnavailable.
//
// # What holds, and what does not
//
// Each page has a version. A page that another client has written since this one read it is
// not overwritten: the write fails with a *ConflictError, and the page is read anew. A server
// that has restarted is known by its incarnation, and no page that it has lost is read as
// zeros: that is ErrLost, unless another copy has it. A write that failed has changed a page
// wholly or not at all.
//
// What is in the cache is not read again: a client sees what others have written since when
// the page has left its cache, or after Drop. Who cannot reach a server takes it for dead and
// goes on with the other copies, while another client may still reach it and, until this one
// has reached it again, reads there what was. Programs that share pages agree on who writes,
// by other means.
package netmem
