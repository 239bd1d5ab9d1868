package netmem

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

const testPage, testPages = 4096, 8

// pagesAt opens a file of pages.
func pagesAt(t interface{ Fatal(...any) }, path string, readOnly bool) *pageFile {
	f, err := tryPages(path, testPage, readOnly)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func tryPages(path string, page int, readOnly bool) (*pageFile, error) {
	flag := os.O_RDWR | os.O_CREATE
	if readOnly {
		flag = os.O_RDONLY
	}
	data, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	f, err := openPages(context.Background(), data, page, testPages, readOnly, alone)
	if err != nil {
		return nil, errors.Join(err, data.Close())
	}
	return f, nil
}

// MemoryDir makes a folder in memory, where there is one, for files that need not outlive the system.
func MemoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "trapeze-netmem-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// crash closes what f has open, as a kill does.
func crash(t interface{ Fatal(...any) }, f *pageFile) {
	if err := errors.Join(f.release(), f.data.Close()); err != nil {
		t.Fatal(err)
	}
}

func pageOf(n byte) []byte { return bytes.Repeat([]byte{n}, testPage) }

// content reads a page as fetch does.
func content(f *pageFile, page uint64) []byte {
	b := make([]byte, testPage)
	if f.of(page).Flags&protocol.Damaged != 0 || f.read(b, int64(page*testPage)) != nil {
		return nil
	}
	return b
}

// TestWrap: no write makes a version smaller, and unwritten is not a version.
func TestWrap(t *testing.T) {
	const last = math.MaxUint64
	for name, q := range map[string]protocol.Request{
		"always":   {Condition: protocol.Always, Next: 5},
		"older":    {Condition: protocol.IfOlder, Next: last},
		"expected": {Condition: protocol.IfExpected, Expected: last, Next: 1},
	} {
		s := stamps{pages: []stamp{{version: last, client: 1, state: written}}}
		q.Length = testPage
		result := checkWrite(&q, testPage, testPage)
		if result == protocol.OK {
			_, result = s.next(&q)
		}
		if result == protocol.OK {
			t.Errorf("%s was not refused at the largest version", name)
		}
		s = stamps{base: last, pages: make([]stamp, 1)}
		if _, result := s.next(&protocol.Request{Condition: protocol.Always}); result != protocol.VersionLimit {
			t.Errorf("always on a base of the largest version: %v", result)
		}
	}
	s := stamps{pages: []stamp{{version: last, client: 1, state: written}}}
	if p, result := s.next(&protocol.Request{Condition: protocol.Exactly, Next: 3, Client: 9}); result != protocol.OK || p.version != 3 || p.client != 9 {
		t.Errorf("exactly: %+v, %v", p, result)
	}
	if r := s.of(0); r.Version != last || r.Flags&protocol.Unwritten != 0 {
		t.Errorf("the page is %+v", r)
	}
}

// TestFresh: a repair does not overwrite what a client has written in the same join.
func TestFresh(t *testing.T) {
	s := stamps{pages: make([]stamp, 1)}
	put := func(c protocol.Condition, next uint64) protocol.Result {
		p, result := s.next(&protocol.Request{Condition: c, Next: next})
		if result == protocol.OK {
			s.pages[0] = p
		}
		return result
	}
	s.joins++
	if put(protocol.IfOlder, 10) != protocol.OK || s.of(0).Flags&protocol.Fresh == 0 {
		t.Fatal("a write did not make the page fresh")
	}
	if put(protocol.Exactly, 10) != protocol.VersionConflict || put(protocol.Exactly, 9) != protocol.VersionConflict || put(protocol.Exactly, 11) != protocol.OK {
		t.Fatal("a fresh page is only overwritten by a newer one")
	}
	s.joins++
	if s.of(0).Flags&protocol.Fresh != 0 || put(protocol.Exactly, 2) != protocol.OK || s.of(0).Flags&protocol.Fresh != 0 {
		t.Fatal("the next join remembers the last one")
	}
}

// TestSidecarRefused: a sidecar that does not belong to what is lent is refused and kept.
func TestSidecarRefused(t *testing.T) {
	for field, change := range map[string]func(b []byte) []byte{
		"magic number": func(b []byte) []byte { b[0]++; return b },
		"checksum":     func(b []byte) []byte { b[17]++; return b },
		"format": func(b []byte) []byte {
			b[8]++
			le.PutUint32(b[24:], sumOf(b[:24]))
			return b
		},
		"number of pages": func([]byte) []byte { return sideLayout{testPage, testPages + 1}.header() },
		"size of a page":  func([]byte) []byte { return sideLayout{2 * testPage, testPages}.header() },
		"size":            func(b []byte) []byte { return b[:len(b)-1] },
		"state":           func(b []byte) []byte { clear(b[stateAt:journalAt]); return b },
	} {
		path := filepath.Join(t.TempDir(), "lent")
		f := pagesAt(t, path, false)
		crash(t, f)
		b, err := os.ReadFile(sideName(path))
		if err != nil {
			t.Fatal(err)
		}
		b = change(b)
		if err := os.WriteFile(sideName(path), b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = tryPages(path, testPage, false)
		var bad *SidecarError
		if !errors.As(err, &bad) || bad.Field != field || bad.Path == "" {
			t.Errorf("%s: %v", field, err)
		}
		if now, _ := os.ReadFile(sideName(path)); !bytes.Equal(now, b) {
			t.Errorf("%s: the sidecar was changed", field)
		}
	}
}

// TestFileInUse: one server writes to a file, or several read.
func TestFileInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lent")
	f := pagesAt(t, path, false)
	var waiting sync.WaitGroup
	for _, readOnly := range []bool{false, true} {
		waiting.Go(func() {
			if _, err := tryPages(path, testPage, readOnly); !errors.Is(err, ErrInUse) {
				t.Errorf("a second server, for reading only %v: %v", readOnly, err)
			}
		})
	}
	waiting.Wait()
	crash(t, f)
	a, b := pagesAt(t, path, true), pagesAt(t, path, true)
	crash(t, a)
	crash(t, b)
}

// TestEdited: what another program has done to a file is served under a version of its own
// where there is no copy, and else, or after the power may have failed, it is damaged.
func TestEdited(t *testing.T) {
	pair := membership{Record: protocol.FirstRecord(1, 1, 1, 2)}
	for name, c := range map[string]struct {
		state   func(*sideState)
		damaged bool
	}{
		"alone":       {func(*sideState) {}, false},
		"with a copy": {func(s *sideState) { s.record = pair.append(nil) }, true},
		"power":       {func(s *sideState) { s.boot[0]++ }, true},
	} {
		path := filepath.Join(t.TempDir(), "lent")
		f := pagesAt(t, path, false)
		for page := range uint64(2) { // the journal has the second
			if err := f.put(page, stamp{version: 7, client: 3, state: written}, pageOf(1)); err != nil {
				t.Fatal(err)
			}
		}
		to := f.state
		c.state(&to)
		if err := f.save(to, true); err != nil {
			t.Fatal(err)
		}
		if _, err := f.data.WriteAt([]byte("edited"), 0); err != nil {
			t.Fatal(err)
		}
		crash(t, f)
		for range 2 { // the second time, nothing has changed
			f = pagesAt(t, path, false)
			p, got := f.pages[0], content(f, 0)
			if c.damaged && got != nil || !c.damaged && (!bytes.HasPrefix(got, []byte("edited")) || p.version != 8 || p.client != 0) {
				t.Errorf("%s: %+v, %.10q", name, p, got)
			}
			if err := errors.Join(f.close(), f.data.Close()); err != nil {
				t.Fatal(err)
			}
		}
		f = pagesAt(t, path, false)
		if err := f.put(0, stamp{version: 9, state: written}, pageOf(2)); err != nil || !bytes.Equal(content(f, 0), pageOf(2)) {
			t.Errorf("%s: a write does not repair the page: %v", name, err)
		}
		crash(t, f)
	}
}

// TestReadOnlyFile: for reading only no sidecar is needed, and none is made or changed.
func TestReadOnlyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lent")
	if err := os.WriteFile(path, pageOf(4), 0o400); err != nil {
		t.Fatal(err)
	}
	f := pagesAt(t, path, true)
	if !bytes.Equal(content(f, 0), pageOf(4)) || f.put(0, stamp{state: written}, pageOf(1)) == nil {
		t.Error("the file is not lent for reading only")
	}
	if err := errors.Join(f.close(), f.data.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(sideName(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a sidecar: %v", err)
	}
}

// TestDiskFull: a write for which there is no room leaves the old page, also after a restart,
// and so does a sidecar that cannot be made.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a small file system needs root: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	filler := filepath.Join(dir, "filler")
	fill := func() {
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = f.Write(pageOf(0xff))
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "lent")
	fill()
	if _, err := tryPages(path, testPage, false); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("a sidecar on a full disk: %v", err)
	}
	if _, err := os.Stat(sideName(path)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a part of a sidecar is left: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	f := pagesAt(t, path, false)
	if err := f.put(0, stamp{version: 1, state: written}, pageOf(1)); err != nil {
		t.Fatal(err)
	}
	fill()
	for range 2 {
		if err := f.put(3, stamp{version: 2, state: written}, pageOf(2)); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("a write without room: %v", err)
		}
		if err := f.put(0, stamp{version: 3, state: written}, pageOf(3)); err != nil {
			t.Fatalf("a write to a page that has room: %v", err)
		}
		if !bytes.Equal(content(f, 3), pageOf(0)) || f.of(3).Flags&protocol.Unwritten == 0 || !bytes.Equal(content(f, 0), pageOf(3)) {
			t.Fatal("the old page is not there")
		}
		if err := f.put(3, stamp{version: 2, state: written}, pageOf(2)); err == nil {
			t.Fatal("the disk is not full")
		}
		crash(t, f)
		f = pagesAt(t, path, false)
	}
	crash(t, f)
}

