package driver_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// benchRig is a VI on a fake device with mapped doorbells. What posts and completions
// cost there, lab/internal/drivercost measures.
func benchRig(b *testing.B) (*driver.VI, []*descriptors.Descriptor) {
	b.Helper()
	d := newFake(b)
	d.mapBAR2 = true
	n, err := driver.New(contextFor(b), d, driver.Options{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = n.Close() })
	m, err := n.Alloc(contextFor(b), 64*512, driver.MemoryAttributes{})
	if err != nil {
		b.Fatal(err)
	}
	v, err := n.CreateVI(contextFor(b), driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, SendDepth: 64, RecvDepth: 64}, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	var ds []*descriptors.Descriptor
	for i := range 64 {
		ds = append(ds, descriptor(b, m, i*512, 64))
	}
	return v, ds
}

// BenchmarkNotDone looks at a queue on which nothing has completed.
func BenchmarkNotDone(b *testing.B) {
	v, ds := benchRig(b)
	if err := v.PostSend(ds[0]); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := v.SendDone(); err != descriptors.ErrNotDone {
			b.Fatal(err)
		}
	}
}
