package vfio

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

func TestParseMeminfo(t *testing.T) {
	const usual = "MemTotal:       16 kB\nMemAvailable:    12 kB\nActive(anon): 3 kB\nHugePages_Total:  9\nHugePages_Free:  7\nHugePages_Rsvd:  2\nHugepagesize:  2048 kB\n"
	tests := []struct {
		name, text string
		want       memoryStock
		err        error
	}{
		{"usual", usual, memoryStock{available: 12 << 10, hugePage: 2 << 20, hugeFree: 5}, nil},
		{"no huge pages in the kernel", "MemAvailable: 12 kB\n", memoryStock{available: 12 << 10}, nil},
		{"more promised than free", usual + "HugePages_Rsvd: 8\n", memoryStock{available: 12 << 10, hugePage: 2 << 20}, nil},
		{"other lines", "nonsense\n\nName:\nName: x kB\n" + usual, memoryStock{available: 12 << 10, hugePage: 2 << 20, hugeFree: 5}, nil},
		{"number that wraps", "MemAvailable: 18446744073709551615 kB\n", memoryStock{}, io.ErrUnexpectedEOF},
		{"empty", "", memoryStock{}, io.ErrUnexpectedEOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseMeminfo(strings.NewReader(tt.text))
			should.Hold(t, got == tt.want && errors.Is(err, tt.err), "got %+v, %v", got, err)
		})
	}
}

func TestCgroupRoom(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"memory.max": "max\n", "memory.current": "700\n",
		"a/memory.max": "1000\n", "a/memory.current": "400\n",
		"a/b/memory.max": "500\n", "a/b/memory.current": "100\n",
		"a/c/memory.max": "max\n", "a/c/memory.current": "300\n",
		"a/full/memory.max": "50\n", "a/full/memory.current": "60\n",
		"odd/memory.max": "x\n", "odd/memory.current": "0\n",
	} {
		file := filepath.Join(root, name)
		must.OK(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.OK(t, os.WriteFile(file, []byte(text), 0o644))
	}
	tests := []struct {
		name, groups string
		want         uint64
	}{
		{"no limit", "0::/\n", math.MaxUint64},
		{"own limit", "0::/a/b\n", 400},
		{"limit above", "0::/a/c\n", 600},
		{"used up", "0::/a/full\n", 0},
		{"group that cannot be seen", "0::/a/gone/x\n", 600},
		{"outside our root", "0::/../../a\n", 600},
		{"relative", "0::a\n", 600},
		{"unreadable limit", "0::/odd\n", math.MaxUint64},
		{"version 1 only", "12:memory:/a\n", math.MaxUint64},
		{"both versions", "12:memory:/x\n0::/a\n", 600},
		{"nothing", "", math.MaxUint64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			should.Be(t, cgroupRoom(root, []byte(tt.groups)), tt.want)
		})
	}
}

// TestRecentStock: small allocations take from an answer of just now, and others ask the kernel.
func TestRecentStock(t *testing.T) {
	const left = 64 << 20
	for _, c := range []struct {
		name   string
		size   uint64
		policy HugePolicy
		age    time.Duration
		recent bool
	}{
		{"small", 4096, HugeAuto, 0, true},
		{"small, without huge pages", 4096, HugeNever, 0, true},
		{"huge pages or nothing", 4096, HugeRequire, 0, false},
		{"a huge page", 2 << 20, HugeAuto, 0, false},
		{"a large part of what is left", left / 512, HugeAuto, 0, false},
		{"an old answer", 4096, HugeAuto, time.Minute, false},
	} {
		at := time.Now().Add(time.Hour) // this test may have to wait for its turn
		if c.age > 0 {
			at = time.Now().Add(-c.age)
		}
		// No machine has so many free huge pages.
		r := recentStock{read: at, memoryStock: memoryStock{left, 2 << 20, 1 << 50}}
		s, err := r.forAlloc(c.size, c.policy)
		should.Hold(t, err == nil && (s.hugeFree == 1<<50) == c.recent && r.available == s.available-c.size,
			"%s: %+v and then %+v, %v", c.name, s, r.memoryStock, err)
	}
}
