package driver_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
)

// benchRig is a VI on a fake device with mapped doorbells, whose queues hold
// what b posts: the costs of the driver alone.
func benchRig(b *testing.B) (*driver.VI, []*descriptors.Descriptor) {
	b.Helper()
	d := newFake(b)
	d.mapBAR2 = true
	n, err := driver.New(contextFor(b), d, driver.Options{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = n.Close() })
	m, err := n.AllocMemory(contextFor(b), 64*512, driver.MemoryAttributes{})
	if err != nil {
		b.Fatal(err)
	}
	v, err := n.CreateVI(contextFor(b), driver.VIAttributes{MaxTransfer: 64, SendDepth: 64, RecvDepth: 64}, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	var ds []*descriptors.Descriptor
	for i := range 64 {
		ds = append(ds, descriptor(b, m, i*512, 64))
	}
	return v, ds
}

// BenchmarkPostDone posts a descriptor and takes it back completed; the
// completion itself is one store.
func BenchmarkPostDone(b *testing.B) {
	v, ds := benchRig(b)
	i := 0
	for b.Loop() {
		d := ds[i%64]
		i++
		d.Control().StoreStatus(0)
		if err := v.PostSend(d); err != nil {
			b.Fatal(err)
		}
		d.Control().StoreStatus(descriptors.StatusDone)
		if _, err := v.SendDone(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNotDone looks at a queue on which nothing has completed.
func BenchmarkNotDone(b *testing.B) {
	v, ds := benchRig(b)
	if err := v.PostSend(ds[0]); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := v.SendDone(); err != driver.ErrNotDone {
			b.Fatal(err)
		}
	}
}

// BenchmarkPostBatch posts batches of 32, with one doorbell each.
func BenchmarkPostBatch(b *testing.B) {
	v, ds := benchRig(b)
	for b.Loop() {
		for _, d := range ds[:32] {
			d.Control().StoreStatus(0)
		}
		if _, err := v.PostSendBatch(ds[:32]); err != nil {
			b.Fatal(err)
		}
		for _, d := range ds[:32] {
			d.Control().StoreStatus(descriptors.StatusDone)
			if _, err := v.SendDone(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/32, "ns/descriptor")
}
