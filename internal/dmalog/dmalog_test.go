package dmalog_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"pgregory.net/rapid"
)

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		record := rapid.Custom(func(t *rapid.T) dmalog.Record {
			start := rapid.Int64Range(0, 1<<50).Draw(t, "start")
			return dmalog.Record{Packet: rapid.IntRange(0, 1<<31-1).Draw(t, "packet"), Flow: rapid.IntRange(0, 1).Draw(t, "flow"),
				Engine: dmalog.Engine(rapid.IntRange(0, 3).Draw(t, "engine")), Start: start,
				End: start + rapid.Int64Range(0, 1<<40).Draw(t, "length"), Bytes: rapid.IntRange(0, 1<<30).Draw(t, "bytes")}
		})
		want := rapid.SliceOfN(record, 1, 20).Draw(t, "records")
		var b bytes.Buffer
		if err := dmalog.Write(&b, want); err != nil {
			t.Fatal(err)
		}
		got, err := dmalog.Read(&b, "log")
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("wrote %v, read %v", want, got)
		}
	})
}

func TestBadLines(t *testing.T) {
	const good = `{"packet":0,"engine":"hostTx","start_us":1,"end_us":2,"bytes":3}`
	for key, line := range map[string]string{
		"packet":   `{"packet":-1,"engine":"hostTx","start_us":1,"end_us":2,"bytes":3}`,
		"engine":   `{"packet":0,"engine":"warp","start_us":1,"end_us":2,"bytes":3}`,
		"start_us": `{"packet":0,"engine":"hostTx","start_us":-1,"end_us":2,"bytes":3}`,
		"end_us":   `{"packet":0,"engine":"hostTx","start_us":3,"end_us":2,"bytes":3}`,
		"bytes":    `{"packet":0,"engine":"hostTx","start_us":1,"end_us":2,"bytes":1.5}`,
		"flow":     `{"packet":0,"flow":2,"engine":"hostTx","start_us":1,"end_us":2,"bytes":3}`,
		"":         `{"packet":0,"engine":"hostTx","start_us":1,"end_us":2,"bytes":3,"colour":"red"}`,
	} {
		records, err := dmalog.Read(strings.NewReader(good+"\n\n"+line+"\n"+good), "live.log")
		var e *dmalog.LineError
		if !errors.Is(err, dmalog.ErrRecord) || !errors.As(err, &e) || e.Line != 3 || e.Key != key || records != nil {
			t.Errorf("%s: %v, %v", line, records, err)
		}
	}
	for _, line := range []string{"hello", `[1]`, `{"packet":0}`, good + good, `{"packet":"0"}`} {
		if _, err := dmalog.Read(strings.NewReader(line), "live.log"); !errors.Is(err, dmalog.ErrRecord) {
			t.Errorf("%s: %v", line, err)
		}
	}
	if _, err := dmalog.Read(strings.NewReader(strings.Repeat("x", 1<<20)), "live.log"); err == nil {
		t.Error("a line of a megabyte passes")
	}
}

// FuzzRead: what is read can be written and read again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"packet":0,"engine":"netRcv","start_us":1.5,"end_us":2.25,"bytes":4096}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		records, err := dmalog.Read(bytes.NewReader(text), "fuzz")
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := dmalog.Write(&b, records); err != nil {
			t.Fatal(err)
		}
		again, err := dmalog.Read(&b, "again")
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(records, again) {
			t.Fatalf("%v, then %v", records, again)
		}
	})
}