// TestUndone: the process may write no more of a file than a part of a page; the page is the
// old one, and stays it.
func TestUndone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lent")
	f := pagesAt(t, path, false)
	if err := f.put(2, stamp{version: 5, client: 1, state: written}, pageOf(1)); err != nil {
		t.Fatal(err)
	}
	side := f.side
	for name, broken := range map[string]func(){
		"journal":  func() { f.side = reopen(t, sideName(path)) },
		"in place": func() { f.data = reopen(t, path) },
	} {
		data := f.data
		broken()
		if err := f.put(2, stamp{version: 6, client: 1, state: written}, pageOf(2)); err == nil {
			t.Errorf("%s: a file that cannot be written to was written", name)
		}
		if f.data != data {
			_ = f.data.Close()
		}
		if f.side != side {
			_ = f.side.Close()
		}
		f.data, f.side = data, side
		crash(t, f)
		f = pagesAt(t, path, false)
		side = f.side
		if p := f.pages[2]; p.version != 5 || !bytes.Equal(content(f, 2), pageOf(1)) {
			t.Errorf("%s: %+v", name, p)
		}
	}
	crash(t, f)
}

// reopen opens a file so that writes to it fail.
func reopen(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestMixedJournal: a header of which a part is of one write and the rest of another is not whole,
// wherever the two meet.
func TestMixedJournal(t *testing.T) {
	l := sideLayout{page: testPage, count: testPages}
	data := make([]byte, testPage)
	written := func(page, version uint64) []byte {
		b := make([]byte, block, block+testPage)
		j := journal{page: page, stamp: stamp{version: version, client: 7, sum: sumOf(data), state: written}}
		j.encode(b)
		return append(b, data...)
	}
	for first := range uint64(3) {
		one, other := written(first, 1), written(first+1, 2)
		for cut := range journalHead {
			for last := cut; last <= journalHead; last++ {
				mixed := append(append(append([]byte(nil), one[:cut]...), other[cut:last]...), one[last:]...)
				_, whole := l.parseJournal(mixed)
				if is := bytes.Equal(mixed, one) || bytes.Equal(mixed, other); whole != is {
					t.Fatalf("bytes %d to %d of another header: whole is %v", cut, last, whole)
				}
			}
		}
	}
}

// TestCrashes compares a file with a map, over writes, restarts, and kills after any number
// of bytes of a write.
func TestCrashes(t *testing.T) {
	dir := MemoryDir(t)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		path := filepath.Join(dir, string(rune('a'+n%26))+string(rune('a'+n/26%26))+string(rune('a'+n/676)))
		f := pagesAt(t, path, false)
		type known struct {
			stamp
			fill byte
		}
		model := map[uint64]known{}
		version := uint64(0)
		check := func(t *rapid.T) {
			for page := range uint64(testPages) {
				want, got := model[page], f.pages[page]
				if got.version != want.version || got.client != want.client || got.state != want.state || !bytes.Equal(content(f, page), pageOf(want.fill)) {
					t.Fatalf("page %d is %+v and not %+v", page, got, want)
				}
			}
		}
		draw := func(t *rapid.T) (uint64, known) {
			version++
			return rapid.Uint64Range(0, testPages-1).Draw(t, "page"),
				known{stamp{version: version, client: rapid.Uint64().Draw(t, "client"), state: written}, rapid.Byte().Draw(t, "fill")}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": check,
			"write": func(t *rapid.T) {
				page, to := draw(t)
				if err := f.put(page, to.stamp, pageOf(to.fill)); err != nil {
					t.Fatal(err)
				}
				model[page] = to
			},
			"restart": func(t *rapid.T) {
				if err := errors.Join(f.close(), f.data.Close()); err != nil {
					t.Fatal(err)
				}
				f = pagesAt(t, path, false)
			},
			"kill": func(t *rapid.T) {
				page, to := draw(t)
				whole := block + testPage
				at := rapid.IntRange(0, whole+testPage+entrySize).Draw(t, "bytes")
				cutWrite(t, f, page, to.stamp, pageOf(to.fill), at)
				if at >= whole {
					model[page] = to
				}
				crash(t, f)
				f = pagesAt(t, path, false)
				if p := f.pages[page]; p.version == version { // a tail that was the same before is whole earlier
					model[page] = to
				}
			},
		})
		crash(t, f)
	})
}

