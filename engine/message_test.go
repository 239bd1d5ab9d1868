package engine_test

import (
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func unreliable(b *datasheet.CreateEndpointBody) { b.Reliability = datasheet.Unreliable }

func levels(t *testing.T, f func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody))) {
	for _, level := range []datasheet.Reliability{datasheet.Unreliable, datasheet.ReliableDelivery, datasheet.ReliableReception} {
		t.Run(level.String(), func(t *testing.T) {
			f(t, level, func(b *datasheet.CreateEndpointBody) { b.Reliability = level })
		})
	}
}

// lossy spoils frames with the given probabilities.
func lossy(seed uint64, loss, duplicate, reorder, corrupt float64) option {
	return func(c *engine.Config, p *port) {
		p.checksum = true
		r := rand.New(rand.NewPCG(seed, uint64(c.MAC[5])))
		var held [][]byte
		p.spoil = func(f []byte) (out [][]byte) {
			switch x := r.Float64(); {
			case x < loss:
			case x < loss+duplicate:
				out = append(out, f, append(alignedBytes(0), f...))
			case x < loss+duplicate+reorder:
				held = append(held, f)
				return nil
			case x < loss+duplicate+reorder+corrupt:
				f[r.IntN(len(f))] ^= 1 << r.IntN(8)
				out = append(out, f)
			default:
				out = append(out, f)
			}
			if len(held) > 0 && r.Float64() < 0.3 {
				out, held = append(out, held...), nil
			}
			return out
		}
	}
}

func TestConfig(t *testing.T) {
	good := func() engine.Config {
		n := &node{mem: alignedBytes(4096)}
		var q [][]byte
		return engine.Config{Port: &port{mtu: 2048, in: &q, out: &q}, Memory: n, Host: n, MAC: datasheet.MAC{2, 0, 0, 0, 0, 1}}
	}
	must.Get(engine.New(good()))(t)
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
		"negative burst": func(c *engine.Config) { c.Pipeline.Burst = -1 },
		"tiny burst":     func(c *engine.Config) { c.Pipeline.Burst = 63 },
		"huge burst":     func(c *engine.Config) { c.Pipeline.Burst = 65537 },
		"few buffers":    func(c *engine.Config) { c.Pipeline.Buffers = -1 },
		"many buffers":   func(c *engine.Config) { c.Pipeline.Buffers = engine.MaxBuffers + 1 },
	} {
		c := good()
		spoil(&c)
		should.Refuse(engine.New(c))(t, engine.ErrConfig, "%s", name)
	}
}

// one are the flags of a message of one frame.
const one = datasheet.FrameFirst | datasheet.FrameLast
