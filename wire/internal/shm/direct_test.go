package shm_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// copyOffset is where an end says that it copies.
const copyOffset = 512

// copying is the word in which a raw peer says that it copies.
func (r *raw) copying() *uint32 { return datasheet.IndexAt(r.ours[copyOffset:]) }

// readUntil reads messages until one of a kind comes. Kind 0 is the end of the connection.
func (r *raw) readUntil(want uint32) (id uint32, a, b, c uint64, fd int) {
	r.t.Helper()
	for {
		kind, id, a, b, c, fd := r.read()
		if kind == want {
			return id, a, b, c, fd
		}
		if fd >= 0 {
			unix.Close(fd)
		}
		must.Be(r.t, kind == 0, false, "the connection has ended, no message of kind %d", want)
	}
}

// TestTable: only a peer that shares memory gets one, and it cannot write to it.
func TestTable(t *testing.T) {
	for _, tt := range []struct {
		flags uint64
		table bool
	}{{0, false}, {flagWrite, false}, {flagShare, true}, {flagShare | flagWrite, true}} {
		t.Run(fmt.Sprintf("flags %#x", tt.flags>>32), func(t *testing.T) {
			checkLeaks(t)
			p, r := withRaw(t, shm.Options{Share: true, ShareWrite: true}, tt.flags)
			fd, mem := lendable(t, page)
			must.Get(p.Export(fd, 0, mem))(t)
			if !tt.table {
				p.SetLink(false) // it comes behind what comes before
				if _, _, _, _, got := r.readUntil(msgLink); got >= 0 {
					t.Error("there is a file with it")
				}
				return
			}
			_, size, _, _, got := r.readUntil(msgTable)
			defer unix.Close(got)
			should.Be(t, datasheet.DirectTableSize, size, "a table bytes")
			again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", got), unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return // by others than root, say
			}
			defer unix.Close(again)
			for what, err := range map[string]error{"map it for writing": mapped(again, page), "write": written(again),
				"truncate": unix.Ftruncate(again, 0), "punch a hole": unix.Fallocate(again, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, page)} {
				should.Be(t, err == nil, false, "the peer can %s", what)
			}
		})
	}
}

// settle: a copy that has begun is waited for, one that begins later is not, and a peer that
// never ends one is disconnected.
func settle(t *testing.T) {
	p, r := withRaw(t, shm.Options{Share: true}, flagShare)
	p.Receive() // the data path turns to the session
	p.Settle()
	word := r.copying()
	atomic.StoreUint32(word, 7)
	var ended atomic.Bool
	go func() {
		time.Sleep(20 * time.Millisecond)
		ended.Store(true)
		atomic.StoreUint32(word, 9) // the next one has begun at once
	}()
	if p.Settle(); !ended.Load() {
		t.Error("a copy is not waited for")
	}
	must.Be(t, p.LinkUp(), true, "the connection has ended")
	p.Settle()
	waittest.Until(t, "the peer is sent away", func() bool { p.Receive(); return p.Stats().Violations == 1 })
}

// TestSettleWhenPeerDies: who dies within a copy is not waited for.
func TestSettleWhenPeerDies(t *testing.T) {
	checkLeaks(t)
	p, r := withRaw(t, shm.Options{Share: true}, flagShare)
	p.Receive()
	atomic.StoreUint32(r.copying(), 1)
	go func() {
		time.Sleep(10 * time.Millisecond)
		_ = r.c.Close()
	}()
	p.Settle()
	waittest.Until(t, "the link is down", func() bool { return !p.LinkUp() })
	should.Be(t, p.Stats().Violations, 0, "violations")
}

