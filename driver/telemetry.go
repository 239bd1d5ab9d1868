package driver

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/capture"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// show registers the NIC with the telemetry of this process. Its commands read registers and words of memory, and
// take no lock of a work queue.
func (n *NIC) show() (leave func()) {
	return telemetry.Register(&telemetry.Source{
		Address: telemetry.Public(n.Address()), Port: n.port,
		Stats: func() (any, error) { return n.Stats() },
		Commands: []telemetry.Command{
			{Name: "nic", Help: "Says what the NIC is, how it is, and what it has counted. Parameters: optional int port.",
				Run: n.publicReport},
			{Name: "vis", Help: "Lists endpoints: VIs, rings and channels. Parameters: optional int port, optional int from.",
				Run: listed(n, (*endpoint).row)},
			{Name: "counts", Help: "Lists the counts of endpoints: number, sends posted and taken back, receives too, latency. Parameters as of /trapeze/vis.",
				Run: listed(n, func(e *endpoint) telemetry.EndpointCounts { r := e.row(); return r.Counts() })},
			{Name: "vi", Help: "Asks the NIC for the state of an endpoint. Parameters: optional int port, int endpoint.", Needs: 1, Run: n.endpointState},
			{Name: "cqs", Help: "Lists completion queues. Parameters as of /trapeze/vis.", Run: n.listCQs},
			{Name: "regions", Help: "Lists registered memory. Parameters as of /trapeze/vis, from a handle on.", Run: n.listRegions},
			{Name: "wire", Help: "Returns the counters of the wire, of a NIC that this process emulates. Parameters: optional int port.",
				Run: n.wireCounts},
			{Name: "policy", Help: "Says which delivery policy moves frames, and how that goes. Parameters: optional int port.",
				Run: n.policyCounts},
			{Name: "program", Help: "Says which control program runs. Parameters: optional int port.",
				Run: n.program},
			{Name: "capture", Help: capture.Help,
				Run: func(ctx context.Context, p []uint64) (any, error) {
					dev, emulated := n.dev.(capture.Watchable)
					if !emulated {
						return telemetry.Capture{Refused: "its frames do not pass through this process: capture at the other end of the wire, or by 'trapeze frames dump'"}, nil
					}
					return get(ctx, n.do, "lend capture", func() (any, error) { return n.capture.Lend(dev, int(p[0]), n.log) })
				}},
			{Name: "latency", Help: "Returns how long the sends of an endpoint took that were timed. Parameters: optional int port, int endpoint.",
				Needs: 1, Run: n.sendTimes},
			{Name: "map", Help: "Lists entries of a map of the control program, if this process has loaded that. Parameters: optional int port, int map.",
				Needs: 1, Run: n.programMap},
			{Name: "log", Help: "Takes records of the DMA log, which is kept for as long as they are asked for. Parameters: optional int port.",
				Run: n.transfers},
		},
	}, telemetry.Options{NoTelemetry: n.options.NoTelemetry})
}

// publicReport is Report without secrets.
func (n *NIC) publicReport(ctx context.Context, _ []uint64) (any, error) {
	r, err := n.Report(ctx)
	r.Address = telemetry.Public(r.Address)
	return r, err
}

// port is the NIC as tools for Ethernet ports know one.
func (n *NIC) port() (telemetry.Port, error) {
	s, err := n.Stats()
	if err != nil {
		return telemetry.Port{}, err
	}
	var status uint32
	err = n.inBlock("read link", datasheet.BlockHealth, func() (err error) {
		status, err = n.regs.status(n.background)
		return err
	})
	return telemetry.Port{
		Name: telemetry.Public(n.Address()), MAC: n.identity.MAC.String(), MTU: n.identity.MTU, Queues: len(n.present()),
		LinkUp:   status&datasheet.DeviceLinkUp != 0,
		Received: s.FramesReceived, ReceivedBytes: s.BytesReceived, Sent: s.FramesSent, SentBytes: s.BytesSent,
		Missed: s.ReceiveQueueEmpty, ReceiveErrors: s.FramesDropped + s.ChecksumErrors, SendErrors: s.DMAFaults,
	}, err
}

// listed returns a command that lists the endpoints from a number on.
func listed[R any](n *NIC, row func(*endpoint) R) func(context.Context, []uint64) (any, error) {
	return func(_ context.Context, p []uint64) (any, error) {
		page := telemetry.Page[R]{Rows: make([]R, 0, telemetry.PageRows)}
		for i := p[0]; i < uint64(len(n.endpoints)); i++ {
			e := n.endpoints[i].Load()
			switch {
			case e == nil:
			case len(page.Rows) == telemetry.PageRows:
				page.Next = &i
				return page, nil
			default:
				page.Rows = append(page.Rows, row(e))
			}
		}
		return page, nil
	}
}

// row has what the driver knows of an endpoint.
func (e *endpoint) row() telemetry.Endpoint {
	r := telemetry.Endpoint{Number: uint64(e.number)}
	switch q := e.queues.(type) {
	case *VI:
		a := q.Attributes()
		r.Kind, r.Reliability, r.MaxTransfer = a.kind().String(), a.Reliability.String(), a.MaxTransfer
		r.SendDepth, r.RecvDepth = a.SendDepth, a.RecvDepth
		r.SendTaken, r.SendPosted = q.send.indices()
		r.RecvTaken, r.RecvPosted = q.recv.indices()
		if t := q.times(); t != nil {
			r.Latency = &t.Latency
		}
	case *Ring:
		r.Kind, r.Reliability, r.MaxTransfer = datasheet.KindRing.String(), q.attributes.Reliability.String(), q.attributes.MaxPayload
		r.SendDepth, r.RecvDepth = q.attributes.SendDepth, q.attributes.RecvDepth
	case *Channel:
		r.Kind, r.Reliability, r.MaxTransfer = datasheet.KindChannel.String(), datasheet.Unreliable.String(), q.attributes.Page.Bytes()
	}
	return r
}

