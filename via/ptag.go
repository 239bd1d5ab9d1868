package via

import "context"

// Ptag is a protection tag. The NIC lets a VI touch only memory that was
// registered with the ptag of the VI.
type Ptag struct {
	object
	number uint32
}

// CreatePtag makes a new protection tag. It fails with ErrResource if there are
// no more.
func (n *NIC) CreatePtag(ctx context.Context) (*Ptag, error) {
	number, err := n.d.CreatePtag(ctx)
	if err != nil {
		return nil, err
	}
	return &Ptag{object: object{nic: n}, number: number}, nil
}

// Close ends the ptag. It fails with ErrResource while memory or a VI has it.
func (p *Ptag) Close(ctx context.Context) error {
	return p.end(ctx, "close ptag", ErrResource, "close the VIs and the memory that have this ptag first", func() (bool, error) {
		err := p.nic.d.DestroyPtag(ctx, p.number)
		return err == nil, err
	})
}

// Number is the NIC's name for the ptag.
func (p *Ptag) Number() uint32 { return p.number }

// ptagOr returns p, or the NIC's default for nil.
func (n *NIC) ptagOr(p *Ptag) *Ptag {
	if p == nil {
		return n.ptag
	}
	return p
}
