package dmalog

// Overlaps returns the shares, 0 to 1, of successive frames of flow 0 that are in a NIC at the same time: at the sender those of
// which hostTx begins with the later before netTx has ended with the earlier, at the receiver those of
// which netRcv begins with the later before hostRcv has ended with the earlier. They are the two edges
// that several buffers add to cut-through (US patent 6,308,228, figure 5).
func Overlaps(records []Record) (sender, receiver float64) {
	type span struct {
		start, end int64
		there      bool
	}
	frames := map[int]*[Engines]span{}
	for _, r := range records {
		if r.Flow != 0 || r.Control || r.Engine >= Engines {
			continue
		}
		f := frames[r.Packet]
		if f == nil {
			f = new([Engines]span)
			frames[r.Packet] = f
		}
		s := &f[r.Engine]
		if !s.there {
			*s = span{r.Start, r.End, true}
		}
		s.start, s.end = min(s.start, r.Start), max(s.end, r.End)
	}
	share := func(in, out Engine) float64 {
		pairs, overlap := 0, 0
		for k, f := range frames {
			next := frames[k+1]
			if next == nil || !f[out].there || !next[in].there {
				continue
			}
			if pairs++; next[in].start < f[out].end {
				overlap++
			}
		}
		return float64(overlap) / float64(max(pairs, 1))
	}
	return share(HostTx, NetTx), share(NetRcv, HostRcv)
}
