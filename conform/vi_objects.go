package conform

import (
	"github.com/trapeze-nic/trapeze/via"
)

// testRDMARights: VIs get the rights that the NIC has at their level, and no others.
func testRDMARights(w *World) {
	ctx := Context(w)
	a := w.A.Query()
	if (a.RDMAWrite|a.RDMARead)&^a.Reliability != 0 || a.RDMARead&via.Unreliable != 0 {
		w.Errorf("RDMA writes at %v, reads at %v, of a NIC with %v", a.RDMAWrite, a.RDMARead, a.Reliability)
	}
	for _, level := range []via.Reliability{via.Unreliable, via.ReliableDelivery, via.ReliableReception} {
		if a.Reliability&level == 0 {
			continue
		}
		for _, c := range []struct {
			name   string
			a      via.VIAttributes
			has    via.Reliability
			refuse error
		}{
			{"RDMA write", via.VIAttributes{Reliability: level, RDMAWrite: true}, a.RDMAWrite, via.ErrNotSupported},
			{"RDMA read", via.VIAttributes{Reliability: level, RDMARead: true}, a.RDMARead, via.ErrInvalidRDMARead},
		} {
			vi, err := w.A.CreateVI(ctx, c.a, nil, nil)
			if c.has&level == 0 {
				wantError(w, c.name, err, c.refuse)
				continue
			}
			OK(w, err)
			if got := vi.Attributes(); got.RDMAWrite != c.a.RDMAWrite || got.RDMARead != c.a.RDMARead {
				w.Errorf("%s at %v: attributes %+v", c.name, level, got)
			}
			OK(w, vi.Close(ctx))
		}
	}
}
