package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

// machines runs a test over a wire that loses nothing, and over one that might.
func machines(t *testing.T, f func(t *testing.T, options ...option)) {
	t.Run("exact", func(t *testing.T) { f(t, exactly(nil)) })
	t.Run("acknowledged", func(t *testing.T) { f(t) })
}

// TestRevokedPayloadEntry: an entry of the payload table ends with its region.
func TestRevokedPayloadEntry(t *testing.T) {
	machines(t, func(t *testing.T, options ...option) {
		w, v, p := pair(t, nil, options...)
		data := w.b.memory(0, 0)
		buf, at, _ := w.b.alloc(100)
		do(w.b, datasheet.OpSetPayload, datasheet.SetPayloadBody{Endpoint: p.id, Entry: 1, Handle: data, Address: at, Length: 100})
		steer := &scripted{t: t, demux: func(_ []byte, queue uint32) (uint32, uint32, bool) { return queue, 1, true }}
		w.b.e.Exclusive(func() { w.b.e.SetProcessor(steer, engine.HookDemultiplex.Set(), 0) })
		if sent, received, _ := message(v, p, pattern(100, 1)); sent.Failed() || received.Failed() {
			t.Fatal(sent, received)
		}
		mustEqual(t, buf, pattern(100, 1))
		clear(buf)
		deregister(w.b, data)
		sent, received, _ := message(v, p, pattern(100, 2))
		if sent&datasheet.StatusRemoteDescriptor == 0 || received&datasheet.StatusProtectionError == 0 {
			t.Errorf("%v, %v", sent, received)
		}
		mustEqual(t, buf, make([]byte, 100))
	})
}

// one are the flags of a message of one frame.
const one = datasheet.FrameFirst | datasheet.FrameLast

// TestUnreliableOverBadWires: what a wire loses, doubles, reorders and damages arrives whole, at most once and in order, whether
// in one frame or in several.
func TestUnreliableOverBadWires(t *testing.T) {
	for name, wire := range map[string]func(seed uint64) option{
		"doubled":   func(seed uint64) option { return lossy(seed, 0.05, 0.5, 0.1, 0) },
		"all of it": func(seed uint64) option { return lossy(seed, 0.1, 0.1, 0.1, 0.1) },
	} {
		for _, size := range []int{0, 8, 5000} {
			for seed := range uint64(4) {
				t.Run(fmt.Sprintf("%s, %d bytes, seed %d", name, size, seed), func(t *testing.T) {
					w, v, p := pair(t, unreliable, memory(roomy), wire(seed))
					const messages = 1 << queueLog2
					m := newBatch(v, p, slices.Repeat([]int{size}, messages)...)
					for i, s := range m.sends {
						s.SetImmediate(uint32(i))
						v.postSend(s)
						w.settle()
					}
					last, arrived := -1, 0
					for i, r := range m.receives {
						if !r.Status().Done() {
							break
						}
						number, ok := r.Immediate()
						if r.Status().Failed() || !ok || int(number) <= last {
							t.Fatalf("%v: message %d arrived after message %d", r.Status(), number, last)
						}
						mustEqual(t, m.in[i], m.out[number])
						last = int(number)
						arrived++
					}
					if arrived < messages/10 {
						t.Errorf("%d of %d messages arrived", arrived, messages)
					}
				})
			}
		}
	}
}
