package extsort_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"go.uber.org/goleak"

	. "github.com/trapeze-nic/trapeze/tools/trapeze/internal/extsort"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store; it fails at the given number of bytes from its beginning.
type memory struct {
	b    []byte
	fail int64
}

var errBroken = errors.New("broken")

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > m.fail {
		return 0, errBroken
	}
	if off >= int64(len(m.b)) {
		return 0, io.EOF
	}
	return copy(p, m.b[off:]), nil
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > m.fail {
		return 0, errBroken
	}
	return copy(m.b[off:], p), nil
}

func TestSorts(t *testing.T) {
	for _, n := range []int64{Record, 2 * Record, Block, Block + Record, 5<<20 - Record, 6 << 20} {
		s := &memory{make([]byte, 2*n), 2 * n}
		moved := int64(0)
		tick := func(n int) { moved += int64(n) }
		want, err := Fill(t.Context(), s, n, uint64(n), tick)
		if err != nil {
			t.Fatal(err)
		}
		if err := Sort(t.Context(), s, n, LeastMemory, tick); err != nil {
			t.Fatal(err)
		}
		got, err := Check(t.Context(), s, n, n, tick)
		if err != nil || got != want || got.Records != n/Record {
			t.Errorf("%d bytes: %v, %+v, not %+v", n, err, got, want)
		}
		if moved != Passes*n {
			t.Errorf("%d bytes: %d were moved", n, moved)
		}
		if n < 2*Record {
			continue
		}
		// What is wrong is found.
		other := bytes.Clone(s.b)
		other[n+Record+20] ^= 1
		if sum, err := Check(t.Context(), &memory{other, 2 * n}, n, n, tick); err != nil || sum == want {
			t.Errorf("a changed byte: %v, %+v", err, sum)
		}
		binary.LittleEndian.PutUint64(other[n:], 1<<64-1)
		if _, err := Check(t.Context(), &memory{other, 2 * n}, n, n, tick); !errors.Is(err, ErrOrder) {
			t.Errorf("not sorted: %v", err)
		}
	}
}

func TestFails(t *testing.T) {
	const n = 4 << 20
	ignore := func(int) {}
	for _, fail := range []int64{Block, n - 1, n + Block, 2*n - 1} {
		s := &memory{make([]byte, 2*n), 2 * n}
		if _, err := Fill(t.Context(), s, n, 1, ignore); err != nil {
			t.Fatal(err)
		}
		s.fail = fail
		if err := Sort(t.Context(), s, n, LeastMemory, ignore); !errors.Is(err, errBroken) {
			t.Errorf("a store that fails at %d: %v", fail, err)
		}
	}
	s := &memory{make([]byte, 2*n), 2 * n}
	for _, c := range []struct {
		n      int64
		memory int
	}{{0, LeastMemory}, {Record + 1, LeastMemory}, {n, LeastMemory - 1}, {1 << 30, LeastMemory}} {
		if err := Sort(t.Context(), s, c.n, c.memory, ignore); !errors.Is(err, ErrSize) {
			t.Errorf("%d bytes in %d: %v", c.n, c.memory, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Sort(ctx, s, n, LeastMemory, ignore); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
