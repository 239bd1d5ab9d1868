package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/mqniccmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/vfio"
)

// infoReport is what info --json prints.
type infoReport struct {
	Address  string            `json:"address"`
	Backend  string            `json:"backend"`
	PCI      string            `json:"pci"`
	Version  string            `json:"version"`
	MAC      string            `json:"mac"`
	MTU      int               `json:"mtu"`
	SRAM     uint32            `json:"sram_bytes"`
	SRAMFree *uint32           `json:"sram_free_bytes" help:"null if the device gives out none of its memory"`
	SRAMUsed *uint32           `json:"sram_used_bytes" help:"null as well"`
	Vectors  int               `json:"vectors"`
	Features []string          `json:"features"`
	Limits   infoLimits        `json:"limits"`
	BARs     []infoBAR         `json:"bars"`
	Blocks   []infoBlock       `json:"blocks"`
	Health   driver.Health     `json:"health"`
	ClockUS  float64           `json:"clock_us"`
	DMA      *infoDMA          `json:"dma" help:"null on an older device"`
	Channels *infoChannels     `json:"channels" help:"null on an older device"`
	Program  *fwcmd.Program    `json:"program" help:"of the NIC processor, null without one"`
	Counters map[string]uint64 `json:"counters"`
}

type infoLimits struct {
	Endpoints  uint32 `json:"endpoints"`
	CQs        uint32 `json:"cqs"`
	Regions    uint32 `json:"regions"`
	Ptags      uint32 `json:"ptags"`
	QueueDepth int    `json:"queue_depth"`
	CQEntries  int    `json:"cq_entries"`
	Segments   int    `json:"segments"`
	Transfer   uint32 `json:"transfer_bytes"`
}

type infoBAR struct {
	Index    int    `json:"bar"`
	Bytes    uint64 `json:"bytes"`
	Mappable bool   `json:"mappable"`
}

