package framescmd_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/capture"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/numbered"
)

type genReport struct {
	Generated, Closing, Dropped uint64
	TooLong                     uint64 `json:"too_long"`
	CutOff                      uint64 `json:"cut_off"`
	Unsent                      int
	Ports                       []struct {
		SentFrames uint64 `json:"sent_frames"`
	}
}

// ends is how many frames say that a stream has ended.
const ends = 5

// TestGenCheck sends streams of all kinds from one command to another: none is lost, and
// the other one knows when it has them all. There are fewer frames than its ring has room.
func TestGenCheck(t *testing.T) {
	for _, flags := range []string{
		"--count 400", "--count 400 --size imix --vlan 7", "--count 400 --size 58-1500 --udp 10.0.0.1:5000,10.0.0.2:9",
		"--count 20 --rate 2k", "--duration 50ms --rate 1k",
	} {
		address := newWire()
		check := startEnv(t, command.Env{}, "dump", "--device", address, "--check")
		check.ready(t)
		var g genReport
		start(t, append([]string{"gen", "--device", address}, strings.Fields(flags)...)...).report(t, &g)
		if err := check.wait(); err != nil {
			t.Fatal(err)
		}
		var count uint64
		if n, _ := fmt.Sscanf(flags, "--count %d", &count); n == 0 {
			count = g.Generated
		}
		want := fmt.Sprintf("numbered: %d of 1 streams, 1 ended: 0 lost (0 of them explained by counters), 0 doubled, 0 reordered, 0 late, 0 damaged, 0 other\n", count)
		if s := check.stdout.String(); !strings.HasSuffix(s, want) || g.Generated != count || g.Closing != ends || g.Dropped != 0 || g.Unsent != 0 || g.Ports[0].SentFrames != count+ends {
			t.Errorf("%s: %s, %+v", flags, s, g)
		}
	}
}

// TestGenLoss: over a wire that loses, doubles and damages frames, all are accounted for.
func TestGenLoss(t *testing.T) {
	address := newWire() + "&loss=0.1&duplicate=0.1&corrupt=0.1&reorder=0.1&seed=1"
	check := startEnv(t, command.Env{}, "dump", "--device", address, "--check")
	check.ready(t)
	var g genReport
	start(t, "gen", "--device", address, "--count", "400").report(t, &g)
	if err := check.wait(); err != nil {
		t.Fatal(err)
	}
	var c numbered.Totals
	var explained uint64
	s := check.stdout.String()
	s = s[max(0, strings.LastIndex(s, "numbered: ")):]
	if _, err := fmt.Sscanf(s, "numbered: %d of %d streams, %d ended: %d lost (%d of them explained by counters), %d doubled, %d reordered, %d late, %d damaged, %d other",
		&c.Frames, &c.Streams, &c.Ended, &c.Lost, &explained, &c.Doubled, &c.Reordered, &c.Late, &c.Damaged, &c.Other); err != nil {
		t.Fatalf("%v in %q", err, s)
	}
	if c.Ended != 1 || c.Frames+c.Lost != 400 || c.Lost < 20 || c.Doubled < 10 || c.Reordered < 10 || c.Damaged == 0 || explained == 0 || explained > c.Lost {
		t.Errorf("%+v, %d explained", c, explained)
	}
}

// TestReplay sends what stands in a file, as it stands there.
func TestReplay(t *testing.T) {
	sender := ethernet.MAC{2, 0, 0, 0, 0, 8}
	for _, format := range []capture.Format{capture.PCAP, capture.PCAPNG} {
		var b bytes.Buffer
		w, err := capture.NewWriter(&b, format, 1200, capture.Source{}, "test")
		if err != nil {
			t.Fatal(err)
		}
		frames := append(some(t, sender), make([]byte, 1300), make([]byte, 10), make([]byte, 1600))
		for i, f := range frames {
			if err := w.Write(time.Unix(1000, int64(i)*1e6), f); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		for _, rate := range []string{"", "--rate=1M"} {
			address := newWire()
			p := newPeer(t, address)
			// A pipe: the NIC stays until it is closed.
			path := filepath.Join(t.TempDir(), "file")
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"gen", "--device", address, "--read", path}
			if rate != "" {
				args = append(args, rate)
			}
			begin := time.Now()
			gen := start(t, args...)
			pipe, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pipe.Write(b.Bytes()); err != nil {
				t.Fatal(err)
			}
			for _, want := range some(t, sender) {
				if got := p.receive(t, timeout); !bytes.Equal(got, want) {
					t.Fatalf("%s: %x instead of %x", format, got, want)
				}
			}
			if took := time.Since(begin); rate == "" && took < 4*time.Millisecond {
				t.Errorf("4 ms of frames took %v", took)
			}
			if err := pipe.Close(); err != nil {
				t.Error(err)
			}
			var r genReport
			if gen.report(t, &r); r.Generated != 8 || r.CutOff != 3 || r.Ports[0].SentFrames != 5 {
				t.Errorf("%s: %+v", format, r)
			}
		}
	}
}

// record is one of a pcap file in microseconds: length bytes of a frame of which original is said.
func record(seconds uint32, length, original int) []byte {
	b := binary.LittleEndian.AppendUint32(nil, seconds)
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(length))
	b = binary.LittleEndian.AppendUint32(b, uint32(original))
	return append(b, bytes.Repeat([]byte{byte(length)}, length)...)
}

// pcapFile is a file of frames of a link type, with the bits of its upper half.
func pcapFile(link uint32, records ...[]byte) []byte {
	header := []byte{0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0}
	return slices.Concat(binary.LittleEndian.AppendUint32(header, link), slices.Concat(records...))
}

