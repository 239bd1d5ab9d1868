package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Store is a value in one key of etcd that is changed by compare-and-swap. It is a netmem.Store, for the configuration
// of a pool of network memory.
type Store struct {
	client *clientv3.Client
	key    string
}

// NewStore makes the store of a key. The client of etcd stays open.
func NewStore(c *clientv3.Client, key string) *Store { return &Store{c, key} }

// Get returns the value and its revision, 0 if there is none. It reads from a quorum.
func (s *Store) Get(ctx context.Context) (value []byte, revision int64, err error) {
	got, err := s.client.Get(ctx, s.key)
	if err != nil || len(got.Kvs) == 0 {
		return nil, 0, err
	}
	return got.Kvs[0].Value, got.Kvs[0].ModRevision, nil
}

// Swap puts a value in the place of the one of a revision, or of none for 0. Else it does nothing.
func (s *Store) Swap(ctx context.Context, value []byte, revision int64) error {
	_, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(s.key), "=", revision)).
		Then(clientv3.OpPut(s.key, string(value))).Commit()
	return err
}
