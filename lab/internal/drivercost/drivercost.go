// Package drivercost measures what the driver alone takes of a processor: a post, the
// doorbell and taking the descriptor back, on memory in place of a device.
package drivercost

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	// Make "emu:" addresses known.
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// Cost holds what one descriptor takes.
type Cost struct {
	Batch  int          `json:"batch" help:"descriptors that share a doorbell and are taken back together"`
	CQ     bool         `json:"cq" help:"a completion queue tells of them, else the work queue is polled"`
	Ns     bench.Figure `json:"ns" help:"in the quietest round, less mock_ns"`
	Median bench.Figure `json:"median_ns" help:"in the middle one"`
	Mock   bench.Figure `json:"mock_ns" help:"the stores of the device by themselves"`
}

// Result of Run.
type Result struct {
	Costs []Cost `json:"costs"`
}

// Table prints a row for each way.
func (r *Result) Table(out io.Writer) error {
	fmt.Fprintln(out, "The driver alone, for each descriptor")
	return command.Text(out, r.Costs)
}

// Parts is the number of times that Run calls progress.
const Parts = 4

// Run measures.
func Run(ctx context.Context, o bench.Local, progress func()) (r Result, err error) {
	err = bench.OnCore(ctx, o.Core(), func() error {
		for _, batch := range []int{1, MaxBatch} {
			for _, withCQ := range []bool{false, true} {
				c, err := measure(ctx, o.For/Parts, batch, withCQ)
				if err != nil {
					return err
				}
				r.Costs = append(r.Costs, c)
				progress()
			}
		}
		return nil
	})
	return r, err
}

// window is the number of descriptors that are measured at a time: some microseconds, between two
// interrupts.
const window = 512

const minRounds = 10

func measure(ctx context.Context, d time.Duration, batch int, withCQ bool) (c Cost, err error) {
	r, err := New(ctx, batch, withCQ)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var whole, mock []bench.Figure
	var lap time.Time
	took := func(all *[]bench.Figure) {
		*all = append(*all, bench.Figure(time.Since(lap))/window)
		lap = time.Now()
	}
	err = bench.Rounds(ctx, d, minRounds, func() error {
		lap = time.Now()
		for range window / batch {
			if err := r.Round(); err != nil {
				return err
			}
		}
		took(&whole)
		for range window / batch {
			r.complete()
		}
		took(&mock)
		return nil
	})
	if err != nil {
		return c, err
	}
	slices.Sort(whole)
	c = Cost{Batch: batch, CQ: withCQ, Mock: slices.Min(mock)}
	c.Ns, c.Median = max(whole[0]-c.Mock, 0), max(whole[len(whole)/2]-c.Mock, 0)
	return c, nil
}

// MaxBatch is the number of descriptors in the largest batch.
const MaxBatch = 32

// depth is the number of descriptors, and places in the rings: so many that a batch does not
// follow itself.
const (
	depthLog2 = 6
	depth     = 1 << depthLog2
)

// Rig is a VI on a device that completes posted descriptors when complete is called.
type Rig struct {
	device  *device
	nic     *via.NIC
	vi      *via.VI
	cq      *via.CQ // nil for none
	ds      []*via.Descriptor
	batch   []*via.Descriptor // posted last
	taken   []*via.Descriptor // room for those taken back
	posted  uint32
	entries []datasheet.Completion // of the CQ
}