// block is one of a pcapng file, with its two lengths.
func block(kind uint32, body ...uint32) (b []byte) {
	length := uint32(12 + 4*len(body))
	for _, v := range append(append([]uint32{kind, length}, body...), length) {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// packet is an enhanced packet block of an interface, with the flags that its options have.
func packet(interfaceIndex uint32, length int, original, flags uint32) []byte {
	body := append([]uint32{interfaceIndex, 0, 0, uint32(length), original}, make([]uint32, (length+3)/4)...)
	return block(6, append(body, 2|4<<16, flags, 0)...)
}

// TestReplayOddRecords: a record that cannot be sent is counted and named, and those behind it are sent.
func TestReplayOddRecords(t *testing.T) {
	good := record(1000, 60, 60)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	section := slices.Concat(block(0x0a0d0d0a, 0x1a2b3c4d, 1, 0xffffffff, 0xffffffff), block(1, 1, 0), block(1, 101, 0)) // Ethernet, and raw IP
	ng := slices.Concat(section, packet(0, 60, 60, 0), packet(1, 40, 40, 0), packet(0, 100, 60, 0), packet(0, 66, 66, 4<<5))
	if _, err := z.Write(ng); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file                        []byte
		lengths                     []int
		cutOff, link, wrong, longer int
		says                        string
		err                         error
	}{
		"more than there was": {file: pcapFile(1, good, record(1000, 100, 62), record(1000, 61, 61)), lengths: []int{60, 61}, wrong: 1, says: "FILE: record 2 is skipped"},
		"a cut end":           {file: pcapFile(1, good, record(1000, 61, 61)[:70]), lengths: []int{60}, cutOff: 1, says: "FILE: record 2 is cut off: the file ends there\n"},
		"a header alone":      {file: pcapFile(1, good, record(1000, 61, 61)[:16]), lengths: []int{60}, cutOff: 1, says: "FILE: record 2 is cut off: the file ends there\n"},
		"cut in capture":      {file: pcapFile(1, record(1000, 60, 100), good, record(1000, 59, 100)), lengths: []int{60}, cutOff: 2, says: "FILE: record 1 is skipped"},
		"check sequences":     {file: pcapFile(0x24000001, record(1000, 64, 64), record(1000, 1518, 1518)), lengths: []int{60, 1514}},
		"a class":             {file: pcapFile(0x00010001, good), lengths: []int{60}},
		"too long":            {file: pcapFile(1, record(1000, 1600, 1600), record(1000, 70000, 70000), good), lengths: []int{60}, longer: 2, says: "FILE: record 1 is skipped"},
		"a gap":               {file: pcapFile(1, record(0, 60, 60), record(1700000000, 61, 61), record(10, 62, 62), record(11, 63, 63)), lengths: []int{60, 61, 62, 63}, says: "FILE: record 2 comes 472222h13m20s after the one before it; it is sent after 1ms (--max-gap)\n"},
		"pcapng":              {file: ng, lengths: []int{60, 62}, link: 1, wrong: 1, says: "FILE: record 2 is skipped"},
		"zipped":              {file: zipped.Bytes(), lengths: []int{60, 62}, link: 1, wrong: 1, says: "FILE: record 3 is skipped"},
		"no such interface":   {file: slices.Concat(section, packet(0, 60, 60, 0), packet(7, 60, 60, 0)), lengths: []int{60}, err: capture.ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := newWire()
			p := newPeer(t, address)
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, c.file, 0o600); err != nil {
				t.Fatal(err)
			}
			gen := startEnv(t, command.Env{}, "gen", "--device", address, "--read", path, "--max-gap", "1ms")
			for _, want := range c.lengths {
				if got := p.receive(t, timeout); len(got) != want {
					t.Fatalf("a frame of %d bytes, want %d", len(got), want)
				}
			}
			if err := gen.wait(); !errors.Is(err, c.err) {
				t.Errorf("it ended with %v, want %v", err, c.err)
			} else if c.err != nil && !strings.Contains(err.Error(), path+": record 2") {
				t.Errorf("%v does not name file and record", err)
			}
			want := fmt.Sprintf("generated %d, and 0 to end streams, dropped 0 without room, %d too long, %d cut off, %d of another link type, %d of wrong lengths, 0 left in the ring\n",
				len(c.lengths)+c.longer+c.cutOff+c.link+c.wrong, c.longer, c.cutOff, c.link, c.wrong)
			if s := gen.stdout.String(); !strings.HasSuffix(s, want) {
				t.Errorf("stdout %q, want %q", s, want)
			}
			if s, want := gen.stderr.String(), strings.ReplaceAll(c.says, "FILE", path); !strings.Contains(s, want) {
				t.Errorf("stderr %q, want %q", s, want)
			}
		})
	}
}

// TestRates: with --progress there is a line each second, and the totals at the end are
// for people. Without a link gen says that it waits for one.
func TestRates(t *testing.T) {
	address := newWire()
	gen := startEnv(t, command.Env{Progress: "plain"}, "gen", "--device", address, "--rate", "100", "--duration", "1200ms")
	gen.ready(t)
	newPeer(t, address)
	if err := gen.wait(); err != nil {
		t.Fatal(err)
	}
	if s := gen.stderr.String(); !strings.HasPrefix(s, "waiting for the link of "+address+"\nsending ") || !strings.Contains(s, "frames/s, ") || !strings.Contains(s, "; out ") {
		t.Errorf("stderr %q", s)
	}
	if s := gen.stdout.String(); !strings.Contains(s, "generated ") || !strings.Contains(s, "--- "+address) {
		t.Errorf("stdout %q", s)
	}
}
