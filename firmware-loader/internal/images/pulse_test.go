package images_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// TestPulse compares the pulse images with the host's policies, transfer for
// transfer: a frame that arrives in random pieces leaves in the same ones.
func TestPulse(t *testing.T) {
	for name, policy := range map[string]func(minimum int) pipeline.Policy{
		"store-and-forward": func(int) pipeline.Policy { return pipeline.StoreAndForward{} },
		"cut-through":       func(n int) pipeline.Policy { return pipeline.Static{Pulse: n} },
		"amp":               func(n int) pipeline.Policy { return pipeline.Eager{MinPulse: n} },
	} {
		eachBuild(t, name, func(t *testing.T, img *machine.Image) { testPulse(t, name, img, policy) })
	}
}

func testPulse(t *testing.T, name string, img *machine.Image, policy func(minimum int) pipeline.Policy) {
	for _, hook := range []abi.Hook{abi.PulseTx, abi.PulseRx} {
		rapid.Check(t, func(rt *rapid.T) {
			minimum := rapid.IntRange(1, 65536).Draw(rt, "minpulse")
			host := policy(minimum)
			v := pipeline.View{Length: rapid.IntRange(1, 65536).Draw(rt, "length")}
			for v.Sent < v.Length {
				if v.Arrived < v.Length && rapid.Bool().Draw(rt, "arrives") {
					v.Arrived += rapid.IntRange(1, v.Length-v.Arrived).Draw(rt, "bytes")
				}
				v.Queued = rapid.IntRange(0, 3).Draw(rt, "queued")
				want := 0
				if v.Available() > 0 {
					want = min(host.Next(v), v.Available())
				}
				got, err := img.Programs[hook].Pulse(&abi.PulseContext{Length: uint32(v.Length), Arrived: uint32(v.Arrived),
					Sent: uint32(v.Sent), Queued: uint32(v.Queued), Minimum: uint32(minimum)})
				if err != nil || got != want {
					rt.Fatalf("%s %s: %+v, minpulse %d: %d, %v; the host's policy moves %d", name, hook, v, minimum, got, err, want)
				}
				v.Sent += got
			}
		})
	}
}
