package placement

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Configuration says which servers of a pool have its pages. A pool with copies has one at a time, which its
// clients change by compare-and-swap: the next one has an epoch that is larger by one.
type Configuration struct {
	Pool  uint64 `json:"pool"`
	Epoch uint64 `json:"epoch"`
	// Lost is the epoch in which a member went last; 0 if none did.
	Lost uint64 `json:"lost"`
	// Base is the version of pages that were never written.
	Base    uint64   `json:"base"`
	Copies  int      `json:"copies"`
	Servers []Server `json:"servers"` // in the order of their names
}

// Server is one server of a configuration.
type Server struct {
	Name string `json:"name"`
	// Incarnation of the process that has pages; 0: the others go on without the server.
	Incarnation uint64 `json:"incarnation"`
	// Since is the epoch in which this process was let in.
	Since uint64 `json:"since"`
	// Joining: it takes what is written, and is given the rest. It is not read from.
	Joining bool `json:"joining"`
}

// Present says that the others do not go on without the server.
func (s Server) Present() bool { return s.Incarnation != 0 }

// Member says that the server has all pages that it should have.
func (s Server) Member() bool { return s.Present() && !s.Joining }

// Parse reads a configuration, and refuses one that makes no sense.
func Parse(b []byte) (c Configuration, err error) {
	if err := json.Unmarshal(b, &c); err != nil {
		return Configuration{}, fmt.Errorf("configuration: %w", err)
	}
	switch {
	case c.Pool == 0 || c.Epoch == 0 || c.Lost > c.Epoch:
		err = fmt.Errorf("configuration of pool %x: epoch %d, a member lost in %d", c.Pool, c.Epoch, c.Lost)
	case c.Copies < 1 || c.Copies > len(c.Servers):
		err = fmt.Errorf("configuration: %d copies on %d servers", c.Copies, len(c.Servers))
	}
	for i := 1; i < len(c.Servers) && err == nil; i++ {
		if c.Servers[i-1].Name >= c.Servers[i].Name {
			err = fmt.Errorf("configuration: server %q comes before %q", c.Servers[i-1].Name, c.Servers[i].Name)
		}
	}
	if err != nil {
		return Configuration{}, err
	}
	return c, nil
}

// Encode is the inverse of Parse.
func (c Configuration) Encode() []byte {
	b, _ := json.Marshal(c) // of numbers and strings, it never fails
	return b
}

// Outside returns the number of servers that are no members.
func (c Configuration) Outside() (n int) {
	for _, s := range c.Servers {
		if !s.Member() {
			n++
		}
	}
	return n
}

// Joins says that a server joins.
func (c Configuration) Joins() bool {
	return slices.ContainsFunc(c.Servers, func(s Server) bool { return s.Joining })
}

// With is the next configuration, in which a server is another process, which joins; for 0 the others go on
// without it.
func (c Configuration) With(server int, incarnation uint64) Configuration {
	c.Epoch++
	if c.Servers[server].Member() {
		c.Lost = c.Epoch
	}
	c.Servers = slices.Clone(c.Servers)
	s := &c.Servers[server]
	s.Incarnation, s.Since, s.Joining = incarnation, c.Epoch, incarnation != 0
	return c
}

// Joined is the next configuration, in which all that join are members.
func (c Configuration) Joined() Configuration {
	c.Epoch++
	c.Servers = slices.Clone(c.Servers)
	for i := range c.Servers {
		c.Servers[i].Joining = false
	}
	return c
}
