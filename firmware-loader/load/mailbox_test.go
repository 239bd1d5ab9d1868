package load_test

import (
	"bytes"
	"errors"
	"testing"

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
	m, err := load.OpenMap(nic, maps, 0)
	if err != nil {
		t.Fatal(err)
	}
	key, value, got := []byte{1, 2, 3, 4}, []byte("12345678"), make([]byte, 8)
	if err := m.Lookup(key, got); !errors.Is(err, load.ErrNoProgram) {
		t.Errorf("without a program: %v", err)
	}
	mustLoad(t, nic, image(t, "one", "1.0", 1))
	if err := m.Lookup(key, got); !errors.Is(err, load.ErrNoEntry) {
		t.Errorf("absent key: %v", err)
	}
	if err := m.Update(key, value, datasheet.MailboxAny); err != nil {
		t.Fatal(err)
	}
	if err := m.Lookup(key, got); err != nil || !bytes.Equal(got, value) {
		t.Errorf("%q, %v", got, err)
	}
	if err := m.Delete(key); err != nil {
		t.Error(err)
	}
	if err := m.Delete(key); !errors.Is(err, load.ErrNoEntry) {
		t.Errorf("deleted twice: %v", err)
	}
	if err := m.Lookup(key[:3], got); !errors.Is(err, load.ErrSize) {
		t.Errorf("short key: %v", err)
	}
	if err := m.Update(key, value[:7], datasheet.MailboxAny); !errors.Is(err, load.ErrSize) {
		t.Errorf("short value: %v", err)
	}
	for _, index := range []int{-1, 1, 3} { // 1 does not fit the mailbox
		if _, err := load.OpenMap(nic, maps, index); !errors.Is(err, load.ErrMap) {
			t.Errorf("map %d: %v", index, err)
		}
	}
	stranger, err := load.OpenMap(nic, maps, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Lookup(key, got); !errors.Is(err, load.ErrMap) {
		t.Errorf("map that the image does not have: %v", err)
	}
	nic.before = func(int) error { return errUnplugged }
	if err := m.Delete(key); !errors.Is(err, load.ErrGone) && !errors.Is(err, errUnplugged) {
		t.Errorf("unplugged: %v", err)
	}
}
