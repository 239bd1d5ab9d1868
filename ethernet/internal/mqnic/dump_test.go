package mqnic_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakemqnic"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// rows returns the rows of a table.
func rows(t *testing.T, tables []ethernet.Table, name string) [][]string {
	t.Helper()
	for _, x := range tables {
		if x.Name == name {
			if x.Rows == nil {
				t.Errorf("%s: null in JSON", name)
			}
			for _, r := range x.Rows {
				if len(r) != len(x.Columns) {
					t.Errorf("%s: %d cells of %v", name, len(r), x.Columns)
				}
			}
			return x.Rows
		}
	}
	t.Fatalf("no table %s", name)
	return nil
}

func has(t *testing.T, list [][]string, want ...string) {
	t.Helper()
	if !slices.ContainsFunc(list, func(r []string) bool { return slices.Equal(r, want) }) {
		t.Errorf("no row %q in %q", want, list)
	}
}

// kept is a device that a port has: it stays open.
type kept struct{ *fakemqnic.Device }

func (kept) Close() error { return nil }

// TestDump: a device tells of its queues, and of the card's blocks, counters and flash.
func TestDump(t *testing.T) {
	d := newFake(t, fakemqnic.Options{Queues: 4})
	open(t, d, ethernet.Options{})
	tables, err := ethernet.Drivers()[0].Dump(kept{d})
	if err != nil {
		t.Fatal(err)
	}
	has(t, rows(t, tables, "card"), "board", "Corundum on Alveo U200")
	has(t, rows(t, tables, "blocks"), "0x320", "0000c110", "0.0.9.0", "", "no")
	has(t, rows(t, tables, "blocks"), "0x50", "0000c000", "0.0.1.0", "IF", "yes")
	has(t, rows(t, tables, "flash"), "SPI_FLASH", "0", "fallback", "64")
	has(t, rows(t, tables, "flash"), "SPI_FLASH", "1", "default", "")
	has(t, rows(t, tables, "interface 0: queues"), "RX_QUEUE_MANAGER", "0", "512", "1", "0", "512", "0")
	has(t, rows(t, tables, "interface 0: queues"), "CQ_MANAGER", "1", "1024", "", "0", "0", "0")
	if n := len(rows(t, tables, "interface 0: queues")); n != 5 {
		t.Errorf("%d queues are on", n)
	}
	has(t, rows(t, tables, "statistics"), "dma_wr_op_bytes", "49")
	has(t, rows(t, tables, "statistics"), "rx_tlp_mem_rd", "0")
}

// TestDumpOfDevice dumps a device that no port has, and writes to none of its registers.
func TestDumpOfDevice(t *testing.T) {
	d := newFake(t, fakemqnic.Options{Interfaces: 2})
	var dump = ethernet.Drivers()[0].Dump
	tables, err := dump(d)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(rows(t, tables, "interface 1: queues")); n != 0 || d.Log().Writes != 0 || !d.Closed() {
		t.Errorf("%d queues, %d writes, closed: %v", n, d.Log().Writes, d.Closed())
	}
	broken := newFake(t, fakemqnic.Options{})
	broken.OnRead = func(uint64, uint32) uint32 { return allOnes }
	var e *ethernet.Error
	if _, err := dump(broken); !errors.Is(err, ethernet.ErrNeedsReset) || !errors.As(err, &e) || e.Hint == "" || !broken.Closed() {
		t.Errorf("%v", err)
	}
}
