package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/vfio"
)

var featureNames = map[uint64]string{
	datasheet.FeatureRing:          "ring",
	datasheet.FeatureChannel:       "channel",
	datasheet.FeatureEager:         "eager",
	datasheet.FeatureDoorbellMarks: "doorbell-marks",
}

// Report says what the device is, how it does, and what it has counted. It fails with what
// NIC.Health, Counters and the other methods fail with that it asks.
func (n *NIC) Report(ctx context.Context) (r telemetry.Report, err error) {
	health, err := n.Health(ctx)
	if err != nil {
		return r, err
	}
	r = describeIdentity(n.Identity())
	r.Address, r.Backend = n.Address(), n.Backend()
	r.Health = health
	for _, part := range []func(*telemetry.Report) error{
		n.reportBARs, n.reportCounters, n.reportSRAM, n.reportDMA, n.reportChannels, n.reportProgram,
	} {
		if err := part(&r); err != nil && !errors.Is(err, descriptors.ErrNotSupported) {
			return r, err
		}
	}
	return r, nil
}

func (n *NIC) reportCounters(r *telemetry.Report) (err error) {
	if r.Counters, err = n.Counters(); err != nil {
		return err
	}
	clock, err := n.Clock()
	r.ClockUS = microseconds(clock)
	return err
}

func (n *NIC) reportSRAM(r *telemetry.Report) error {
	free, all, err := n.FreeSRAM()
	if used := all - free; all > 0 {
		r.SRAMFree, r.SRAMUsed = &free, &used
	}
	return err
}

func (n *NIC) reportProgram(r *telemetry.Report) error {
	s, err := n.ProgramStatus()
	if err == nil {
		r.Program = new(s.Describe())
	}
	return err
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func (n *NIC) reportDMA(r *telemetry.Report) error {
	policy, err := n.Policy()
	if err != nil {
		return err
	}
	log, err := n.DMALog()
	r.DMA = &telemetry.DMA{
		Policy: describePolicy(policy), Deadline: microseconds(policy.Deadline), Timeouts: policy.Timeouts, Refused: policy.Refused,
		Log: log,
	}
	return err
}

func (n *NIC) reportBARs(r *telemetry.Report) error {
	for _, index := range []int{vfio.RegionBAR0, vfio.RegionBAR2, vfio.RegionBAR4} {
		info, err := n.dev.Region(index)
		if err != nil {
			return err
		}
		if info.Size > 0 {
			r.BARs = append(r.BARs, telemetry.BAR{Index: index, Bytes: info.Size, Mappable: info.Flags&vfio.RegionMmap != 0})
		}
	}
	return nil
}

func describeIdentity(id Identity) telemetry.Report {
	r := telemetry.Report{
		PCI:     id.PCI.String(),
		Version: fmt.Sprintf("%d.%d.%d", id.DeviceVersion>>16, id.DeviceVersion>>8&0xff, id.DeviceVersion&0xff),
		MAC:     id.MAC.String(), MTU: id.MTU, SRAM: id.SRAM, Vectors: id.Vectors,
		Features: describeFeatures(id.Features),
		Limits: telemetry.Limits{
			Endpoints: id.MaxEndpoints, CQs: id.MaxCQs, Regions: id.MaxRegions, Ptags: id.MaxPtags,
			QueueDepth: id.MaxQueueDepth, CQEntries: id.MaxCQEntries, Segments: id.MaxSegments, Transfer: id.MaxTransfer,
		},
	}
	for _, b := range id.Blocks {
		name := "unknown"
		if k, ok := knownBlocks[b.Type]; ok {
			name = strings.ToLower(k.name)
		}
		r.Blocks = append(r.Blocks, telemetry.Block{
			Type: b.Type, Name: name, Version: fmt.Sprintf("%d.%d", b.Version>>16, b.Version&0xffff),
			Offset: b.Offset, Bytes: b.Size,
		})
	}
	return r
}

// describeFeatures names the bits of a feature word, lowest first.
func describeFeatures(features uint64) []string {
	names := []string{}
	for bit := range 64 {
		f := uint64(1) << bit
		if features&f == 0 {
			continue
		}
		name, ok := featureNames[f]
		if !ok {
			name = fmt.Sprintf("bit-%d", bit)
		}
		names = append(names, name)
	}
	return names
}

func (n *NIC) reportChannels(r *telemetry.Report) error {
	l, err := n.ChannelLevels()
	if err == nil {
		r.Channels = &l
	}
	return err
}

func describePolicy(s PolicyState) telemetry.Policy {
	r := telemetry.Policy{
		At:   s.At.String(),
		Send: telemetry.Direction{Policy: s.Send.Name, MinPulse: s.Send.MinPulse}, Receive: telemetry.Direction{Policy: s.Receive.Name, MinPulse: s.Receive.MinPulse},
	}
	if s.Fallback != nil {
		r.Fallback = s.Fallback.Error()
	}
	return r
}

// EagerStats are those of all memory that the NIC has and had, and of the tokens of VIs. It asks the NIC, and fails with
// ErrNotSupported on one without eager memory.
func (n *NIC) EagerStats() (EagerStats, error) {
	s := n.eagerCounts()
	free, all, err := n.FreeSRAM()
	if err == nil && all == 0 {
		err = n.Refuse("ask for eager memory", descriptors.ErrNotSupported, "", "the NIC gives out no memory of its own")
	}
	if err != nil {
		return s, err
	}
	counters, err := n.Counters()
	s.FreeSRAM, s.Taken = free, counters[datasheet.CounterEagerBlocks.String()]
	s.Read, s.Refused = counters[datasheet.CounterEagerReads.String()], counters[datasheet.CounterEagerRefused.String()]
	s.Landed, s.WrittenBack = counters[datasheet.CounterEagerLanded.String()], counters[datasheet.CounterEagerWrittenBack.String()]
	return s, err
}

// eagerCounts are the driver's own counts of that.
func (n *NIC) eagerCounts() EagerStats {
	s := n.regions.counted()
	for _, e := range n.present() {
		if v, ok := e.queues.(*VI); ok {
			s.add(v.send.eagerTokens())
			s.add(v.recv.eagerTokens())
		}
	}
	return s
}
