package via_test

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
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
	x, y := must.Two(emulator.Pair(emulator.PairOptions{}))(t)
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
	must.OK(t, errors.Join(err1, err2, err3))
	memory, err := nic.Alloc(ctx, 64, via.MemoryAttributes{Ptag: tag})
	must.OK(t, err)
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
	must.OK(t, errors.Join(vi.Close(ctx), memory.Close(ctx)))
	d.refuse(true)
	wantRefused(t, "close CQ", cq.Close(ctx))
	wantRefused(t, "close ptag", tag.Close(ctx))
	d.refuse(false)
	should.OK(t, errors.Join(cq.Close(ctx), tag.Close(ctx)))
	d.closing = io.ErrUnexpectedEOF
	var e *via.Error
	if err := nic.Close(); !errors.Is(err, d.closing) || !errors.As(err, &e) || e.Code != 0 || errors.Is(err, via.ErrResource) {
		t.Errorf("close: %v", err)
	}
	if err := nic.Close(); err != nil || d.closed != 1 {
		t.Errorf("second close: %v, device closed %d times", err, d.closed)
	}
}
