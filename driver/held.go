package driver

import "github.com/trapeze-nic/trapeze/descriptors"

// Held is a queue of a VI for one who keeps something of his own beside it: the lock of the queue
// is the lock of both, as each locked instruction costs a short message some 20 ns. It must not be
// held across anything that blocks.
type Held struct{ q *workQueue }

// HeldSend and HeldRecv return the queues of the VI.
func (v *VI) HeldSend() Held { return Held{&v.send} }
func (v *VI) HeldRecv() Held { return Held{&v.recv} }

// Lock locks the queue: nobody else posts there, or takes back, until Unlock.
func (h Held) Lock()   { h.q.mu.Lock() }
func (h Held) Unlock() { h.q.mu.Unlock() }

// Post is PostSendBatch, or PostRecvBatch, with the lock held.
func (h Held) Post(ds []*descriptors.Descriptor) (posted int, err error) { return h.q.postHeld(ds) }

// Done is SendDone, or RecvDone, with the lock held. It lets go of the lock while it finds out
// what an error means.
func (h Held) Done() (*descriptors.Descriptor, error) { return h.q.pollHeld() }

// DoneBatch is SendDoneBatch, or RecvDoneBatch, as Done is.
func (h Held) DoneBatch(into []*descriptors.Descriptor) (int, error) { return h.q.pollBatchHeld(into) }
