package via_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// spoiled is an emulated NIC that refuses each admin command while refuses is set: it
// finds an opcode that it does not know, because the ring in host memory is spoiled
// just before the device looks there. closing is what Close returns besides.
type spoiled struct {
	*emulator.Device
	closing error

	mu      sync.Mutex
	refuses bool
	memory  map[uint64]*vfio.Memory
	fetched uint32
	closed  int
}

func newSpoiled(t *testing.T) *spoiled {
	t.Helper()
	x, y, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = y.Close() })
	return &spoiled{Device: x, memory: map[uint64]*vfio.Memory{}}
}

func (s *spoiled) refuse(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses = yes
}

func (s *spoiled) MapDMA(m *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	s.mu.Lock()
	s.memory[iova] = m
	s.mu.Unlock()
	return s.Device.MapDMA(m, iova, flags)
}

func (s *spoiled) WriteRegion(index int, offset uint64, p []byte) error {
	if index == vfio.RegionBAR0 && offset == datasheet.AdminOffset+datasheet.RegSQProducer {
		s.spoil(binary.LittleEndian.Uint32(p))
	}
	return s.Device.WriteRegion(index, offset, p)
}

// spoil gives the commands before producer an opcode that nobody knows.
func (s *spoiled) spoil(producer uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; s.fetched != producer; s.fetched++ {
		if !s.refuses {
			continue
		}
		at := s.register(datasheet.RegSQBaseLow) | s.register(datasheet.RegSQBaseHigh)<<32
		slot := uint64(s.fetched) & (1<<s.register(datasheet.RegSQLog2) - 1)
		at += slot * datasheet.AdminEntrySize
		for iova, m := range s.memory {
			if at >= iova && at-iova < m.Size() {
				datasheet.CommandAt(m.Bytes()[at-iova:]).Opcode = 0xffff
			}
		}
	}
}

func (s *spoiled) register(reg uint64) uint64 {
	var b [4]byte
	_ = s.ReadRegion(vfio.RegionBAR0, datasheet.AdminOffset+reg, b[:]) // of 0 no ring is found
	return uint64(binary.LittleEndian.Uint32(b[:]))
}

func (s *spoiled) Close() error {
	s.closed++
	return errors.Join(s.Device.Close(), s.closing)
}

func wantRefused(t *testing.T, op string, err error) {
	t.Helper()
	var e *via.Error
	if !errors.Is(err, via.ErrNotSupported) || !errors.As(err, &e) || e.Op != op || e.Device == "" || e.Code != via.ErrNotSupported {
		t.Errorf("%s: %v", op, err)
	}
}

// TestOpenRefused: a device that cannot be used is closed.
func TestOpenRefused(t *testing.T) {
	d := newSpoiled(t)
	d.refuses = true
	nic, err := via.OpenDevice(t.Context(), d, via.Options{Logger: slog.New(slog.DiscardHandler)})
	wantRefused(t, "create ptag", err)
	if nic != nil || d.closed != 1 {
		t.Errorf("NIC %v, device closed %d times", nic, d.closed)
	}
}

