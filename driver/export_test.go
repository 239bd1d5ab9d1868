package driver

// PtagOf is a ptag with a number that no device has given out.
func PtagOf(n *NIC, number uint32) *Ptag { return &Ptag{n: n, number: number} }
