package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func TestConfig(t *testing.T) {
	good := func() engine.Config {
		n := &node{mem: alignedBytes(4096)}
		var q [][]byte
		return engine.Config{Port: &port{mtu: 2048, in: &q, out: &q}, Memory: n, Host: n, MAC: datasheet.MAC{2, 0, 0, 0, 0, 1}}
	}
	if _, err := engine.New(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*engine.Config){
		"no port":        func(c *engine.Config) { c.Port = nil },
		"no memory":      func(c *engine.Config) { c.Memory = nil },
		"no host":        func(c *engine.Config) { c.Host = nil },
		"no MAC":         func(c *engine.Config) { c.MAC = datasheet.MAC{} },
		"multicast MAC":  func(c *engine.Config) { c.MAC = datasheet.Broadcast },
		"tiny MTU":       func(c *engine.Config) { c.Port.(*port).mtu = datasheet.MinMTU - 1 },
		"huge MTU":       func(c *engine.Config) { c.Port.(*port).mtu = datasheet.MaxMTU + 1 },
		"no endpoints":   func(c *engine.Config) { c.Limits = engine.DefaultLimits(); c.Limits.Endpoints = 1 },
		"huge transfers": func(c *engine.Config) { c.Limits = engine.DefaultLimits(); c.Limits.Transfer = 1<<30 + 1 },
		"timing":         func(c *engine.Config) { c.Timing = engine.DefaultTiming(); c.Timing.Retransmit = -1 },
	} {
		c := good()
		spoil(&c)
		if _, err := engine.New(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
