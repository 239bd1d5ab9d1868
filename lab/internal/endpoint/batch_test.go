package endpoint_test

import (
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/via/transfer"
)

// TestBatches: whatever the sizes of batches are, as many messages come as were
// sent, and no more are under way than there are buffers.
func TestBatches(t *testing.T) {
	for _, size := range []int{64, 5000} { // in descriptors, and in buffers
		const depth, total = 8, 300
		x, y := pair(t, options(size, depth))
		sent, came, octets := 0, 0, uint64(0)
		deadline := time.Now().Add(30 * time.Second)
		for turn := 0; came < total; turn++ {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d messages came", came, total)
			}
			n, err := x.PostBatch(min(turn%(2*depth), total-sent), size-1)
			if err != nil {
				t.Fatal(err)
			}
			if sent += n; sent-came > 2*depth { // some have come and not been taken
				t.Fatalf("%d messages under way, of %d", sent-came, depth)
			}
			n, b, err := y.Drain(turn % 5)
			if err != nil || n > turn%5 {
				t.Fatalf("%d messages, %v", n, err)
			}
			came += n
			octets += b
		}
		if octets != total*uint64(size-1) || sent != total {
			t.Errorf("%d sent, %d bytes came", sent, octets)
		}
		if err := x.Flush(limited(t)); err != nil {
			t.Error(err)
		}
		say(t, x, []byte("one more"))
		hear(t, y, []byte("one more"))
	}
}

// TestBatchesAfterLoss: an endpoint whose peer has left says so.
func TestBatchesAfterLoss(t *testing.T) {
	x, y := pair(t, options(64, 4))
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		_, _, err := y.Drain(4)
		if errors.Is(err, transfer.ErrPeerLost) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("drain: %v", err)
		}
	}
	if _, err := y.PostBatch(4, 10); !errors.Is(err, transfer.ErrPeerLost) {
		t.Errorf("post: %v", err)
	}
}