// TestRefusedDestruction checks that a destruction that the device refused has
// changed nothing: it can be tried again.
func TestRefusedDestruction(t *testing.T) {
	ctx := t.Context()
	d := newSpoiled(t)
	nic := openDevice(t, d, via.Options{Logger: slog.New(slog.DiscardHandler)})
	tag, err1 := nic.CreatePtag(ctx)
	cq, err2 := nic.CreateCQ(ctx, 16)
	vi, err3 := nic.CreateVI(ctx, via.VIAttributes{SendDepth: 8, RecvDepth: 8}, cq, cq)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	memory, err := nic.Alloc(ctx, 64, via.MemoryAttributes{Ptag: tag})
	if err != nil {
		t.Fatal(err)
	}
	d.refuse(true)
	wantRefused(t, "close VI", vi.Close(ctx))
	wantRefused(t, "close memory", memory.Close(ctx))
	_, err = nic.CreatePtag(ctx)
	wantRefused(t, "create ptag", err)
	_, err = nic.CreateCQ(ctx, 16)
	wantRefused(t, "create CQ", err)
	_, err = nic.CreateVI(ctx, via.VIAttributes{}, nil, nil)
	wantRefused(t, "create VI", err)
	_, err = nic.Alloc(ctx, 64, via.MemoryAttributes{})
	wantRefused(t, "allocate memory", err)
	d.refuse(false)
	if err := errors.Join(vi.Close(ctx), memory.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	d.refuse(true)
	wantRefused(t, "close CQ", cq.Close(ctx))
	wantRefused(t, "close ptag", tag.Close(ctx))
	d.refuse(false)
	if err := errors.Join(cq.Close(ctx), tag.Close(ctx)); err != nil {
		t.Error(err)
	}
	d.closing = io.ErrUnexpectedEOF
	var e *via.Error
	if err := nic.Close(); !errors.Is(err, d.closing) || !errors.As(err, &e) || e.Code != 0 || errors.Is(err, via.ErrResource) {
		t.Errorf("close: %v", err)
	}
	if err := nic.Close(); err != nil || d.closed != 1 {
		t.Errorf("second close: %v, device closed %d times", err, d.closed)
	}
}

// older is a device without the register blocks that came last: the chain of blocks
// ends before the one at the offset first.
type older struct {
	*emulator.Device
	first uint32
}

func (o older) ReadRegion(index int, offset uint64, p []byte) error {
	err := o.Device.ReadRegion(index, offset, p)
	if index == vfio.RegionBAR0 && len(p) == 4 && binary.LittleEndian.Uint32(p) == o.first {
		clear(p) // the pointer to it
	}
	return err
}

// TestOlderDevices: a NIC without delivery policies or control programs says so, and
// a closed one that it is closed.
func TestOlderDevices(t *testing.T) {
	for _, c := range []struct {
		name  string
		first uint32
		calls func(n *via.NIC) map[string]func() error
	}{
		{"no policies", datasheet.DMAOffset, func(n *via.NIC) map[string]func() error {
			return map[string]func() error{
				"set policy":      func() error { return n.SetPolicy(via.Policy{}) },
				"query policy":    func() error { _, err := n.Policy(); return err },
				"enable DMA log":  func() error { return n.EnableDMALog(16) },
				"disable DMA log": n.DisableDMALog,
				"read DMA log":    func() error { _, err := n.ReadDMALog(nil); return err },
				"query DMA log":   func() error { _, err := n.DMALog(); return err },
			}
		}},
		{"no programs", datasheet.ProcessorOffset, func(n *via.NIC) map[string]func() error {
			return map[string]func() error{
				"load program": func() error {
					_, err := n.LoadProgram(context.Background(), load.Image{}, load.Options{})
					return err
				},
				"roll program back": func() error {
					_, err := n.RollBackProgram(context.Background(), load.Options{})
					return err
				},
				"unload program": func() error { _, err := n.UnloadProgram(); return err },
				"query program":  func() error { _, err := n.ProgramStatus(); return err },
				"open map":       func() error { _, err := n.ProgramMap(nil, 0); return err },
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := openDevice(t, older{newSpoiled(t).Device, c.first}, via.Options{})
			calls := c.calls(n)
			for op, call := range calls {
				wantRefused(t, op, call())
			}
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			for op, call := range calls {
				if err := call(); !errors.Is(err, via.ErrClosed) {
					t.Errorf("%s after Close: %v", op, err)
				}
			}
		})
	}
	o := older{newSpoiled(t).Device, datasheet.DMAOffset}
	if n, err := via.OpenDevice(conform.Context(t), o, via.Options{Policy: via.Policy{Name: "auto"}}); n != nil || !errors.Is(err, via.ErrNotSupported) {
		t.Errorf("%v", err)
	}
}