// cutWrite does the first n bytes of what put does, in its order.
func cutWrite(t *rapid.T, f *pageFile, page uint64, to stamp, from []byte, n int) {
	to.sum = sumOf(from)
	j := journal{page: page, stamp: to}
	j.encode(f.entry)
	copy(f.entry[block:], from)
	var table [entrySize]byte
	to.encode(table[:])
	for _, step := range []struct {
		file  *os.File
		at    int64
		bytes []byte
	}{{f.side, journalAt, f.entry}, {f.data, int64(page * testPage), from}, {f.side, f.tableAt(page), table[:]}} {
		part := min(n, len(step.bytes))
		if _, err := step.file.WriteAt(step.bytes[:part], step.at); err != nil {
			t.Fatal(err)
		}
		n -= part
	}
}

// TestRecord: what was saved is there after a kill, and a state that was cut short is none.
func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lent")
	f := pagesAt(t, path, false)
	r := membership{Record: protocol.FirstRecord(3, 1, 1, 2), self: 1}
	for epoch := range uint64(5) {
		to := f.state
		r.Record = r.With(1, protocol.Out)
		to.record, to.base = r.append(nil), 100+epoch
		if err := f.save(to, true); err != nil {
			t.Fatal(err)
		}
		next := f.state // the next one is torn
		next.turn++
		next.base = 7
		if _, err := f.side.WriteAt(next.encode()[:30], stateAt+int64(next.turn%2)*block); err != nil {
			t.Fatal(err)
		}
		crash(t, f)
		f = pagesAt(t, path, false)
		if got, err := parseMembership(f.state.record); err != nil || got != r || f.base != 100+epoch {
			t.Fatalf("epoch %d: %+v, %d, %v", epoch, got, f.base, err)
		}
	}
	crash(t, f)
}

