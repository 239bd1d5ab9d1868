package via

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/via/internal/hosts"
)

// HostsFile is where names are looked up if OpenNames says nothing else. It need not be
// there.
const HostsFile = "/etc/trapeze/hosts"

// names is the name service of a NIC.
type names struct {
	mu    sync.Mutex
	table *hosts.Table // nil as long as no file has been read
	// lookupTXT asks the DNS.
	lookupTXT func(ctx context.Context, name string) ([]string, error)
}

// OpenNames reads the file of names at path, or HostsFile for "", anew: lines with an
// address, as Address.String has it, and the names for it. Without OpenNames, HostsFile
// is read when a name is first looked up. It fails with ErrNameService for a file
// that cannot be read or has mistakes, and leaves what was read before.
func (n *NIC) OpenNames(path string) error {
	const op = "open names"
	if n.closed.Load() {
		return n.refuse(op, ErrClosed, "", "")
	}
	table, err := readHosts(path)
	if err != nil {
		return n.refuse(op, ErrNameService, "", "%w", err)
	}
	n.names.mu.Lock()
	defer n.names.mu.Unlock()
	n.names.table = table
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

// CloseNames forgets what OpenNames has read.
func (n *NIC) CloseNames() {
	n.names.mu.Lock()
	defer n.names.mu.Unlock()
	n.names.table = nil
}

// table is what has been read, or HostsFile.
func (n *NIC) table(op string) (*hosts.Table, error) {
	n.names.mu.Lock()
	t := n.names.table
	n.names.mu.Unlock()
	if t == nil {
		if err := n.OpenNames(""); err != nil {
			return nil, err
		}
		return n.table(op)
	}
	return t, nil
}

// HostByName returns the address number index, from 0, that name stands for: of those
// in the file of names, in their order, and if the file has none, of those in the DNS:
// TXT records of name that begin with "via=", sorted. It fails with ErrNameService if
// there is none of that number.
func (n *NIC) HostByName(ctx context.Context, name string, index int) (Address, error) {
	const op = "host by name"
	if err := n.check(ctx, op); err != nil {
		return Address{}, err
	}
	if name == "" || len(name) > hosts.MaxName || index < 0 {
		return Address{}, n.refuse(op, ErrInvalidParameter, "", "name %.300q, number %d", name, index)
	}
	table, err := n.table(op)
	if err != nil {
		return Address{}, err
	}
	found := table.ByName(name)
	if len(found) == 0 {
		if found, err = n.ask(ctx, name); err != nil {
			return Address{}, n.refuse(op, ErrNameService, "enter it into "+HostsFile+", or a TXT record \"via=ADDRESS\" into the DNS", "%w", err)
		}
	}
	if index >= len(found) {
		return Address{}, n.refuse(op, ErrNameService, "", "%q has %d addresses, and not number %d", name, len(found), index)
	}
	return address(found[index]), nil
}

func address(h hosts.Host) Address {
	return Address{MAC: h.MAC, Discriminator: h.Discriminator}
}

// ask looks a name up in the DNS.
func (n *NIC) ask(ctx context.Context, name string) (found []hosts.Host, err error) {
	lookup := n.names.lookupTXT
	if lookup == nil {
		lookup = net.DefaultResolver.LookupTXT
	}
	records, err := lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	slices.Sort(records)
	for _, r := range records {
		text, ours := strings.CutPrefix(r, "via=")
		if !ours {
			continue
		}
		h, err := hosts.ParseHost(text)
		if err != nil {
			return nil, fmt.Errorf("TXT record of %s: %w", name, err)
		}
		found = append(found, h)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no TXT record that begins with \"via=\"", name)
	}
	return found, nil
}

// HostByAddress returns the name of a host in the file of names: that of the address,
// or that of its NIC alone. The DNS has no names for addresses of NICs. It fails with
// ErrNameService if there is none.
func (n *NIC) HostByAddress(a Address) (string, error) {
	const op = "host by address"
	if n.closed.Load() {
		return "", n.refuse(op, ErrClosed, "", "")
	}
	if err := n.checkDiscriminators(op, a.Discriminator); err != nil {
		return "", err
	}
	table, err := n.table(op)
	if err != nil {
		return "", err
	}
	name := table.ByHost(hosts.Host{MAC: a.MAC, Discriminator: a.Discriminator})
	if name == "" {
		return "", n.refuse(op, ErrNameService, "enter it into "+HostsFile, "%v has no name", a)
	}
	return name, nil
}

// Discovery is how a program finds others, see NIC.Discovery.
type Discovery struct {
	// HopLimit is how many networks a request may cross: 1, as frames are not routed.
	HopLimit int
	// Addresses at which others may be found: the broadcast address, to which a
	// ConnectRequest may go, and the hosts in the file of names.
	Addresses []Address
}

// Discovery answers VIA's query for system management information of type 1. It fails
// with ErrNameService if the file of names cannot be read.
func (n *NIC) Discovery() (Discovery, error) {
	const op = "query system management information"
	if n.closed.Load() {
		return Discovery{}, n.refuse(op, ErrClosed, "", "")
	}
	table, err := n.table(op)
	if err != nil {
		return Discovery{}, err
	}
	d := Discovery{HopLimit: 1, Addresses: []Address{{MAC: descriptors.Broadcast}}}
	for _, h := range table.All() {
		d.Addresses = append(d.Addresses, address(h))
	}
	return d, nil
}