func (n *NIC) endpointState(ctx context.Context, p []uint64) (any, error) {
	e := n.endpoint(uint32(p[0]))
	if e == nil {
		return nil, fmt.Errorf("%w: endpoint %d", descriptors.ErrInvalidParameter, p[0])
	}
	s, err := e.Query(ctx)
	return telemetry.EndpointState{Endpoint: e.row(), State: s.State.String(), RemoteMAC: s.RemoteMAC.String(), RemoteVI: s.RemoteEndpoint,
		SendCompleted: s.SendCompleted, RecvCompleted: s.RecvCompleted}, err
}

// times are those of the sends that were timed, nil if there are none.
func (v *VI) times() *telemetry.Histogram {
	if v.send.sampler == nil {
		return nil
	}
	return v.send.sampler.times.report()
}

func (n *NIC) sendTimes(_ context.Context, p []uint64) (any, error) {
	if v := n.VI(uint32(p[0])); v != nil {
		if t := v.times(); t != nil {
			return t, nil
		}
	}
	return nil, fmt.Errorf("%w: no send of endpoint %d was timed", descriptors.ErrInvalidParameter, p[0])
}

func (n *NIC) listCQs(_ context.Context, p []uint64) (any, error) {
	var rows []telemetry.CQ
	n.mu.Lock()
	for number, c := range n.cqs {
		rows = append(rows, telemetry.CQ{Number: uint64(number), Entries: c.entries, Promised: c.promised})
	}
	n.mu.Unlock()
	slices.SortFunc(rows, func(a, b telemetry.CQ) int { return cmp.Compare(a.Number, b.Number) })
	return telemetry.NewPage(rows, func(c telemetry.CQ) uint64 { return c.Number }, p[0]), nil
}

func (n *NIC) listRegions(_ context.Context, p []uint64) (any, error) {
	rows := n.regions.rows()
	slices.SortFunc(rows, func(a, b telemetry.Region) int { return cmp.Compare(a.Handle, b.Handle) })
	return telemetry.NewPage(rows, func(r telemetry.Region) uint64 { return r.Handle }, p[0]), nil
}

// rows are the registered memory, in no order.
func (t *regionTable) rows() (rows []telemetry.Region) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for handle, m := range t.m {
		rows = append(rows, telemetry.Region{Handle: uint64(handle), Bytes: uint64(len(m.bytes)), Ptag: m.attributes.Ptag.Number(), Eager: m.eager.Load() != nil})
	}
	return rows
}

// wireCounts are those of an emulated NIC of this process.
func (n *NIC) wireCounts(context.Context, []uint64) (any, error) {
	w, ok := n.dev.(interface{ WireStats() any })
	if !ok {
		return nil, descriptors.ErrNotSupported
	}
	return telemetry.Counts(w.WireStats()), nil
}

func (n *NIC) policyCounts(context.Context, []uint64) (any, error) {
	s, err := n.Policy()
	return struct {
		telemetry.Policy
		Counters map[string]uint64 `json:"counters"`
	}{describePolicy(s), telemetry.Counts(s.Pump)}, err
}

func (n *NIC) program(context.Context, []uint64) (any, error) {
	s, err := n.ProgramStatus()
	return s.Describe(), err
}

// What an answer about a map has at most: entries, and bytes of their keys and values.
const (
	shownEntries  = 64
	shownMapBytes = 8 << 10
)

// programMap lists a map of the program that runs. It fails with load.ErrMap if there is no such
// map, and if another process has loaded the program: the NIC does not say what its maps are.
func (n *NIC) programMap(_ context.Context, p []uint64) (any, error) {
	s, err := n.ProgramStatus()
	if err != nil {
		return nil, err
	}
	n.programs.mu.Lock()
	loaded := n.programs.loaded
	n.programs.mu.Unlock()
	i := slices.IndexFunc(loaded[:], func(img load.Image) bool { return img.Digest == s.Digest })
	if i < 0 {
		return nil, fmt.Errorf("%w: this process has not loaded the program", load.ErrMap)
	}
	m, err := n.ProgramMap(loaded[i].Maps, int(p[0]))
	if err != nil {
		return nil, err
	}
	spec := m.Spec()
	answer := telemetry.ProgramMap{Number: p[0], Maps: len(loaded[i].Maps), Name: spec.Name, Type: spec.Type.String(),
		KeyBytes: spec.Key, ValueBytes: spec.Value, Room: spec.Entries, Entries: []telemetry.MapEntry{}}
	most := min(shownEntries, shownMapBytes/int(spec.Key+spec.Value))
	if answer.More = most == 0; answer.More {
		return answer, nil
	}
	err = m.Each(func(key, value []byte) bool {
		if answer.More = len(answer.Entries) == most; !answer.More {
			answer.Entries = append(answer.Entries, telemetry.MapEntry{Key: fmt.Sprintf("%x", key), Value: fmt.Sprintf("%x", value)})
		}
		return !answer.More
	})
	return answer, err
}
