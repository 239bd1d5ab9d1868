package dmalog_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"pgregory.net/rapid"
)

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		record := rapid.Custom(func(t *rapid.T) dmalog.Record {
			start := rapid.Int64Range(0, 1<<50).Draw(t, "start")
			return dmalog.Record{Packet: rapid.IntRange(0, 1<<31-1).Draw(t, "packet"), Flow: rapid.IntRange(0, 1).Draw(t, "flow"),
				Engine: dmalog.Engine(rapid.IntRange(0, 3).Draw(t, "engine")), Start: start,
				End: start + rapid.Int64Range(0, 1<<40).Draw(t, "length"), Bytes: rapid.IntRange(0, 1<<30).Draw(t, "bytes"),
				Queued: rapid.IntRange(0, 1<<31-1).Draw(t, "queued"), Buffer: rapid.IntRange(0, 1023).Draw(t, "buffer"),
				Control: rapid.Bool().Draw(t, "control")}
		})
		want := dmalog.Log{Records: rapid.SliceOfN(record, 1, 20).Draw(t, "records")}
		if rapid.Bool().Draw(t, "with setup") {
			side := rapid.Custom(func(t *rapid.T) dmalog.Side {
				return dmalog.Side{Policy: rapid.StringN(1, 16, 64).Draw(t, "policy"), MinPulse: rapid.IntRange(0, 1<<24).Draw(t, "minimum pulse")}
			})
			want.Setup = &dmalog.Setup{Version: 1, At: rapid.SampledFrom([]string{dmalog.AtNIC, dmalog.AtHost, dmalog.AtProgram}).Draw(t, "at"),
				Send: side.Draw(t, "send"), Receive: side.Draw(t, "receive"), Burst: rapid.IntRange(1, 1<<24).Draw(t, "burst"), Buffers: rapid.IntRange(1, 1024).Draw(t, "buffers"),
				Rate: rapid.Float64Range(0, 1e13).Draw(t, "rate"), Delay: rapid.Float64Range(0, 1e12).Draw(t, "delay")}
		}
		var b bytes.Buffer
		must.OK(t, dmalog.Write(&b, want))
		got := must.Get(dmalog.Read(&b, "log"))(t)
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
		"queued":   `{"packet":0,"engine":"hostTx","start_us":1,"end_us":2,"bytes":3,"queued":-1}`,
		"buffer":   `{"packet":0,"engine":"hostTx","start_us":1,"end_us":2,"bytes":3,"buffer":1024}`,
		"flow":     `{"packet":0,"flow":2,"engine":"hostTx","start_us":1,"end_us":2,"bytes":3}`,
		"":         `{"packet":0,"engine":"hostTx","start_us":1,"end_us":2,"bytes":3,"colour":"red"}`,
	} {
		log, err := dmalog.Read(strings.NewReader(good+"\n\n"+line+"\n"+good), "live.log")
		var e *dmalog.LineError
		if !errors.Is(err, dmalog.ErrRecord) || !errors.As(err, &e) || e.Line != 3 || e.Key != key || log.Records != nil {
			t.Errorf("%s: %v, %v", line, log, err)
		}
	}
	for _, line := range []string{"hello", `[1]`, `{"packet":0}`, good + good, `{"packet":"0"}`,
		good + "\n" + `{"dma_log":1,"at":"nic","send":{"policy":"amp"},"receive":{"policy":"amp"},"burst_bytes":512,"buffers":4}`} {
		should.Refuse(dmalog.Read(strings.NewReader(line), "live.log"))(t, dmalog.ErrRecord, "%s", line)
	}
	if _, err := dmalog.Read(strings.NewReader(strings.Repeat("x", 1<<20)), "live.log"); err == nil {
		t.Error("a line of a megabyte passes")
	}
}

// TestBadSetups: a first line that claims to be a setup is one, or names the key that is wrong.
func TestBadSetups(t *testing.T) {
	const good = `{"dma_log":1,"at":"nic","send":{"policy":"amp"},"receive":{"policy":"amp"},"burst_bytes":512,"buffers":4,"rate_bytes_per_s":1e8,"delay_us":5}`
	if log, err := dmalog.Read(strings.NewReader("\n"+good), "live.log"); err != nil || log.Setup == nil || log.Setup.Rate != 1e8 {
		t.Fatalf("%+v, %v", log.Setup, err)
	}
	for key, change := range map[string][2]string{
		"dma_log":                {`"dma_log":1`, `"dma_log":2`},
		"at":                     {`"nic"`, `"cloud"`},
		"send.policy":            {`"send":{"policy":"amp"}`, `"send":{}`},
		"receive.policy":         {`"receive":{"policy":"amp"}`, `"receive":{"policy":"` + strings.Repeat("x", 65) + `"}`},
		"send.minpulse_bytes":    {`"send":{`, `"send":{"minpulse_bytes":-1,`},
		"receive.minpulse_bytes": {`"receive":{`, `"receive":{"minpulse_bytes":16777217,`},
		"burst_bytes":            {`512`, `0`},
		"buffers":                {`"buffers":4`, `"buffers":1025`},
		"rate_bytes_per_s":       {`1e8`, `-1`},
		"delay_us":               {`:5}`, `:1e13}`},
		"":                       {`512`, `512,"colour":"red"`},
	} {
		log, err := dmalog.Read(strings.NewReader(strings.Replace(good, change[0], change[1], 1)), "live.log")
		var e *dmalog.LineError
		if !errors.Is(err, dmalog.ErrSetup) || !errors.As(err, &e) || e.Line != 1 || e.Key != key || log.Setup != nil {
			t.Errorf("%s: %+v, %v", key, log.Setup, err)
		}
	}
}

// FuzzRead: what is read can be written and read again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"packet":0,"engine":"netRcv","start_us":1.5,"end_us":2.25,"bytes":4096}` + "\n"))
	f.Add([]byte(`{"dma_log":1,"at":"nic","send":{"policy":"amp","minpulse_bytes":512},"receive":{"policy":"auto"},"burst_bytes":512,"buffers":4,"rate_bytes_per_s":1e8,"delay_us":5}` +
		"\n" + `{"packet":0,"engine":"hostTx","start_us":0,"end_us":1,"bytes":1,"queued":3}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		log, err := dmalog.Read(bytes.NewReader(text), "fuzz")
		if err != nil {
			return
		}
		var b bytes.Buffer
		must.OK(t, dmalog.Write(&b, log))
		again := must.Get(dmalog.Read(&b, "again"))(t)
		if !reflect.DeepEqual(log, again) {
			t.Fatalf("%v, then %v", log, again)
		}
	})
}
