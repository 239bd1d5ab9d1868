package engine

// core is the parts that all others need.
type core struct {
	limits Limits
	timing Timing
	link
	counters
	reports
	clock
	program
	endpoints
	bells    doorbells
	regions  regions
	cqs      completions
	dma      dma
	requests requests
	received cellFIFO
}

// subject finds the endpoint that a command is about. What was posted to it before
// the command counts as posted.
func (c *core) subject(id uint32) *endpoint {
	ep := c.endpoint(id)
	if id == 0 {
		ep = c.all[0]
	}
	if ep != nil {
		c.bells.takePage(ep.id)
	}
	return ep
}
