package driver_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
)

// transfer is a record of a sound device: number i of its log.
func transfer(i int) datasheet.DMARecord {
	return datasheet.DMARecord{Start: uint64(10 * i), End: uint64(10*i + 7), Packet: uint32(i / 4), Bytes: uint32(100 + i), Engine: datasheet.DMAEngine(i % 4),
		Flags: uint32(i*700%0x10000) << 16}
}

// record is what ReadDMALog makes of it.
func record(i int) dmalog.Record {
	return dmalog.Record{Start: int64(10_000 * i), End: int64(10_000*i + 7_000), Packet: i / 4, Bytes: 100 + i, Engine: dmalog.Engine(i % 4),
		Queued: i * 700 % 0x10000}
}

func mustLog(t *testing.T, n *driver.NIC) driver.DMALogState {
	t.Helper()
	s, err := n.DMALog()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDMALog(t *testing.T) {
	d, n := newDMA(t, nil)
	if s := mustLog(t, n); s != (driver.DMALogState{}) {
		t.Errorf("as opened: %+v", s)
	}
	p := make([]dmalog.Record, 10)
	if _, err := n.ReadDMALog(p); !errors.Is(err, descriptors.ErrInvalidState) {
		t.Errorf("read without a log: %v", err)
	}
	if err := n.DisableDMALog(); err != nil {
		t.Errorf("no log switched off: %v", err)
	}
	for _, room := range []int{1, 17} { // the second time anew, and larger
		if err := n.EnableDMALog(room); err != nil {
			t.Fatal(err)
		}
		size := max(16, room*32/17)
		if s := mustLog(t, n); s != (driver.DMALogState{Enabled: true, Records: size}) {
			t.Fatalf("%+v, want room for %d", s, size)
		}
		if got, err := n.ReadDMALog(p); got != 0 || err != nil {
			t.Errorf("empty: %d, %v", got, err)
		}
		next := 0
		for written := 0; written < 5*size; { // wraps
			d.with(func() {
				for range 13 {
					d.logs(transfer(written), nil)
					written++
				}
			})
			for next < written {
				got, err := n.ReadDMALog(p)
				if err != nil || got == 0 || got > len(p) {
					t.Fatal(got, err)
				}
				for _, r := range p[:got] {
					if diff := cmp.Diff(record(next), r); diff != "" {
						t.Fatal(diff)
					}
					next++
				}
				if c := d.dmaRegister(datasheet.RegLogConsumer); c != uint32(next) {
					t.Fatalf("consumer %d after %d", c, next)
				}
			}
		}
		// As many as there is room for, and no more.
		d.with(func() {
			for i := range size + 5 {
				d.logs(transfer(i), nil)
			}
		})
		if s := mustLog(t, n); s.Lost != 5 {
			t.Errorf("%+v", s)
		}
		all := make([]dmalog.Record, 2*size)
		if got, err := n.ReadDMALog(all); got != size || err != nil || all[size-1] != record(size-1) {
			t.Errorf("%d of a full log of %d, %v", got, size, err)
		}
		if got, err := n.ReadDMALog(nil); got != 0 || err != nil {
			t.Errorf("nothing asked for: %d, %v", got, err)
		}
	}
	if err := n.DisableDMALog(); err != nil {
		t.Fatal(err)
	}
	if s := mustLog(t, n); s.Enabled || s.Records != 0 {
		t.Errorf("switched off: %+v", s)
	}
	if _, err := n.ReadDMALog(p); !errors.Is(err, descriptors.ErrInvalidState) {
		t.Errorf("read a log that is off: %v", err)
	}
}

func TestDMALogRefused(t *testing.T) {
	d, n := newDMA(t, nil)
	for _, records := range []int{-1, 0, driver.MaxDMALog + 1, math.MaxInt} {
		if err := n.EnableDMALog(records); !errors.Is(err, descriptors.ErrInvalidParameter) || !strings.Contains(err.Error(), "1 to 65536") {
			t.Errorf("%d records: %v", records, err)
		}
	}
	for _, reg := range []uint64{datasheet.RegLogBaseLow, datasheet.RegLogLog2} {
		d.with(func() { d.block.refuses[reg] = func(uint32) bool { return true } })
		if err := n.EnableDMALog(64); !errors.Is(err, descriptors.ErrNotSupported) {
			t.Errorf("register %#x refused: %v", reg, err)
		}
		d.with(func() { delete(d.block.refuses, reg) })
	}
	d.with(func() { d.mapFail = errors.New("no room on the bus") })
	if err := n.EnableDMALog(64); err == nil || !strings.Contains(err.Error(), "no room on the bus") {
		t.Errorf("no DMA memory: %v", err)
	}
	d.with(func() { d.mapFail = nil })
	if err := n.EnableDMALog(driver.MaxDMALog); err != nil {
		t.Error(err)
	}
}

// TestDMALogNonsense: records that cannot be end the log, after those before
// them; enabling it again helps.
func TestDMALogNonsense(t *testing.T) {
	for name, tamper := range map[string]func(*datasheet.DMARecord){
		"engine":         func(r *datasheet.DMARecord) { r.Engine = 4 },
		"engine by far":  func(r *datasheet.DMARecord) { r.Engine = 0xffffffff },
		"ends before":    func(r *datasheet.DMARecord) { r.Start, r.End = 2, 1 },
		"time overflows": func(r *datasheet.DMARecord) { r.Start, r.End = 0, math.MaxInt64/1000+1 },
		"time all ones":  func(r *datasheet.DMARecord) { r.Start, r.End = math.MaxUint64, math.MaxUint64 },
		"packet":         func(r *datasheet.DMARecord) { r.Packet = 1 << 31 },
		"bytes":          func(r *datasheet.DMARecord) { r.Bytes = datasheet.MaxTransfer + 1 },
		"reserved flags": func(r *datasheet.DMARecord) { r.Flags |= 0x80 },
	} {
		t.Run(name, func(t *testing.T) {
			d, n := newDMA(t, nil)
			if err := n.EnableDMALog(16); err != nil {
				t.Fatal(err)
			}
			d.with(func() {
				d.logs(transfer(0), nil)
				d.logs(transfer(1), tamper)
				d.logs(transfer(2), nil)
			})
			p := make([]dmalog.Record, 8)
			if got, err := n.ReadDMALog(p); got != 1 || err != nil || p[0] != record(0) {
				t.Fatal(got, err)
			}
			for range 2 {
				if got, err := n.ReadDMALog(p); got != 0 || !errors.Is(err, driver.ErrProtocol) || !strings.Contains(err.Error(), "record 1 of the DMA log") {
					t.Errorf("%d, %v", got, err)
				}
			}
			if err := n.EnableDMALog(16); err != nil {
				t.Fatal(err)
			}
			d.with(func() { d.logs(transfer(0), nil) })
			if got, err := n.ReadDMALog(p); got != 1 || err != nil {
				t.Error(got, err)
			}
		})
	}
}

// TestDMALogConcurrent: the device writes while two goroutines read; each record
// comes out once.
func TestDMALogConcurrent(t *testing.T) {
	d, n := newDMA(t, nil)
	if err := n.EnableDMALog(64); err != nil {
		t.Fatal(err)
	}
	const total = 3000
	var mu sync.Mutex
	seen := map[int]int{}
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			p := make([]dmalog.Record, 7)
			for {
				got, err := n.ReadDMALog(p)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, r := range p[:got] {
					seen[r.Bytes-100]++
				}
				all := len(seen) == total
				mu.Unlock()
				if all || t.Context().Err() != nil {
					return
				}
			}
		})
	}
	for written := 0; written < total; {
		d.with(func() {
			if d.block.logged-d.get(datasheet.DMAOffset+datasheet.RegLogConsumer) < 64 {
				d.logs(transfer(written), nil)
				written++
			}
		})
	}
	readers.Wait()
	for i, times := range seen {
		if times != 1 {
			t.Fatalf("record %d was read %d times", i, times)
		}
	}
	if s := mustLog(t, n); s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}
