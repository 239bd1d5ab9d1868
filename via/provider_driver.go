package via

import (
	"context"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Open opens the NIC at a device address, such as "pci:0000:03:00.0" or
// "emu:?wire=loop". Errors: ErrInvalidParameter for a bad address, ErrDevice for
// a device that is not what it should be, ErrResource for all else; the cause
// says more.
func Open(ctx context.Context, address string, opts ...Option) (*NIC, error) {
	const op = "open"
	if ctx == nil {
		return nil, &Error{Op: op, Device: address, Code: ErrInvalidParameter, Hint: "the context is nil"}
	}
	d, err := driver.Open(ctx, address, driver.Options{Logger: collect(opts).logger})
	return opened(ctx, op, address, d, err, opts)
}

// OpenDevice opens the NIC behind a device, such as one of emulator.Pair. It takes
// ownership: the device is closed with the NIC, and also if OpenDevice fails.
func OpenDevice(ctx context.Context, device vfio.Device, opts ...Option) (*NIC, error) {
	const op = "open"
	if ctx == nil || device == nil {
		return nil, &Error{Op: op, Code: ErrInvalidParameter, Hint: "context and device must not be nil"}
	}
	d, err := driver.New(ctx, device, driver.Options{Logger: collect(opts).logger})
	return opened(ctx, op, device.Info().Address, d, err, opts)
}

func opened(ctx context.Context, op, address string, d *driver.NIC, err error, opts []Option) (*NIC, error) {
	if err != nil {
		code, hint, cause := explain(err)
		return nil, &Error{Op: op, Device: address, Code: code, Err: cause, Hint: hint}
	}
	return New(ctx, Driver(d), opts...)
}

// Driver makes a provider of a NIC that the driver runs: the NIC does the work.
// Of nil it makes none.
func Driver(d *driver.NIC) Provider {
	if d == nil {
		return nil
	}
	return &driverNIC{d}
}

// The adapters below are one pointer each. The ones on the data path add a
// comparison or two to a call, and no allocation.
type (
	driverNIC        struct{ *driver.NIC }
	driverCQ         struct{ *driver.CQ }
	driverVI         struct{ *driver.VI }
	driverConnection struct{ *driver.Connection }
)

func (n *driverNIC) Attributes() NICAttributes {
	id := n.Identity()
	levels := Unreliable
	if id.Features&descriptors.FeatureReliableDelivery != 0 {
		levels |= ReliableDelivery
	}
	if id.Features&descriptors.FeatureReliableReception != 0 {
		levels |= ReliableReception
	}
	a := NICAttributes{
		Name:             n.Address(),
		Backend:          n.Backend(),
		HardwareVersion:  id.DeviceVersion,
		Address:          id.MAC,
		MTU:              id.MTU,
		MaxTransfer:      id.MaxTransfer,
		MaxSegments:      id.MaxSegments,
		MaxDiscriminator: MaxDiscriminator,
		MaxVIs:           int(id.MaxEndpoints) - 1, // endpoint 0 is reserved
		MaxCQs:           int(id.MaxCQs),
		MaxRegions:       int(id.MaxRegions),
		MaxPtags:         int(id.MaxPtags),
		MaxDescriptors:   id.MaxQueueDepth,
		MaxCQEntries:     id.MaxCQEntries,
		Reliability:      levels,
		ThreadSafe:       true,
	}
	if id.Features&descriptors.FeatureInline != 0 {
		a.MaxInline = id.MaxSegments * descriptors.DataSegmentSize
	}
	if id.Features&descriptors.FeatureRDMAWrite != 0 {
		a.RDMAWrite = levels
	}
	if id.Features&descriptors.FeatureRDMARead != 0 {
		a.RDMARead = levels &^ Unreliable // VIA has no RDMA read there
	}
	return a
}

func (n *driverNIC) AllocMemory(ctx context.Context, size int, ptag uint32, access descriptors.Access) (ProviderMemory, error) {
	m, err := n.NIC.AllocMemory(ctx, size, driver.MemoryAttributes{Ptag: ptag, Access: access})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (n *driverNIC) RegisterMemory(ctx context.Context, b []byte, ptag uint32, access descriptors.Access) (ProviderMemory, error) {
	m, err := n.NIC.RegisterMemory(ctx, b, driver.MemoryAttributes{Ptag: ptag, Access: access})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (n *driverNIC) CreateCQ(ctx context.Context, entries int) (ProviderCQ, error) {
	c, err := n.NIC.CreateCQ(ctx, entries)
	if err != nil {
		return nil, err
	}
	return driverCQ{c}, nil
}

func (n *driverNIC) CreateVI(ctx context.Context, a VIAttributes, ptag uint32, send, recv ProviderCQ) (ProviderVI, error) {
	sendCQ, ok := driverCQOf(send)
	recvCQ, ok2 := driverCQOf(recv)
	if !ok || !ok2 {
		return nil, ErrInvalidParameter
	}
	kind := descriptors.KindVI
	if a.Frames != NoFrames {
		kind = descriptors.KindFrame
	}
	v, err := n.NIC.CreateVI(ctx, driver.VIAttributes{
		Kind:        kind,
		Promiscuous: a.Frames == AllFrames,
		Reliability: a.Reliability,
		MaxTransfer: a.MaxTransfer,
		Ptag:        ptag,
		Rights:      rights(a.RDMAWrite, a.RDMARead),
		SendDepth:   a.SendDepth,
		RecvDepth:   a.RecvDepth,
	}, sendCQ, recvCQ)
	if err != nil {
		return nil, err
	}
	return driverVI{v}, nil
}

// driverCQOf returns the driver's CQ in c, nil for nil, and false if c is of
// another provider.
func driverCQOf(c ProviderCQ) (*driver.CQ, bool) {
	if c == nil {
		return nil, true
	}
	d, ok := c.(driverCQ)
	return d.CQ, ok
}

func (n *driverNIC) ConnectWait(ctx context.Context, local []byte) (ProviderConnection, error) {
	c, err := n.NIC.ConnectWait(ctx, local)
	if err != nil {
		return nil, err
	}
	return driverConnection{c}, nil
}

func (n *driverNIC) Explain(err error) (Code, string, error) { return explain(err) }

func (c driverCQ) Done() (descriptors.Completion, error) {
	e, err := c.CQ.Done()
	if err != nil {
		return e, answerOf(err)
	}
	return e, nil
}

func (v driverVI) ConnectRequest(ctx context.Context, remote Address, local []byte) (Remote, error) {
	r, err := v.VI.ConnectRequest(ctx, driver.Address{MAC: remote.MAC, Discriminator: remote.Discriminator}, local)
	return remoteOf(r), err
}

func (v driverVI) Query(ctx context.Context) (VIState, error) {
	s, err := v.VI.Query(ctx)
	return VIState{State: s.State, RemoteMAC: s.RemoteMAC, RemoteVI: s.RemoteEndpoint}, err
}

func (v driverVI) PostSend(d *Descriptor) error {
	if err := v.VI.PostSend(d); err != nil {
		return answerOf(err)
	}
	return nil
}

func (v driverVI) PostRecv(d *Descriptor) error {
	if err := v.VI.PostRecv(d); err != nil {
		return answerOf(err)
	}
	return nil
}

func (v driverVI) PostSendBatch(ds []*Descriptor) (int, error) {
	n, err := v.VI.PostSendBatch(ds)
	if err != nil {
		return n, answerOf(err)
	}
	return n, nil
}

func (v driverVI) PostRecvBatch(ds []*Descriptor) (int, error) {
	n, err := v.VI.PostRecvBatch(ds)
	if err != nil {
		return n, answerOf(err)
	}
	return n, nil
}

func (v driverVI) SendDone() (*Descriptor, error) {
	d, err := v.VI.SendDone()
	if err != nil {
		return d, answerOf(err)
	}
	return d, nil
}

func (v driverVI) RecvDone() (*Descriptor, error) {
	d, err := v.VI.RecvDone()
	if err != nil {
		return d, answerOf(err)
	}
	return d, nil
}

func (v driverVI) SendDoneBatch(into []*Descriptor) (int, error) {
	n, err := v.VI.SendDoneBatch(into)
	if err != nil {
		return n, answerOf(err)
	}
	return n, nil
}

func (v driverVI) RecvDoneBatch(into []*Descriptor) (int, error) {
	n, err := v.VI.RecvDoneBatch(into)
	if err != nil {
		return n, answerOf(err)
	}
	return n, nil
}

func (v driverVI) SendWait(ctx context.Context) (*Descriptor, error) {
	d, err := v.VI.SendWait(ctx)
	if err != nil {
		return d, answerOf(err)
	}
	return d, nil
}

func (v driverVI) RecvWait(ctx context.Context) (*Descriptor, error) {
	d, err := v.VI.RecvWait(ctx)
	if err != nil {
		return d, answerOf(err)
	}
	return d, nil
}

func (c driverConnection) Remote() (Remote, []byte) {
	return remoteOf(driver.Remote{
		MAC:         c.Connection.Remote.MAC,
		MaxTransfer: c.MaxTransfer,
		Reliability: c.Reliability,
		Rights:      c.Rights,
	}), c.Connection.Remote.Discriminator
}

func (c driverConnection) Accept(ctx context.Context, vi ProviderVI) (Remote, error) {
	v, ok := vi.(driverVI)
	if !ok {
		return Remote{}, ErrInvalidParameter
	}
	r, err := c.Connection.Accept(ctx, v.VI)
	return remoteOf(r), err
}

func remoteOf(r driver.Remote) Remote {
	return Remote{
		MAC:         r.MAC,
		VI:          r.Endpoint,
		MaxTransfer: r.MaxTransfer,
		Reliability: r.Reliability,
		RDMAWrite:   r.Rights&descriptors.AccessRDMAWrite != 0,
		RDMARead:    r.Rights&descriptors.AccessRDMARead != 0,
	}
}
