package via

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// dnsPoll is the time between two looks of Watch at the DNS.
const dnsPoll = 10 * time.Second

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
