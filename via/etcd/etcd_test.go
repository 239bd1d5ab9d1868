package etcd_test

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/via/etcd"
)

// serve starts an etcd in this process, on sockets in a folder, and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	c := embed.NewConfig()
	c.Dir, c.ZapLoggerBuilder = filepath.Join(t.TempDir(), "etcd"), embed.NewZapLoggerBuilder(zap.NewNop())
	client, peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}, url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.UnsafeNoFsync = true
	e := must.Get(embed.StartEtcd(c))(t)
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd does not start")
	}
	return e.Clients[0].Addr().String()
}

func dial(t *testing.T, address string) *clientv3.Client {
	t.Helper()
	c := must.Get(clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop(), DialTimeout: time.Minute}))(t)
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return c
}

func open(t *testing.T, c *clientv3.Client, prefix string) via.NameService {
	t.Helper()
	return must.Get(etcd.New(c, prefix))(t)
}

func TestNames(t *testing.T) {
	address := serve(t)
	conform.NameService(t, func(t *testing.T) conform.NameServiceEnds {
		one, prefix := dial(t, address), "/"+t.Name()
		return conform.NameServiceEnds{One: open(t, one, prefix), Other: open(t, dial(t, address), prefix), Cut: func() { one.Close() }}
	})
}

// TestNonsense: keys of others that make no sense are left out.
func TestNonsense(t *testing.T) {
	c := dial(t, serve(t))
	s := open(t, c, "")
	for _, key := range []string{"cache/ff:ff:ff:ff:ff:ff/x", "cache/nonsense", "cache/", "cache/02:00:00:00:00:01/a"} {
		must.Get(c.Put(t.Context(), etcd.Prefix+"/"+key, ""))(t)
	}
	for name, want := range map[string]int{"cache": 1, "Cache": 1, "cach": 0, "cache/02:00:00:00:00:01": 0, "": 0} {
		if got, err := s.Resolve(t.Context(), name); err != nil || len(got) != want {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	if s, err := etcd.New(nil, ""); s != nil || !errors.Is(err, via.ErrInvalidParameter) {
		t.Error(s, err)
	}
}
