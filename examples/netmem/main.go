// Netmem keeps a table in the memory of two servers, each with a copy of every page. One of
// them dies in the middle; on hardware the addresses differ, no more.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"sync"

	_ "github.com/trapeze-nic/trapeze/emulator" // makes "emu:" known
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

const (
	entries = 1 << 20 // of 8 bytes
	local   = 1 << 20 // bytes of memory on this machine
)

func main() {
	ctx := context.Background()
	far := must(via.Open(ctx, "emu:?wire=mem:netmem", via.Options{}))
	defer far.Close()
	near := must(via.Open(ctx, "emu:?wire=mem:netmem", via.Options{}))
	defer near.Close()

	// Two servers, which are on different machines in earnest.
	var servers []*netmem.Server
	var addresses []string
	for _, name := range []string{"a", "b"} {
		s := must(netmem.NewServer(ctx, far, netmem.ServerOptions{Name: name, Size: 8 * entries}))
		defer s.Close()
		servers = append(servers, s)
		addresses = append(addresses, s.Address().String())
	}

	// A client with room for an eighth of the table.
	c := must(netmem.Open(ctx, near, addresses, netmem.Options{Copies: 2, Store: &store{}, Cache: local}))
	defer c.Close()
	fmt.Printf("%d MiB of other machines in pages of %d KiB\n", c.Size()>>20, c.Page()>>10)
	for i := range entries {
		put(c, i, uint64(i)*uint64(i))
	}
	must(0, c.Sync()) // now all of it is with both servers

	must(0, servers[0].Close())
	fmt.Println("a server is gone")
	wrong, looks := 0, 0
	for i := 0; i < entries; i += 101 {
		looks++
		if get(c, i) != uint64(i)*uint64(i) {
			wrong++
		}
	}
	s := c.Stats()
	fmt.Printf("%d of %d entries are wrong\n", wrong, looks)
	fmt.Printf("pages were missed: %t, and found in the cache: %t\n", s.Misses > 0, s.Hits > 0)
}

// store keeps which servers have all pages. In earnest it is a key in etcd, which all clients reach: etcd.NewStore of
// the module via/etcd.
type store struct {
	mu       sync.Mutex
	value    []byte
	revision int64
}

func (s *store) Get(context.Context) ([]byte, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.revision, nil
}

func (s *store) Swap(_ context.Context, value []byte, revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision == s.revision {
		s.value, s.revision = value, s.revision+1
	}
	return nil
}

// put and get are an io.WriterAt and an io.ReaderAt at work.
func put(c *netmem.Client, i int, v uint64) {
	must(c.WriteAt(binary.LittleEndian.AppendUint64(nil, v), int64(8*i)))
}

func get(c *netmem.Client, i int) uint64 {
	var b [8]byte
	must(c.ReadAt(b[:], int64(8*i)))
	return binary.LittleEndian.Uint64(b[:])
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