// TestBegin: an end copies only over the wire that the peer's table names, within what it has
// been given, and says so meanwhile.
func TestBegin(t *testing.T) {
	checkLeaks(t)
	p, r := withRaw(t, shm.Options{Share: true, ShareWrite: true}, flagShare|flagWrite)
	p.Receive()
	number := p.Wire()
	must.Hold(t, number != 0 && p.Begin(number) == nil, "begun over wire %#x without a table", number)
	fd := sealedFile(t, datasheet.DirectTableSize, unix.F_SEAL_SHRINK)
	table := must.Get(unix.Mmap(fd, 0, datasheet.DirectTableSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	defer unix.Munmap(table)
	r.send(msgTable, 0, datasheet.DirectTableSize, 0, 0, fd)
	for id, writable := range []uint64{0, 1} {
		r.send(msgExport, uint32(1+id), 0, 2*page, writable, sealedFile(t, 2*page, unix.F_SEAL_SHRINK))
		r.readUntil(msgExported)
	}
	theirs := datasheet.IndexAt(r.theirs[copyOffset:])
	random := rand.New(rand.NewPCG(8, 15))
	for range 1000 {
		v := random.Uint32()
		binary.LittleEndian.PutUint32(table, v)
		if p.Begin(number) != nil && v != number {
			t.Fatalf("begun where the table says %#x", v)
		}
	}
	binary.LittleEndian.PutUint32(table, number)
	should.Be(t, p.Begin(number+1) != nil, false, "begun over another wire")
	should.Be(t, atomic.LoadUint32(theirs)&1, 0, "it says that it copies, and does not")
	must.Be(t, p.Begin(number) == nil, false, "not begun")
	should.Be(t, atomic.LoadUint32(theirs)&1 == 0, false, "it does not say that it copies")
	for _, tt := range []struct {
		id        uint32
		offset, n uint64
		write, ok bool
	}{{1, 0, 2 * page, false, true}, {1, 0, 1, true, false}, {2, page, page, true, true}, {2, page, page + 1, true, false},
		{2, 1 << 63, 1 << 63, false, false}, {2, ^uint64(0), 2, false, false}, {3, 0, 1, false, false}, {0, 0, 1, false, false}} {
		if b := p.Reach(tt.id, tt.offset, tt.n, tt.write); (b != nil) != tt.ok || tt.ok && uint64(len(b)) != tt.n {
			t.Errorf("%+v: %d bytes", tt, len(b))
		}
	}
	p.End()
	should.Be(t, atomic.LoadUint32(theirs)&1, 0, "it says that it copies still")
}

// TestExportWritable: a peer that has agreed writes, one that has not gets what it cannot write by
// the descriptor that it has, and a sealed file is refused.
func TestExportWritable(t *testing.T) {
	checkLeaks(t)
	for _, agreed := range []bool{true, false} {
		path := socket(t)
		p := open(t, shm.Options{Path: path, Role: shm.RoleListen, Share: true, ShareWrite: true})
		flags := uint64(flagShare)
		if agreed {
			flags |= flagWrite
		}
		r := joinRaw(t, path, flags)
		up(t, p)
		fd, mem := lendable(t, page)
		must.Get(p.ExportWritable(fd, 0, mem))(t)
		_, _, _, writable, got := r.readUntil(msgExport)
		defer unix.Close(got)
		if err := mapped(got, page); (err == nil) != agreed || (writable == 1) != agreed {
			t.Errorf("agreed %v: flags %d, mapping says %v", agreed, writable, err)
		}
		if err := unix.Ftruncate(got, 0); err == nil {
			t.Error("the peer can truncate it")
		}
		sealed, its := lendable(t, page)
		must.Get(p.Export(sealed, 0, its))(t)
		if _, err := p.ExportWritable(sealed, 0, its); err == nil {
			t.Error("what is sealed against writing was exported for it")
		}
	}
	on := open(t, shm.Options{Path: socket(t), Role: shm.RoleListen, Share: true})
	fd, mem := lendable(t, page)
	if _, err := on.ExportWritable(fd, 0, mem); err == nil {
		t.Error("exported for writing without the option")
	}
}