// New makes a rig for batches of descriptors: a power of two, up to MaxBatch.
func New(ctx context.Context, batch int, withCQ bool) (r *Rig, err error) {
	r = &Rig{taken: make([]*via.Descriptor, batch)}
	if r.device, err = newDevice(ctx); err != nil {
		return nil, err
	}
	if r.nic, err = via.OpenDevice(ctx, r.device, bench.Quiet()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if withCQ {
		if r.cq, err = r.nic.CreateCQ(ctx, depth); err != nil {
			return nil, err
		}
		r.entries = datasheet.CompletionsAt(r.device.mapped.Bytes())[:depth]
	}
	if r.vi, err = r.nic.CreateVI(ctx, via.VIAttributes{SendDepth: depth}, r.cq, nil); err != nil {
		return nil, err
	}
	m, err := r.nic.Alloc(ctx, 64, via.MemoryAttributes{})
	if err != nil {
		return nil, err
	}
	if r.ds, err = r.vi.NewDescriptors(ctx, depth, 1); err != nil {
		return nil, err
	}
	for _, d := range r.ds {
		if err := m.AddTo(d, 0, 64); err != nil {
			return nil, err
		}
	}
	r.batch = r.ds[:batch]
	return r, nil
}

// Round rearms and posts a batch with one doorbell, has the device complete it, and
// takes it back.
func (r *Rig) Round() error {
	r.batch = r.ds[r.posted%depth:][:len(r.taken)]
	r.posted += uint32(len(r.batch))
	for _, d := range r.batch {
		d.Rearm()
	}
	var err error
	if len(r.batch) == 1 {
		err = r.vi.PostSend(r.batch[0])
	} else {
		_, err = r.vi.PostSendBatch(r.batch)
	}
	if err != nil {
		return err
	}
	r.complete()
	return r.take()
}

// complete does the device's part, and nothing of the driver's.
func (r *Rig) complete() {
	first := r.posted - uint32(len(r.batch))
	for i, d := range r.batch {
		d.Control().StoreStatus(datasheet.StatusDone)
		if r.cq != nil {
			index := first + uint32(i)
			e := &r.entries[index%depth]
			e.Endpoint, e.Index, e.Status = r.vi.Number(), index, uint32(datasheet.StatusDone)
			e.Publish(datasheet.PhaseOf(index, depthLog2))
		}
	}
}

// errLost: the driver has not given back what has completed.
var errLost = errors.New("a completed descriptor is not given back")

// take takes the batch back: with a CQ, what it says has completed and what has
// completed since on that queue, whose further entries the CQ passes over.
func (r *Rig) take() error {
	v := r.vi
	if r.cq != nil {
		c, err := r.cq.Done()
		if err != nil {
			return err
		}
		v = c.VI
	}
	if len(r.taken) == 1 {
		_, err := v.SendDone()
		return err
	}
	n, err := v.SendDoneBatch(r.taken)
	if err == nil && n < len(r.taken) {
		return errLost
	}
	return err
}

// Close frees everything.
func (r *Rig) Close() error { return r.nic.Close() }

// device is a NIC that answers admin commands and moves nothing: an emulated one,
// but for its doorbells, which are memory that is not read. Of the capabilities
// of devices in the same process it has none, as hardware has none.
type device struct {
	vfio.Device
	doorbells *vfio.Memory
	mapped    *vfio.Memory // what was mapped for DMA last
}

func newDevice(ctx context.Context) (*device, error) {
	emulated, err := vfio.Open(ctx, "emu:?wire=loop&engine=thread&doorbells=mapped&vis=2&cqs=1")
	if err != nil {
		return nil, err
	}
	d := &device{Device: emulated}
	bar, err := d.Region(vfio.RegionBAR2)
	if err == nil {
		d.doorbells, err = vfio.AllocMemory(bar.Size, vfio.MemoryOptions{Huge: vfio.HugeNever})
	}
	if err != nil {
		return nil, errors.Join(err, emulated.Close())
	}
	return d, nil
}

// ReadRegion is that of a device that need not be told which page was stored to
// (SPEC.md 3.4): hardware sees each store.
func (d *device) ReadRegion(index int, offset uint64, p []byte) error {
	err := d.Device.ReadRegion(index, offset, p)
	if index == vfio.RegionBAR0 && offset == datasheet.IdentityOffset+datasheet.RegFeaturesLow && len(p) == 4 {
		binary.LittleEndian.PutUint32(p, binary.LittleEndian.Uint32(p)&^uint32(datasheet.FeatureDoorbellMarks))
	}
	return err
}

// MapRegion maps the doorbells.
func (d *device) MapRegion(index int, offset, size uint64) (*vfio.Mapping, error) {
	if index != vfio.RegionBAR2 {
		return d.Device.MapRegion(index, offset, size)
	}
	if bar := d.doorbells.Size(); offset > bar || size > bar-offset {
		return nil, vfio.ErrOutOfRange
	}
	return vfio.NewMapping(d.doorbells.Bytes()[offset:][:size], nil), nil
}

// MapDMA takes note of the memory.
func (d *device) MapDMA(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	d.mapped = mem
	return d.Device.MapDMA(mem, iova, flags)
}

// Close closes the device and its doorbells.
func (d *device) Close() error { return errors.Join(d.Device.Close(), d.doorbells.Close()) }
