package emulator_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

// TestTransfersTakeTime: however the engines run, no transfer of the log and no message is
// shorter than the wire and the bus allow, and the bytes sent arrive unchanged.
func TestTransfersTakeTime(t *testing.T) {
	const rate, bus, setup, delay, size = 50_000_000, 100_000_000, time.Microsecond, 3 * time.Microsecond, 4000
	for _, threads := range []bool{false, true} {
		checkFiles(t)
		f := newFlow(t, threads, emulator.PairOptions{
			Shape: wire.ShaperOptions{Path: speed.Path{Rate: rate}, Delay: delay},
			Pipeline: func() engine.Pipeline {
				return engine.Pipeline{Send: pipeline.Eager{MinPulse: 128}, Receive: pipeline.Eager{MinPulse: 128}, Burst: 513, Bus: bus, Setup: setup}
			}})
		for _, e := range []*flowEnd{f.from, f.to} {
			e.setDMA(datasheet.RegLogBaseLow, flowLog)
			e.setDMA(datasheet.RegLogLog2, 7)
			e.setDMA(datasheet.RegDMAControl, datasheet.DMAControlLog)
		}
		for i := range byte(3) {
			began := time.Now()
			f.send(size, i)
			if took, least := time.Since(began), setup+size*time.Second/rate+delay; took < least {
				t.Errorf("threads %v: %d bytes arrived after %v, sooner than %v", threads, size, took, least)
			}
		}
		// The last records are written when the transfers end.
		f.await("the end of all transfers", func() bool { return f.from.engineRegs(datasheet.EngineNetTx)[0] == uint32(datasheet.DMAIdle) })
		var bytes [datasheet.DMAEngineCount]uint32
		for _, e := range []*flowEnd{f.from, f.to} {
			for _, r := range datasheet.DMARecordsAt(e.data.Bytes()[flowLog-flowBase:])[:e.dma(datasheet.RegLogProducer)] {
				speed := uint64(rate)
				switch r.Engine {
				case datasheet.EngineHostTx, datasheet.EngineHostRcv:
					speed = bus
				case datasheet.EngineNetRcv:
					bytes[r.Engine] += r.Bytes
					continue // a receiver that looks late finds at once what has come since
				}
				if took, least := r.End-r.Start, uint64(setup)+uint64(r.Bytes)*1e9/speed; took < least {
					t.Errorf("threads %v: %v moved %d bytes in %d ns, less than %d", threads, r.Engine, r.Bytes, took, least)
				}
				bytes[r.Engine] += r.Bytes
			}
		}
		for _, e := range []datasheet.DMAEngine{datasheet.EngineHostTx, datasheet.EngineNetTx, datasheet.EngineHostRcv} {
			should.Be(t, bytes[e], 3*size, "threads %v: %v moved bytes", threads, e)
		}
	}
}

// TestShapesOfWires: a burst is held against the frames that the wire turns out to have.
func TestShapesOfWires(t *testing.T) {
	checkFiles(t)
	first := openAddress(t, "emu:?wire=mem:shapes&mtu=1000")
	_, err := vfio.Open(t.Context(), "emu:?wire=mem:shapes&burst=937")
	if !errors.Is(err, vfio.ErrBadAddress) || !strings.Contains(err.Error(), "at most 936 bytes") {
		t.Errorf("a burst that is longer than a frame: %v", err)
	}
	if _, err := vfio.Open(t.Context(), "emu:?wire=mem:long&burst=8321"); !errors.Is(err, vfio.ErrBadAddress) || !strings.Contains(err.Error(), "at most 8320 bytes") {
		t.Errorf("a burst that is longer than a frame of the first end: %v", err)
	}
	if _, err := vfio.Open(t.Context(), "emu:?wire=shm:"+t.TempDir()+"/s&burst=16385"); !errors.Is(err, vfio.ErrBadAddress) || !strings.Contains(err.Error(), "at most 16384 bytes") {
		t.Errorf("a burst that is longer than a frame of shared memory: %v", err)
	}
	second := openAddress(t, "emu:?wire=mem:shapes&burst=936&rate=1M")
	waitLink(t, true, first, second)
}
