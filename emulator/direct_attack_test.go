package emulator_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// TestDirectReadsAfterDeregistration: once a registration has ended, no read returns what its memory holds
// from then on, while the peer reads as fast as it can. The memory is registered twice, so that it is still there.
func TestDirectReadsAfterDeregistration(t *testing.T) {
	x, y := newWriters(t, both, both)
	const size = 64 << 10
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	rights := via.MemoryAttributes{RDMAWrite: true, RDMARead: true}
	whole, err := y.nic.Alloc(t.Context(), size, rights)
	conform.OK(t, err)
	before, after := bytes.Repeat([]byte{1}, size), bytes.Repeat([]byte{2}, size)
	for round := range rounds {
		copy(whole.Bytes(), before)
		r := newRemote(t, x, y, size)
		conform.OK(t, r.memory.Close(t.Context()))
		r.memory, err = y.nic.Register(t.Context(), whole.Bytes(), rights)
		conform.OK(t, err)
		r.waitDirect(t, false)
		into := r.from.Memory.Bytes()[:size]
		err = r.closeUnder(t, round, size, false, func() { clear(into) }, func() error {
			if !bytes.Equal(into, before) {
				return errors.New("a read has succeeded that returned other bytes")
			}
			return nil
		}, func() { copy(whole.Bytes(), after) })
		if err != nil && !errors.Is(err, via.ErrDescriptor) {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// TestLentFileCutOff: memory whose file could be cut off under the peer is not lent, and an operation on
// it goes in frames.
func TestLentFileCutOff(t *testing.T) {
	x, y := newWriters(t, both, both)
	r := newRemote(t, x, y, 4096)
	r.waitDirect(t, true)
	fd, err := unix.MemfdCreate("cut off", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	conform.OK(t, err)
	defer unix.Close(fd)
	conform.OK(t, unix.Ftruncate(fd, 4096))
	b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	conform.OK(t, err)
	defer unix.Munmap(b)
	for what, export := range map[string]func(int, int64, []byte) (uint32, error){"reading": y.port.Export, "writing": y.port.ExportWritable} {
		if _, err := export(fd, 0, b); err == nil {
			t.Errorf("a file that can be truncated is lent for %s", what)
		}
	}
	conform.OK(t, unix.Ftruncate(fd, 0))
	if err := r.do(t, 0, 64, true); err != nil { // the wire is as it was
		t.Fatal(err)
	}
}

// FuzzDirectTable has a target write anything into the entry of a region and the word of an endpoint, and then
// has the peer read. What the read touches lies in its buffer.
func FuzzDirectTable(f *testing.F) {
	first, second := both, both
	first.Path, first.Role = filepath.Join(f.TempDir(), "wire"), wire.SHMListen
	second.Path, second.Role = first.Path, wire.SHMConnect
	x, y := newSharer(f, first, nil), newSharer(f, second, nil)
	waitLink(f, true, x.device, y.device)
	const size = 4096
	r := newRemote(f, x, y, size)
	r.waitDirect(f, true)
	table, handle := y.port.Table(), r.memory.Handle()
	at := &table.Regions[handle&0xfffff]
	var good datasheet.DirectRegion
	if !at.Load(handle, &good) {
		f.Fatal("the region is not in the table")
	}
	endpoints := table.Endpoints
	seed := func(e datasheet.DirectRegion, word uint64) {
		var b [64]byte
		if _, err := binary.Encode(b[:], binary.LittleEndian, &fuzzedRegion{e.Handle, uint32(e.Access), e.Ptag, e.Memory, e.Address, e.Length, e.Offset}); err != nil {
			f.Fatal(err)
		}
		f.Add(b[:], word, uint16(64))
	}
	seed(good, 0)
	for _, change := range []func(e *datasheet.DirectRegion){
		func(e *datasheet.DirectRegion) { e.Handle++ },
		func(e *datasheet.DirectRegion) { e.Access = 0 },
		func(e *datasheet.DirectRegion) { e.Ptag++ },
		func(e *datasheet.DirectRegion) { e.Memory++ },
		func(e *datasheet.DirectRegion) { e.Address, e.Length = e.Address-size, 1<<63 },
		func(e *datasheet.DirectRegion) { e.Offset = ^uint64(0) - 8 },
		func(e *datasheet.DirectRegion) { e.Length, e.Offset = ^uint64(0), 1<<63 },
	} {
		e := good
		change(&e)
		seed(e, 0)
	}
	seed(good, 1<<32|2)
	ours := r.from.Memory.Bytes()
	fill(ours, 50)
	guard := bytes.Clone(ours[size:])
	f.Fuzz(func(t *testing.T, b []byte, word uint64, n uint16) {
		var e fuzzedRegion
		if _, err := binary.Decode(b, binary.LittleEndian, &e); err != nil {
			return
		}
		at.Clear()
		at.Store(&datasheet.DirectRegion{Handle: e.Handle, Access: datasheet.Access(e.Access), Ptag: e.Ptag, Memory: e.Memory,
			Address: e.Address, Length: e.Length, Offset: e.Offset})
		table.Endpoints = endpoints
		if word != 0 {
			for i := range 8 {
				table.Endpoints[i] = word
			}
		}
		d := r.operation(t, 0, 0, 1+int(n)%size, false)
		if err := r.from.VI.PostSend(d); err != nil {
			t.Fatal(err)
		}
		err := error(via.ErrNotDone)
		for end := time.Now().Add(timeout); err == via.ErrNotDone && time.Now().Before(end); y.nic.Poll() {
			_, err = r.from.VI.SendDone()
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(ours[size:], guard) {
			t.Fatal("a read has left its buffer")
		}
	})
}

// fuzzedRegion is a DirectRegion as bytes.
type fuzzedRegion struct {
	Handle, Access, Ptag, Memory uint32
	Address, Length, Offset      uint64
}