type infoBlock struct {
	Type    uint32 `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Offset  uint64 `json:"offset"`
	Bytes   uint32 `json:"bytes"`
}

// infoDMA is how frames cross the NIC.
type infoDMA struct {
	Policy   policyReport       `json:"policy"`
	Deadline float64            `json:"pulse_deadline_us"`
	Timeouts uint32             `json:"pulse_timeouts"`
	Refused  uint32             `json:"pulses_refused"`
	Log      driver.DMALogState `json:"log"`
}

var featureNames = map[uint64]string{
	descriptors.FeatureReliableDelivery:  "reliable-delivery",
	descriptors.FeatureReliableReception: "reliable-reception",
	descriptors.FeatureRDMAWrite:         "rdma-write",
	descriptors.FeatureRDMARead:          "rdma-read",
	descriptors.FeatureRing:              "ring",
	descriptors.FeatureChannel:           "channel",
	descriptors.FeatureEager:             "eager",
	descriptors.FeaturePageList:          "page-list",
	descriptors.FeatureFrame:             "frame",
	descriptors.FeaturePayloadTable:      "payload-table",
	descriptors.FeatureInline:            "inline",
	descriptors.FeatureDoorbellMarks:     "doorbell-marks",
	descriptors.FeatureReceiveQueue:      "receive-queue",
}

var blockNames = map[uint32]string{
	descriptors.BlockIdentity:  "identity",
	descriptors.BlockHealth:    "health",
	descriptors.BlockProcessor: "processor",
	descriptors.BlockAdmin:     "admin",
	descriptors.BlockDMA:       "dma",
	descriptors.BlockClock:     "clock",
	descriptors.BlockCounters:  "counters",
	descriptors.BlockInterrupt: "interrupt",
	descriptors.BlockChannels:  "channels",
}

func (p *program) info() *cobra.Command {
	var device string
	c := &cobra.Command{
		Use:   "info",
		Short: "What a NIC is, how it is, and what it has counted",
		Long: `Open a NIC and show its identity, limits, features, BARs, register blocks,
health, delivery policy, control program and counters. The NIC is reset on the way: a process takes
it for itself.

` + keys.Of(infoReport{}) + `
Of a Corundum NIC it shows what 'trapeze mqnic dump' does.`,
		Example: `  trapeze info
  trapeze info --device 'emu:?wire=udp://127.0.0.1:9000' --json`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error {
			dev, err := vfio.Open(ctx, device)
			if err != nil {
				return &command.DeviceError{Err: err}
			}
			// Of other NICs the drivers tell.
			if other, ok, err := mqniccmd.Look(dev); err != nil {
				return &command.DeviceError{Err: err}
			} else if ok {
				return p.Print(other, other.Print)
			}
			r, err := inspect(ctx, dev)
			if err != nil {
				return err
			}
			return p.Print(r, func(io.Writer) error { return p.printInfo(r) })
		}),
	}
	c.Flags().StringVar(&device, "device", "emu:", "address of the NIC")
	return c
}

// inspect takes a device and reads all there is to know.
func inspect(ctx context.Context, dev vfio.Device) (r infoReport, err error) {
	bars, barErr := inspectBARs(dev)
	// The NIC owns the device from here on, also if New fails.
	nic, err := driver.New(ctx, dev, driver.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return r, &command.DeviceError{Err: err}
	}
	defer func() {
		if cerr := nic.Close(); err == nil {
			err = cerr
		}
	}()
	if barErr != nil {
		return r, barErr
	}
	health, err := nic.Health(ctx)
	if err != nil {
		return r, err
	}
	counters, err := nic.Counters()
	if err != nil {
		return r, err
	}
	clock, err := nic.Clock()
	if err != nil {
		return r, err
	}
	dma, err := inspectDMA(nic)
	if err != nil {
		return r, err
	}
	channels, err := inspectChannels(nic)
	if err != nil {
		return r, err
	}
	free, all, err := nic.FreeSRAM()
	if err != nil {
		return r, err
	}
	program, err := fwcmd.Inspect(nic)
	if err != nil {
		return r, err
	}
	r = describeIdentity(nic.Identity())
	r.DMA, r.Channels, r.Program = dma, channels, program
	if used := all - free; all > 0 {
		r.SRAMFree, r.SRAMUsed = &free, &used
	}
	r.Address, r.Backend, r.BARs = nic.Address(), nic.Backend(), bars
	r.Counters, r.ClockUS = counters, units.Microseconds(clock)
	r.Health = health
	return r, nil
}

// inspectDMA returns nil for a device that is too old to say.
func inspectDMA(nic *driver.NIC) (*infoDMA, error) {
	policy, err := nic.Policy()
	if errors.Is(err, driver.ErrNotSupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	log, err := nic.DMALog()
	return &infoDMA{
		Policy: describePolicy(policy), Deadline: units.Microseconds(policy.Deadline), Timeouts: policy.Timeouts, Refused: policy.Refused,
		Log: log,
	}, err
}

func inspectBARs(dev vfio.Device) ([]infoBAR, error) {
	var bars []infoBAR
	for _, index := range []int{vfio.RegionBAR0, vfio.RegionBAR2, vfio.RegionBAR4} {
		r, err := dev.Region(index)
		if err != nil {
			return nil, err
		}
		if r.Size > 0 {
			bars = append(bars, infoBAR{Index: index, Bytes: r.Size, Mappable: r.Flags&vfio.RegionMmap != 0})
		}
	}
	return bars, nil
}

func describeIdentity(id driver.Identity) infoReport {
	r := infoReport{
		PCI:     id.PCI.String(),
		Version: fmt.Sprintf("%d.%d.%d", id.DeviceVersion>>16, id.DeviceVersion>>8&0xff, id.DeviceVersion&0xff),
		MAC:     id.MAC.String(), MTU: id.MTU, SRAM: id.SRAM, Vectors: id.Vectors,
		Features: describeFeatures(id.Features),
		Limits: infoLimits{
			Endpoints: id.MaxEndpoints, CQs: id.MaxCQs, Regions: id.MaxRegions, Ptags: id.MaxPtags,
			QueueDepth: id.MaxQueueDepth, CQEntries: id.MaxCQEntries, Segments: id.MaxSegments, Transfer: id.MaxTransfer,
		},
	}
	for _, b := range id.Blocks {
		name := blockNames[b.Type]
		if name == "" {
			name = "unknown"
		}
		r.Blocks = append(r.Blocks, infoBlock{
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
