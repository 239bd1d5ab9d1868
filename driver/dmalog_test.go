package driver_test

import (
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
)

// transfer is a record of a sound device: number i of its log.
func transfer(i int) datasheet.DMARecord {
	return datasheet.DMARecord{Start: uint64(10 * i), End: uint64(10*i + 7), Packet: uint32(i / 4), Bytes: uint32(100 + i), Engine: datasheet.DMAEngine(i % 4),
		Flags: uint32(i*700%0x10000) << 16}
}

func mustLog(t *testing.T, n *driver.NIC) driver.DMALogState {
	t.Helper()
	return must.Get(n.DMALog())(t)
}

// TestDMALogConcurrent: the device writes while two goroutines read; each record
// comes out once.
func TestDMALogConcurrent(t *testing.T) {
	d, n := newDMA(t, nil)
	must.OK(t, n.EnableDMALog(64))
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
		must.Be(t, times, 1, "record %d was read times", i)
	}
	should.Be(t, mustLog(t, n).Lost, 0)
}
