package via

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via/internal/hosts"
)

// HostsFile is where names are looked up if OpenNames says nothing else. It need not be
// there.
const HostsFile = "/etc/trapeze/hosts"

// names are those that a NIC knows, and the service that it asks.
type names struct {
	mu   sync.Mutex
	path string // of the file, see OpenNames
	// service is asked for what the file does not have; nil for the DNS.
	service NameService
}

// UseNames has names that are not in the file of names looked up in a service, in place of the DNS.
// Dial, Resolve and HostByName use it. nil is the DNS again.
func (n *NIC) UseNames(s NameService) {
	n.names.mu.Lock()
	defer n.names.mu.Unlock()
	n.names.service = s
}

// nameService returns the service to ask, and a hint about a name that it does not have.
func (n *NIC) nameService() (s NameService, hint string) {
	n.names.mu.Lock()
	defer n.names.mu.Unlock()
	if n.names.service == nil {
		return DNSNames(nil), "enter it into " + HostsFile + ", or a TXT record \"via=ADDRESS\" into the DNS"
	}
	return n.names.service, "have its program publish it, or enter it into " + HostsFile
}

// OpenNames has names looked up in the file at path, or HostsFile for "", which stands also for
// no OpenNames: lines with an
// address, as Address.String has it, and the names for it. It fails with ErrNameService for a file
// that cannot be read or has mistakes, and leaves the one before.
func (n *NIC) OpenNames(path string) error {
	const op = "open names"
	if err := n.Check(op); err != nil {
		return err
	}
	if _, err := readHosts(path); err != nil {
		return n.Refuse(op, ErrNameService, "", "%w", err)
	}
	n.names.mu.Lock()
	defer n.names.mu.Unlock()
	n.names.path = path
	return nil
}

func readHosts(path string) (*hosts.Table, error) {
	optional := path == ""
	if optional {
		path = HostsFile
	}
	f, err := os.Open(path)
	if optional && errors.Is(err, fs.ErrNotExist) {
		return &hosts.Table{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	table, err := hosts.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return table, nil
}

// CloseNames undoes OpenNames.
func (n *NIC) CloseNames() {
	n.names.mu.Lock()
	defer n.names.mu.Unlock()
	n.names.path = ""
}

// table reads the file of names.
func (n *NIC) table(op string) (*hosts.Table, error) {
	n.names.mu.Lock()
	path := n.names.path
	n.names.mu.Unlock()
	t, err := readHosts(path)
	if err != nil {
		return nil, n.Refuse(op, ErrNameService, "", "%w", err)
	}
	return t, nil
}

// HostByName returns the address number index, from 0, of those that a name stands for, as
// AddressesOf has them. It fails with ErrNameService if there is none of that number.
func (n *NIC) HostByName(ctx context.Context, name string, index int) (Address, error) {
	const op = "host by name"
	if index < 0 {
		return Address{}, n.Refuse(op, ErrInvalidParameter, "", "number %d", index)
	}
	found, err := n.AddressesOf(ctx, name)
	if err != nil {
		return Address{}, err
	}
	if index >= len(found) {
		return Address{}, n.Refuse(op, ErrNameService, "", "%q has %d addresses, and not number %d", name, len(found), index)
	}
	return found[index], nil
}

// AddressesOf returns the addresses that a name stands for, at least one: those in the file of
// names, in their order, and if the file has none, those of the service of UseNames, or of the
// DNS: TXT records of name that begin with "via=", sorted. It fails with ErrNameService if there
// is none.
func (n *NIC) AddressesOf(ctx context.Context, name string) ([]Address, error) {
	const op = "host by name"
	if err := n.check(ctx, op); err != nil {
		return nil, err
	}
	if name == "" || len(name) > hosts.MaxName {
		return nil, n.Refuse(op, ErrInvalidParameter, "", "name %.300q", name)
	}
	table, err := n.table(op)
	if err != nil {
		return nil, err
	}
	if found := table.ByName(name); len(found) > 0 {
		return found, nil
	}
	service, hint := n.nameService()
	found, err := service.Resolve(ctx, name)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s has no address", name)
	}
	if err != nil {
		return nil, n.Refuse(op, ErrNameService, hint, "%w", err)
	}
	return found, nil
}

// HostByAddress returns the name of a host in the file of names: that of the address,
// or that of its NIC alone. The DNS has no names for addresses of NICs. It fails with
// ErrNameService if there is none.
func (n *NIC) HostByAddress(a Address) (string, error) {
	const op = "host by address"
	if err := n.Check(op); err != nil {
		return "", err
	}
	if err := n.checkDiscriminator(op, a.Discriminator); err != nil {
		return "", err
	}
	table, err := n.table(op)
	if err != nil {
		return "", err
	}
	name := table.ByHost(a)
	if name == "" {
		return "", n.Refuse(op, ErrNameService, "enter it into "+HostsFile, "%v has no name", a)
	}
	return name, nil
}

// Discovery says how a program finds others, see NIC.Discovery.
type Discovery struct {
	// HopLimit is the number of networks that a request may cross: 1, as frames are not routed.
	HopLimit int
	// Addresses at which others may be found: the broadcast address, to which a
	// ConnectRequest may go, and the hosts in the file of names.
	Addresses []Address
}

// Discovery answers VIA's query for system management information of type 1. It fails
// with ErrNameService if the file of names cannot be read.
func (n *NIC) Discovery() (Discovery, error) {
	const op = "query system management information"
	if err := n.Check(op); err != nil {
		return Discovery{}, err
	}
	table, err := n.table(op)
	if err != nil {
		return Discovery{}, err
	}
	return Discovery{HopLimit: 1, Addresses: append([]Address{{MAC: datasheet.Broadcast}}, table.All()...)}, nil
}
