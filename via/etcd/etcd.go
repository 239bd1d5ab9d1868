// Package etcd publishes addresses of NICs in etcd v3, and finds those of others: it is a
// via.NameService. An entry is the key PREFIX/NAME/ADDRESS under a lease of etcd; the revision
// of the key is the term. NewStore has the configuration of a pool of network memory. It is a module of its own,
// so that programs that use NICs need no etcd.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trapeze-nic/trapeze/via"
)

// Prefix is where keys begin if New is given no other prefix.
const Prefix = "/trapeze/names"

// retryAfter is the pause of Watch before it tries again.
const retryAfter = 500 * time.Millisecond

// New makes the service of a client, which stays open. It asks nothing of etcd. Keys begin with
// prefix, or Prefix for "".
func New(c *clientv3.Client, prefix string) (via.NameService, error) {
	if c == nil {
		return nil, &via.Error{Op: "open names", Code: via.ErrInvalidParameter, Err: errors.New("the client is missing")}
	}
	if prefix == "" {
		prefix = Prefix
	}
	return &service{c, strings.TrimSuffix(prefix, "/")}, nil
}

type service struct {
	client *clientv3.Client
	prefix string
}

func (s *service) folder(name string) string { return s.prefix + "/" + strings.ToLower(name) + "/" }

func (s *service) Publish(ctx context.Context, name string, a via.Address, lease time.Duration) (*via.Publication, error) {
	const op = "publish name"
	if err := via.CheckPublication(name, a, lease); err != nil {
		return nil, err
	}
	began := time.Now()
	granted, err := s.client.Grant(ctx, int64((lease+time.Second-1)/time.Second))
	if err != nil {
		return nil, via.NameError(op, err)
	}
	// etcd's revision rises with each change of any key: that which made the entry is its term.
	put, err := s.client.Put(ctx, s.folder(name)+a.String(), "", clientv3.WithLease(granted.ID))
	if err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), via.LeastLease)
		defer cancel()
		_, revoked := s.client.Revoke(end, granted.ID)
		return nil, via.NameError(op, errors.Join(err, revoked))
	}
	e := &entry{service: s, key: s.folder(name) + a.String(), lease: granted.ID, revision: put.Header.Revision}
	return via.KeepPublished(uint64(e.revision), began, lease, e.renew, e.remove), nil
}

// entry is a publication of this program.
type entry struct {
	*service
	key      string
	lease    clientv3.LeaseID
	revision int64
}

// renew keeps the lease alive if the key is still under it.
func (e *entry) renew(ctx context.Context) error {
	got, err := e.client.Get(ctx, e.key)
	if err != nil {
		return err
	}
	if len(got.Kvs) != 1 || got.Kvs[0].Lease != int64(e.lease) {
		return via.ErrLeaseLost
	}
	_, err = e.client.KeepAliveOnce(ctx, e.lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return via.ErrLeaseLost
	}
	return err
}

// remove ends the lease, and with it the key. A key that has been taken over is under another one.
func (e *entry) remove(ctx context.Context) error {
	_, err := e.client.Revoke(ctx, e.lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

func (s *service) Resolve(ctx context.Context, name string) ([]via.Address, error) {
	list, _, err := s.read(ctx, name)
	return list, via.NameError("resolve name", err)
}

// read returns the addresses of a name and the revision that has them.
func (s *service) read(ctx context.Context, name string) (found []via.Address, revision int64, err error) {
	if strings.Contains(name, "/") {
		return nil, 0, nil // it cannot have been published
	}
	got, err := s.client.Get(ctx, s.folder(name), clientv3.WithPrefix())
	if err != nil {
		return nil, 0, err
	}
	for _, kv := range got.Kvs {
		// Another program may have written nonsense: the other entries are as good.
		a, err := via.ParseAddress(strings.TrimPrefix(string(kv.Key), s.folder(name)))
		if err == nil && via.CheckPublication(name, a, via.LeastLease) == nil {
			found = append(found, a)
		}
	}
	slices.SortFunc(found, func(a, b via.Address) int { return strings.Compare(a.String(), b.String()) })
	return found, got.Header.Revision, nil
}

func (s *service) Watch(ctx context.Context, name string, changed func([]via.Address)) error {
	var last []via.Address
	for known := false; ctx.Err() == nil; {
		list, revision, err := s.read(ctx, name)
		if err == nil {
			if !known || !slices.Equal(list, last) {
				known, last = true, list
				changed(slices.Clone(list))
			}
			err = s.await(ctx, name, revision+1)
		}
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(retryAfter):
			}
		}
	}
	return ctx.Err()
}

// await waits until a key of a name changes, from a revision on.
func (s *service) await(ctx context.Context, name string, from int64) error {
	if strings.Contains(name, "/") {
		<-ctx.Done()
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range s.client.Watch(ctx, s.folder(name), clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := r.Err(); err != nil {
			return err
		}
		if len(r.Events) > 0 {
			return nil
		}
	}
	return fmt.Errorf("the watch of %s has ended", name)
}
