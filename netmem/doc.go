// Package netmem is the memory of other machines, by pages. A Server lends memory; what
// must outlive its power belongs on a disk. A Client reads and writes what one or several servers lend, as an io.ReaderAt and
// io.WriterAt with a cache of its own.
//
// A page that is missed comes through a ring (package ring): the request and its reply are
// messages in the memory of the NICs, and the page lands, by its tag, where the cache wants
// it, without a copy. What is read in sequence is fetched ahead. Pages that are written stay
// in the cache until their place is needed, or Sync or Close is called.
//
// Pages are spread over the servers by consistent hashing, and with Options.Copies each is on
// several of them. A write is acknowledged when all servers of its page have it. Which servers have all pages
// is in Options.Store, such as a key in etcd. The pool goes on without a server once it has been away for
// Options.Timeout. One that comes back has nothing, and is given all pages before it is read.
//
// A server that is lost is looked for at growing intervals, and at once when a call needs
// a page of it. Calls wait for it: until the deadline of their context, or without one for
// Options.Timeout, with copies twice that and four seconds. Then they fail with ErrUnavailable.
//
// With Options.Cooperation clients use each other's idle memory: a page that leaves the cache of one goes
// to the client with the oldest pages, and comes from there. Whatever comes from a client is compared
// with the digest that the page's server has, so a client that lies costs time only.
//
// # What holds, and what does not
//
// Each page has a version. A page that another client has written since this one read it is
// not overwritten: the write fails with a *ConflictError, and the page is read anew. A server
// that has restarted is known by its incarnation, and no page that it has lost is read as
// zeros: that is ErrLost, unless another copy has it. A write that failed has changed a page
// wholly or not at all.
//
// With copies, Sync and Close return nil only if all that was written is acknowledged, and a read
// past the cache returns the last acknowledged write or one that is under way. PROTOCOL.md says on
// what that rests.
//
// Pages in the cache are not read again: a client sees what others have written since when
// the page has left its cache, or after Drop. Programs that share pages agree on who writes,
// by other means.
package netmem
