package via

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/via/internal/hosts"
)

// How often files and the DNS are looked at by Watch.
const (
	filePoll = 200 * time.Millisecond
	dnsPoll  = 10 * time.Second
)

// FileNames is the service of the file of names at path, or of HostsFile for "". What is published
// is a line with a lease, by this host's clock: processes of one host publish and find each other.
// Publish needs the right to make files in the folder. A line without a lease stays as it is.
func FileNames(path string) NameService {
	if path == "" {
		path = HostsFile
	}
	return fileNames(path)
}

type fileNames string

func (s fileNames) Publish(ctx context.Context, name string, a Address, lease time.Duration) (*Publication, error) {
	if err := CheckPublication(name, a, lease); err != nil {
		return nil, err
	}
	path, entry, began := string(s), hosts.Entry(hosts.Host{MAC: a.MAC, Discriminator: a.Discriminator}, name), time.Now()
	l, err := hosts.Acquire(ctx, path, entry, lease)
	if err != nil {
		return nil, NameError("publish name", err)
	}
	return KeepPublished(l.Term, began, lease,
		func(ctx context.Context) error { return hosts.Renew(ctx, path, entry, l.Term, lease) },
		func(ctx context.Context) error { return hosts.Release(ctx, path, entry, l.Term) }), nil
}

func (s fileNames) Resolve(_ context.Context, name string) ([]Address, error) {
	table, err := readHosts(string(s))
	if err != nil {
		return nil, NameError("resolve name", err)
	}
	return addresses(table.ByName(name)), nil
}

func (s fileNames) Watch(ctx context.Context, name string, changed func([]Address)) error {
	return PollNames(ctx, filePoll, func(ctx context.Context) ([]Address, error) { return s.Resolve(ctx, name) }, changed)
}

func addresses(list []hosts.Host) (found []Address) {
	for _, h := range list {
		found = append(found, address(h))
	}
	return found
}

// DNSNames is the service of TXT records that begin with "via=" and go on with an address. It asks
// r, or the system's resolver for nil, and publishes nothing.
func DNSNames(r *net.Resolver) NameService {
	if r == nil {
		r = net.DefaultResolver
	}
	return dnsNames{r}
}

type dnsNames struct{ resolver *net.Resolver }

func (dnsNames) Publish(context.Context, string, Address, time.Duration) (*Publication, error) {
	return nil, NameError("publish name", fmt.Errorf("the DNS takes no leases: %w", errors.ErrUnsupported))
}

func (s dnsNames) Resolve(ctx context.Context, name string) (found []Address, err error) {
	const op = "resolve name"
	records, err := s.resolver.LookupTXT(ctx, name)
	if missing, ok := errors.AsType[*net.DNSError](err); ok && missing.IsNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, NameError(op, err)
	}
	slices.Sort(records)
	for _, r := range records {
		text, ours := strings.CutPrefix(r, "via=")
		if !ours {
			continue
		}
		a, err := ParseAddress(text)
		if err != nil {
			return nil, NameError(op, fmt.Errorf("TXT record of %s: %w", name, err))
		}
		found = append(found, a)
	}
	return found, nil
}

func (s dnsNames) Watch(ctx context.Context, name string, changed func([]Address)) error {
	return PollNames(ctx, dnsPoll, func(ctx context.Context) ([]Address, error) { return s.Resolve(ctx, name) }, changed)
}
