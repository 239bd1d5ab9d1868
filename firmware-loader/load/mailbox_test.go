package load_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func TestMap(t *testing.T) {
	nic := newFakeNIC()
	maps := []abi.Map{
		{Name: "box", Type: abi.MapHash, Key: 4, Value: 8, Entries: 16},
		{Name: "large", Type: abi.MapArray, Key: 4, Value: 4096, Entries: 1},
		{Name: "stranger", Type: abi.MapHash, Key: 4, Value: 8, Entries: 16},
	}
	m := must.Get(load.OpenMap(nic, maps, 0))(t)
	key, value, got := []byte{1, 2, 3, 4}, []byte("12345678"), make([]byte, 8)
	should.Fail(t, m.Lookup(key, got), load.ErrNoProgram, "without a program")
	mustLoad(t, nic, image(t, "one", "1.0", 1))
	should.Fail(t, m.Lookup(key, got), load.ErrNoEntry, "absent key")
	must.OK(t, m.Update(key, value, datasheet.MailboxAny))
	err := m.Lookup(key, got)
	should.Hold(t, err == nil && bytes.Equal(got, value), "%q, %v", got, err)
	should.OK(t, m.Delete(key))
	should.Fail(t, m.Delete(key), load.ErrNoEntry, "deleted twice")
	should.Fail(t, m.Lookup(key[:3], got), load.ErrSize, "short key")
	should.Fail(t, m.Update(key, value[:7], datasheet.MailboxAny), load.ErrSize, "short value")
	for _, index := range []int{-1, 1, 3} { // 1 does not fit the mailbox
		should.Refuse(load.OpenMap(nic, maps, index))(t, load.ErrMap, "map %d", index)
	}
	stranger := must.Get(load.OpenMap(nic, maps, 2))(t)
	should.Fail(t, stranger.Lookup(key, got), load.ErrMap, "map that the image does not")
	nic.before = func(int) error { return errUnplugged }
	err = m.Delete(key)
	should.Hold(t, errors.Is(err, load.ErrGone) || errors.Is(err, errUnplugged), "unplugged: %v", err)
}
