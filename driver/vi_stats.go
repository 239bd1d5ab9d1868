package driver

// VIStats has the counters of a VI since it was made. The counters of receives are zero if the
// VI shares a receive queue: the Stats of that queue have them.
type VIStats struct {
	SendsPosted       uint64 `json:"sends_posted" help:"Sends that were posted." unit:"descriptors"`
	SendsCompleted    uint64 `json:"sends_completed" help:"Sends that have completed and were taken back." unit:"descriptors"`
	SendsFailed       uint64 `json:"sends_failed" help:"Sends that have completed in error." unit:"descriptors"`
	ReceivesPosted    uint64 `json:"receives_posted" help:"Receives that were posted." unit:"descriptors"`
	ReceivesCompleted uint64 `json:"receives_completed" help:"Receives that have completed and were taken back." unit:"descriptors"`
	ReceivesFailed    uint64 `json:"receives_failed" help:"Receives that have completed in error." unit:"descriptors"`
}

// Stats returns the counters, also on a device that has failed. It fails with ErrClosed once
// the VI or its NIC is closed.
func (v *VI) Stats() (s VIStats, err error) {
	err = v.n.doAny(v.n.background, "read counters of VI", func() error {
		return v.leaving.unless(v.n, func() error {
			s.SendsPosted, s.SendsCompleted, s.SendsFailed = v.send.counts()
			s.ReceivesPosted, s.ReceivesCompleted, s.ReceivesFailed = v.recv.counts()
			return nil
		})
	})
	return s, err
}

// counts returns how many descriptors were posted, were taken back, and completed in error.
func (q *workQueue) counts() (posted, completed, failed uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	posted = widened(q.halves, q.next)
	return posted, posted - uint64(q.next-q.taken), q.failed
}

// widened is a count of descriptors whose low half is index. halves counts the multiples of 2^31
// that it has passed, and may lag behind by one.
func widened(halves, index uint32) uint64 {
	if halves&1 != index>>31 {
		halves++
	}
	return uint64(halves>>1)<<32 | uint64(index)
}

// CQStats has the counters of a completion queue since it was made.
type CQStats struct {
	Entries  uint64 `json:"entries" help:"Completion entries that were read." unit:"entries"`
	Capacity uint64 `json:"capacity" help:"Completion entries that the queue has room for." unit:"entries" kind:"gauge"`
	Promised uint64 `json:"promised" help:"Completion entries that the attached work queues may need." unit:"entries" kind:"gauge"`
}

// Stats returns the counters, also on a device that has failed. It fails with ErrClosed once
// the CQ or its NIC is closed.
func (c *CQ) Stats() (s CQStats, err error) {
	err = c.n.doAny(c.n.background, "read counters of CQ", func() error {
		return c.leaving.unless(c.n, func() error {
			c.mu.Lock()
			s.Entries = c.read
			c.mu.Unlock()
			c.n.mu.Lock()
			defer c.n.mu.Unlock()
			s.Capacity, s.Promised = uint64(c.entries), uint64(c.promised)
			return nil
		})
	})
	return s, err
}
