package wire

import "github.com/trapeze-nic/trapeze/wire/internal/sealed"

// RenewKeys has the keys of a wire renewed as l says.
func (o *UDPOptions) RenewKeys(l sealed.Limits) { o.renewal = l }