// FuzzSidecar: whatever stands in a sidecar, it is refused or its parts are within bounds.
func FuzzSidecar(f *testing.F) {
	l := sideLayout{testPage, testPages}
	seed := make([]byte, l.size())
	copy(seed, l.header())
	copy(seed[stateAt:], (&sideState{record: []byte("record")}).encode())
	j := journal{page: 1, stamp: stamp{version: 1, state: written, sum: sumOf(make([]byte, testPage))}}
	j.encode(seed[journalAt:])
	j.stamp.encode(seed[l.tableAt(1):])
	f.Add(seed)
	f.Add(seed[:journalAt])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := l.check(b, int64(len(b))); err != nil {
			var bad *SidecarError
			if !errors.As(err, &bad) {
				t.Fatal(err)
			}
			return
		}
		if s, whole := parseStates(b[stateAt:]); whole && len(s.record) > mostRecord {
			t.Fatalf("a record of %d bytes", len(s.record))
		}
		if j, whole := l.parseJournal(b[journalAt:]); whole && (j.page >= testPages || len(j.data) != testPage) {
			t.Fatalf("a journal of %d bytes for page %d", len(j.data), j.page)
		}
		for page := range uint64(testPages) {
			_ = parseStamp(b[l.tableAt(page):])
		}
	})
}
