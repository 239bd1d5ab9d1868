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

// Destroy ends the ptag. It fails with ErrResource while memory or a VI has it.
func (p *Ptag) Destroy(ctx context.Context) error {
	const op = "destroy ptag"
	if err := p.retire(ctx, op, ErrResource, "destroy the VIs and deregister the memory that have this ptag first"); err != nil {
		return err
	}
	err := p.nic.d.DestroyPtag(ctx, p.number)
	if err != nil {
		p.revive()
	}
	return err
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
